"""`truecut schema`, checked by a validator that is not pydantic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.commands import truecut
from tests.config.json_schema import violations
from tests.config.pipelines import MINIMAL, VALID, changed

ROOT = Path(__file__).parent.parent.parent

# The first example of the interface, to the letter.
EXAMPLE = """\
apiVersion: truecut/v1
kind: Pipeline
metadata:
  name: tenants
spec:
  source:
    type: ducklake
    catalog: ./source.ducklake      # a DuckDB file; or sqlite:PATH; or postgres:CONNINFO
    data_path: ./source-data        # where the catalog does not already know it
  tables:
    - name: main.events             # schema.table, split at the first dot
      key: [id]                     # default: the primary key, where the source knows one
      route_by: tenant              # optional: the column whose value chooses the sink
  sinks:
    - name: acme
      type: ducklake
      catalog: ./acme.ducklake      # created when it does not exist
      data_path: ./acme-data
      route: acme                   # rows whose route_by equals this; left out: all rows
    - name: "t-{tenant}"            # one sink for each line of a file
      type: ducklake
      catalog: "./lakes/{tenant}.ducklake"
      data_path: "./lakes/{tenant}"
      route: "{tenant}"
      for_each: {file: tenants.csv} # header names are the placeholders
      mode: mirror                  # mirror (default): the same rows as the source; append: one row for each change
"""  # noqa: E501


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command prints."""
    result = truecut("schema", cwd=tmp_path_factory.mktemp("schema"))
    assert (result.returncode, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_the_schema_is_the_published_one(schema: dict[str, Any]) -> None:
    """The command and docs/pipeline.schema.json agree; the dialect is draft 2020-12."""
    assert schema == json.loads((ROOT / "docs" / "pipeline.schema.json").read_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    "text",
    [
        EXAMPLE,
        VALID,
        MINIMAL,
        MINIMAL + "  batch: {interval: '${I}', bytes_max: 1GiB}\n  spark: {conf: {a: 1, b: true, c: x}}\n",
    ],
)
def test_right_files_satisfy_the_schema(schema: dict[str, Any], text: str) -> None:
    """What the loader accepts, an editor accepts."""
    assert violations(schema, yaml.safe_load(text), schema) == []


@pytest.mark.parametrize(
    ("old", "new", "violation"),
    [
        ("route: acme", "rout: acme", "$.spec.sinks[0].rout: additionalProperties"),
        ("route: acme", "route: 42", "$.spec.sinks[0].route: anyOf"),
        ("mode: mirror", "mode: history", "$.spec.sinks[1].mode: enum"),
        ("type: ducklake\n    catalog", "type: postgres\n    catalog", "$.spec.source.type: const"),
        ("  name: tenants", "  name: ten ants", "$.metadata.name: pattern"),
        ("kind: Pipeline\n", "", "$.kind: required"),
        ("spec:\n", "spec:\n  batch: {interval: 2 s}\n", "$.spec.batch.interval: pattern"),
        ("spec:\n", "spec:\n  batch: {rows_max: 0}\n", "$.spec.batch.rows_max: minimum"),
        ("spec:\n", "spec:\n  maintenance: {}\n", "$.spec.maintenance: additionalProperties"),
    ],
)
def test_wrong_files_break_the_schema(schema: dict[str, Any], old: str, new: str, violation: str) -> None:
    """What is wrong with the shape of a file, an editor finds, too."""
    assert violations(schema, yaml.safe_load(changed(VALID, old, new)), schema) == [violation]


def test_every_setting_is_described(schema: dict[str, Any]) -> None:
    """An editor can say what each setting means."""
    sections = {"file": schema, **schema["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, section in sections.items()
        for key, setting in section["properties"].items()
        if not setting.get("description") and not {"$ref", "oneOf"} & setting.keys()
    ]
    assert silent == []
    assert [name for name, section in sections.items() if not section.get("description")] == []
