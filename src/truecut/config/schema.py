"""The pipeline file's JSON Schema (draft 2020-12), generated from the types in `file`."""

from __future__ import annotations

from typing import Any

from truecut.config.file import PipelineFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema as a JSON document: what editors check a pipeline file against."""
    schema = PipelineFile.model_json_schema()
    schema["title"] = "Truecut pipeline"
    _drop_titles(schema)
    return {"$schema": DIALECT, **schema}


def _drop_titles(schema: dict[str, Any]) -> None:
    """Pydantic's titles repeat the names of the properties; editors show them instead of descriptions."""
    for section in (schema, *schema["$defs"].values()):
        for setting in section["properties"].values():
            setting.pop("title", None)
