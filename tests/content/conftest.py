"""Worlds for the tests of content: a source, two tenants, no Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.content.at_hand import without_spark
from tests.content.mirrors import Mirrors
from tests.postgres_server import PostgresServer

KINDS = ("duckdb", "sqlite", "postgres")
_numbers = itertools.count(1)

MakeMirrors = Callable[..., Mirrors]


@pytest.fixture
def make_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> MakeMirrors:
    """`make_mirrors()`, `make_mirrors(source="postgres", sinks="duckdb", mode="append")`."""
    without_spark(monkeypatch)

    def catalog(kind: str, name: str) -> str:
        if kind == "postgres":  # started only where it is asked for
            server: PostgresServer = request.getfixturevalue("postgres")
            return "postgres:" + server.create_database(f"content_{name}_{next(_numbers)}")
        return f"sqlite:{name}.db" if kind == "sqlite" else f"{name}.ducklake"

    def make(*, source: str = "sqlite", sinks: str = "sqlite", **how: Any) -> Mirrors:
        folder = tmp_path / str(next(_numbers))
        folder.mkdir()
        routes = how.pop("routes", {"a": "a", "b": "b"})
        catalogs = {name: catalog(sinks, name) for name in routes}
        return Mirrors(folder, source=catalog(source, "source"), catalogs=catalogs, routes=routes, **how)

    return make
