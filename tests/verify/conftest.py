"""Sinks of both kinds, and a copy there that is certified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.verify.at_sinks import (
    ROW,
    TYPES,
    Case,
    DatabaseSink,
    LakeSink,
    Sink,
    Typed,
    a_row,
    certified,
    numbers,
)
from tests.verify.issuer import World


@pytest.fixture(params=["ducklake", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Sink:
    """An empty one."""
    if request.param == "postgres":
        found: Sink = DatabaseSink(postgres.create_database(f"audited_{next(numbers)}"))
        found.run("CREATE SCHEMA main")
        return found
    return LakeSink(f"{request.param}:{tmp_path / 'lake.catalog'}")


@pytest.fixture
def case(sink: Sink, tmp_path: Path) -> Case:
    """Five rows at a sink, certified."""
    world = World(tmp_path / "certificates", [Typed("main.t", "lake")])
    world.base(world.copies[0], [a_row(n) for n in range(5)], upto=7)
    columns = ", ".join(f'"{name}" {kind}' for name, _, _, _, kind in TYPES)
    return certified(world, sink, tmp_path, columns, [(ROW, list(a_row(n).values())) for n in range(5)])
