"""What is said to users of every kind of source and sink is said in words that all of them have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import truecut
from truecut.config.kinds import SINKS, SOURCES

ROOT = Path(truecut.__file__).parent
ONE_KINDS = re.compile(r"snapshots? |catalog|wal_budget|DuckDB")  # words that only some of them have


def _said(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are sentences: neither docstrings nor names of fields."""
    texts = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.value


@pytest.mark.parametrize("part", ["runtime", "spark", "serving"])
def test_what_serves_every_kind_has_no_word_of_one(part: str) -> None:
    """Snapshots, catalogs and logs are of a kind, and told by it."""
    found = {
        (str(path.relative_to(ROOT)), text)
        for path in (ROOT / part).rglob("*.py")
        for text in _said(ast.parse(path.read_text()))
        if " " in text and ONE_KINDS.search(text)
    }
    assert found == set()


def test_every_kind_has_words_of_its_own() -> None:
    """A PostgreSQL is told nothing of a lake."""
    keep = {name: SOURCES[name].words.keep for name in SOURCES.names}
    assert len(set(keep.values())) == len(keep)
    assert (SOURCES["ducklake"].words.commits, SOURCES["postgres"].words.commits) == (
        "snapshots",
        "transactions",
    )
    assert {name: SINKS[name].holder for name in SINKS.names} == {"ducklake": "catalog", "postgres": "schema"}
