"""Thousands of tenants in one PostgreSQL, each in a schema of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import truecut
from tests.e2e.world import World
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import pipeline_document

MADE = (
    "CREATE TABLE events (id int PRIMARY KEY, tenant text, n int, note text)",
    "ALTER TABLE events REPLICA IDENTITY FULL",
)
CHANGED = (
    "UPDATE events SET n = n + 1 WHERE id % 3 = 0",
    "DELETE FROM events WHERE id % 7 = 0",
    "UPDATE events SET tenant = 't' || (id % {tenants}) WHERE id % 5 = 0",
    "INSERT INTO events SELECT -i, 't' || i, i, 'later' FROM generate_series(0, {tenants} - 1) i",
)


@pytest.mark.parametrize("tenants", [pytest.param(2_000, marks=pytest.mark.soak)])
def test_thousands_of_schemas(tmp_path: Path, postgres: PostgresServer, tenants: int) -> None:
    """Each has its share of the source, after a copy and after changes that move rows between them; compared
    by one query over all schemas."""
    source, target = postgres.create_database("many_from"), postgres.create_database("many_to")
    with psycopg.connect(source, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(statement.encode())
        rows = (
            f"SELECT i, 't' || (i / 5 % {tenants}), i, 'note ' || i FROM generate_series(1, {5 * tenants}) i"
        )
        connection.execute(f"INSERT INTO events {rows}".encode())
    (tmp_path / "tenants.csv").write_text("\n".join(["tenant", *(f"t{n}" for n in range(tenants))]))
    sink: dict[str, Any] = {"name": "{tenant}", "type": "postgres", "dsn": target, "schema": "of_{tenant}"}
    sink |= {"route": "{tenant}", "for_each": {"file": "tenants.csv"}}
    tables = [{"name": "public.events", "route_by": "tenant"}]
    world = World(tmp_path, None, pipeline_document("many", source, tables, sinks=[sink]))
    world.save()
    with dropped_slots(source):
        for changes in ((), CHANGED):
            with psycopg.connect(source, autocommit=True) as connection:
                for statement in changes:
                    connection.execute(statement.format(tenants=tenants).encode())
            finished = truecut("run", world.file, "--until-caught-up")
            assert finished.code == 0, finished.stderr[-2000:]
            _assert_shares(source, target, tenants)


def _assert_shares(source: str, target: str, tenants: int) -> None:
    """Every row is in its tenant's schema, and nowhere else."""
    every = " UNION ALL ".join(f"SELECT 't{n}', * FROM of_t{n}.events" for n in range(tenants))
    with psycopg.connect(source) as there, psycopg.connect(target) as here:
        found = here.execute(every.encode()).fetchall()
        expected = there.execute("SELECT tenant, * FROM events").fetchall()
    assert len({row[0] for row in expected}) == tenants
    assert sorted(found) == sorted(expected)
