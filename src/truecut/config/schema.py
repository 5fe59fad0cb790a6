"""The pipeline file's JSON Schema (draft 2020-12), generated from the types in `file`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truecut.config.file import PipelineFile
from truecut.config.kinds import SINKS, SOURCES
from truecut.config.section import Section

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema as a JSON document: what editors check a pipeline file against."""
    schema = PipelineFile.model_json_schema()
    spec = schema["$defs"]["Spec"]["properties"]
    spec["source"] = _one_of(schema, SOURCES.sections())
    spec["sinks"]["items"] = _one_of(schema, SINKS.sections())
    schema["$defs"] = dict(sorted(schema["$defs"].items()))
    schema["title"] = "Truecut pipeline"
    _drop_titles(schema)
    return {"$schema": DIALECT, **schema}


def _one_of(schema: dict[str, Any], models: Sequence[type[Section]]) -> dict[str, Any]:
    """References to the sections of all kinds, which become definitions of their own."""
    for model in models:
        own = model.model_json_schema()
        schema["$defs"] |= {**own.pop("$defs", {}), model.__name__: own}
    return {"oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in models]}


def _drop_titles(schema: dict[str, Any]) -> None:
    """Pydantic's titles repeat the names of the properties; editors show them instead of descriptions."""
    for section in (schema, *schema["$defs"].values()):
        for setting in section["properties"].values():
            setting.pop("title", None)
