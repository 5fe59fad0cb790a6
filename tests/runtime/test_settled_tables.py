"""Which tables a file means, once the source has said which there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sources.postgres.piped import pipeline_document
from truecut.config.beginning import FoundTable
from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.runtime.settled_tables import settle, settled

FOUND = [
    FoundTable("public", "lines", ("a", "b"), ("b", "a")),
    FoundTable("public", "orders", ("id", "v"), ("id",)),
    FoundTable("public", "tmp_1", ("id",), ("id",)),
    FoundTable("other", "orders", ("id",), ()),
]


def pipeline(folder: Path, tables: list[dict[str, Any]], **sink: Any) -> Pipeline:
    sinks = [{"name": "s", "type": "postgres", "dsn": "host=sink dbname=d", **sink}]
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(pipeline_document("shop", "host=source dbname=d", tables, sinks=sinks)))
    return load(file, environ=os.environ)


def test_wildcards_and_keys_are_what_the_source_says(tmp_path: Path) -> None:
    """An exact name beats a wildcard, with its own settings; what is excluded is left out; a key that the
    file names stays; sinks carry the tables in the mode that they have for the name in the file."""
    written = [
        {"name": "public.*", "exclude": ["public.tmp_*"], "backfill": "none"},
        {"name": "public.orders", "key": ["v"]},
    ]
    found = settle(pipeline(tmp_path, written, mode="append"), FOUND)
    assert [(str(table.name), table.key, table.backfill) for table in found.tables] == [
        ("public.lines", ("b", "a"), "none"),
        ("public.orders", ("v",), "initial"),
    ]
    assert found.sinks[0].modes == {"public.lines": "append", "public.orders": "append"}
    assert found.source.tables == found.tables


def test_two_tables_of_one_name_at_a_sink_are_refused(tmp_path: Path) -> None:
    """Which only the source's tables show; and so are wildcards that match nothing at all."""
    with pytest.raises(TruecutError, match="TC1093"):
        settle(pipeline(tmp_path, [{"name": "*.orders"}], schema="one"), FOUND)
    with pytest.raises(TruecutError, match="TC1092"):
        settle(pipeline(tmp_path, [{"name": "no.*"}]), FOUND)


def test_a_file_that_names_everything_asks_nobody(tmp_path: Path) -> None:
    """There is no server at that address."""
    written = pipeline(tmp_path, [{"name": "public.orders", "key": ["id"]}])
    assert settled(written) is written
