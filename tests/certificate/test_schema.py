"""The published schema of certificates, and what is issued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.config.json_schema import violations
from tests.verify.issuer import CopyOf, World
from truecut.certificate.issue import FORMAT, SCHEMA

DOCS = Path(__file__).parents[2] / "docs"
PUBLISHED: dict[str, Any] = json.loads((DOCS / "certificate.schema.json").read_text())


def violated(folder: Path) -> list[str]:
    """What breaks the schema in a folder of certificates: in the documents, and in their tables of copies."""
    found: list[str] = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_bytes())
        found += violations(PUBLISHED, document, PUBLISHED)
        for row in pq.read_table(folder / document["copies"]["file"]).to_pylist():
            told = row | {name: json.loads(row[name]) for name in ("key", "columns", "segments", "units")}
            told["root"] = None if row["root"] is None else row["root"].hex()
            found += violations(PUBLISHED["$defs"]["copy"], told, PUBLISHED)
    return found


def issued(folder: Path) -> World:
    """By an issuer of the tests' own: a base, then changes; one that is unknown."""
    copy = CopyOf("main.t", "lake")
    world = World(folder, [copy, CopyOf("main.u", "lake", verdict="unknown")])
    for one in world.copies:
        world.base(one, [{"id": 1, "v": "a"}], upto=1)
    world.certify()
    return world


def test_what_is_issued_is_of_the_schema(tmp_path: Path) -> None:
    """Every key that is issued is in the schema, under its version, and nothing else is."""
    issued(tmp_path)
    assert violated(tmp_path) == []
    assert set(SCHEMA.names) == set(PUBLISHED["$defs"]["copy"]["properties"])
    assert PUBLISHED["title"] == PUBLISHED["$defs"]["certificate"]["properties"]["format"]["const"] == FORMAT


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", "truecut.certificate/2"), ("number", 0), ("previous", "x"), ("more", 1), ("signature", "")],
)
def test_what_is_not_of_the_schema_is_found(key: str, value: object, tmp_path: Path) -> None:
    """Another version, a number, a hash, a key too many, a signature that is none."""
    issued(tmp_path)
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {key: value}))
    assert [one.split(":")[0] for one in violated(tmp_path)] == [f"$.{key}"]


def test_the_page_refers_to_it() -> None:
    """Whoever reads the format finds the schema."""
    assert "(certificate.schema.json)" in (DOCS / "certificate-format.md").read_text()
