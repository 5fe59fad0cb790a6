"""Writes the generated documents: `python docs/generate.py`. A test fails when they are stale."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from docs import postgres_types  # noqa: E402
from docs.error_codes import Use, harvest  # noqa: E402
from truecut.config import reserved  # noqa: E402
from truecut.config.kinds import SINKS, SOURCES  # noqa: E402
from truecut.config.schema import json_schema  # noqa: E402

_RANGES = {
    "1": "The pipeline file and the command line",
    "2": "Sources",
    "3": "Delivery: tables that stop",
    "4": "Sinks and lakes",
    "5": "Environment",
    "6": "The journal",
    "7": "Certificates and verification",
}
_HELD = (
    "The table is held where it stands and the other tables go on. Remove the cause, then "
    "`truecut resume FILE --table TABLE`."
)
_PLACES = {
    "Metadata": "metadata",
    **{SOURCES[name].section.__name__: f"spec.source, type: {name}" for name in SOURCES.names},
    "Table": "spec.tables[]",
    **{SINKS[name].section.__name__: f"spec.sinks[], type: {name}" for name in SINKS.names},
    "SinkTable": "spec.sinks[].tables[]",
    "ForEach": "spec.sinks[].for_each",
    "StorageSection": "storage (of a source or sink of type ducklake)",
    "Batch": "spec.batch",
    "Journal": "spec.journal",
    "Certificate": "spec.certificate",
    "Lease": "spec.lease",
    "Verify": "spec.certificate.verify",
    "Spark": "spec.spark",
}


def documents() -> dict[Path, str]:
    """Every generated document with what it must hold."""
    return {
        FOLDER / "pipeline.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        FOLDER / "pipeline.md": pipeline(),
        FOLDER / "errors.md": errors(harvest()),
        FOLDER / "postgres-types.md": postgres_types.document(),
    }


# --- errors -------------------------------------------------------------------------------------------


def errors(uses: Iterable[Use]) -> str:
    """Each code with its messages and what to do."""
    lines = [
        "# Error codes",
        "",
        "Generated from the source by `docs/generate.py`. What stands in braces is filled in; no message",
        "holds a row's values or a secret.",
    ]
    for first, group in groupby(uses, key=lambda use: use.code[2]):
        lines += [
            "",
            f"## TC{first}xxx: {_RANGES[first]}",
            "",
            "| code | meaning | what to do |",
            "|---|---|---|",
        ]
        lines += [_error_row(code, list(same)) for code, same in groupby(group, key=lambda use: use.code)]
    return "\n".join(lines) + "\n"


def _error_row(code: str, uses: list[Use]) -> str:
    meanings = dict.fromkeys(use.meaning for use in uses)
    fixes = dict.fromkeys(use.fix or (_HELD if code.startswith("TC3") else "") for use in uses)
    return f"| {code} | {_cell('; or: '.join(meanings))} | {_cell(' '.join(filter(None, fixes)))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- the pipeline file --------------------------------------------------------------------------------


def pipeline() -> str:
    """Every setting of the pipeline file."""
    schema = json_schema()
    sections = schema["$defs"]
    lines = [_INTRODUCTION, _settings("The file", schema), _settings("`spec`", sections["Spec"])]
    lines += [_settings(f"`{place}`", sections[name]) for name, place in _PLACES.items()]
    lines.append(_not_yet())
    return "\n".join(lines)


def _settings(title: str, section: Mapping[str, Any]) -> str:
    required = section.get("required", [])
    table = ["| setting | value | default | meaning |", "|---|---|---|---|"]
    for name, setting in section["properties"].items():
        default = _default(name in required, setting)
        table.append(f"| `{name}` | {_type(setting)} | {default} | {_cell(_meaning(setting))} |")
    return "\n".join([f"## {title}", "", section["description"], "", *table, ""])


def _meaning(setting: Mapping[str, Any]) -> str:
    if "description" in setting:
        return str(setting["description"])
    reference = str(setting.get("$ref", "")).rpartition("/")[2]
    return str(json_schema()["$defs"].get(reference, {}).get("description", ""))


def _type(setting: Mapping[str, Any]) -> str:
    if "anyOf" in setting:
        return " or ".join(_type(option) for option in setting["anyOf"] if option.get("type") != "null")
    if "$ref" in setting or "oneOf" in setting:
        return "mapping, see below"
    if "enum" in setting or "const" in setting:
        return ", ".join(f"`{value}`" for value in setting.get("enum", [setting.get("const")]))
    if setting.get("type") == "array":
        return "list of " + _type(setting["items"]).replace("mapping", "mappings")
    if "ms|s" in setting.get("pattern", ""):
        return "duration"
    if "MiB" in setting.get("pattern", ""):
        return "size"
    return {"string": "text", "integer": "whole number", "boolean": "`true`, `false`"}.get(
        str(setting.get("type")), "mapping"
    )


def _default(required: bool, setting: Mapping[str, Any]) -> str:
    if required:
        return "required"
    default = setting.get("default")
    return "" if default is None else f"`{json.dumps(default).strip(chr(34))}`"


def _not_yet() -> str:
    def names(values: Iterable[str]) -> str:
        return ", ".join(f"`{value}`" for value in sorted(values))

    return "\n".join(
        [
            "## Not available yet",
            "",
            "These names are taken; using one is an error (TC1015) that says so.",
            "",
            f"- settings: {names(reserved.KEYS)}",
            f"- source types: {names(reserved.SOURCE_TYPES)}",
            f"- sink types: {names(reserved.SINK_TYPES)}",
            f"- modes: {names(reserved.MODES)}",
            "",
        ]
    )


_INTRODUCTION = """\
# The pipeline file

Generated from the types by `docs/generate.py`. `truecut init` writes a file to begin with, `truecut
validate FILE` checks it without connecting to anything, and [pipeline.schema.json](pipeline.schema.json)
(also `truecut schema`) lets an editor check it while you type.

```yaml
# yaml-language-server: $schema=pipeline.schema.json
apiVersion: truecut/v1
kind: Pipeline
metadata: {name: tenants}
spec:
  source: {type: ducklake, catalog: ./source.ducklake}
  tables:
    - {name: main.events, key: [id], route_by: tenant}
  sinks:
    - name: "t-{tenant}"
      type: ducklake
      catalog: "./lakes/{tenant}.ducklake"
      data_path: "./lakes/{tenant}"
      route: "{tenant}"
      for_each: {file: tenants.csv}
```

- Relative paths are relative to the file. A file is at most 1 MiB of UTF-8 and one YAML document, without
  tags and merge keys. Text is what YAML 1.2 says: `no` and `2024-01-01` are text, `42` is a number until
  it stands in quotes.
- `${NAME}`, `${NAME:-default}` (also for an empty variable) and `${file:PATH}` (without the last line end)
  are replaced in values, after parsing, and give text; `$$` is a dollar. What they give is never shown in
  a message. Placeholders of `for_each` are replaced after that.
- A `for_each` file is CSV with a header. Each line gives one sink; its name must be unique. An empty line,
  a line twice, or an empty value that is needed is an error. A line taken out retires its sink, also
  while the pipeline runs: the data stays.
- Durations are a whole number and `ms`, `s`, `m` or `h`; sizes a whole number and `KiB`, `MiB`, `GiB` or
  `TiB`.
- A sink without `route` gets all rows. A table without `route_by` at a sink with a `route` is an error
  unless it says `broadcast: true`. NULL matches no route.
"""

if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(FOLDER.parent))
