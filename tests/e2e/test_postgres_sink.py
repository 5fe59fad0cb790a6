"""A lake into PostgreSQL, by the command as a user runs it; compared by psycopg with what DuckDB reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from tests.e2e.process import run, running, truecut
from tests.e2e.world import Rows, World, eventually, tenants_document
from tests.postgres_server import PostgresServer

COLUMNS = "id, tenant, payload, amount, ratio, stamp"
MADE = (
    "CREATE TABLE lake.main.events (id BIGINT, tenant VARCHAR, payload VARCHAR, amount DECIMAL(12,3), "
    "ratio DOUBLE, stamp TIMESTAMP WITH TIME ZONE)"
)
VALUES = "'p' || n, n / 8, n / 3.0::DOUBLE, '2026-01-01 00:00:00+00'::TIMESTAMPTZ + to_seconds(n)"


def make_world(folder: Path, dsn: str) -> World:
    """Tenant north in a schema of its own, south as an append table, everything once more in a lake."""
    document = tenants_document(tenants=["lake"], catalog="sqlite:{tenant}.db")
    (lake,) = document["spec"]["sinks"]
    del lake["route"]
    document["spec"]["sinks"] += [
        {"name": "north", "type": "postgres", "dsn": dsn, "schema": "North", "route": "north"},
        {
            "name": "south",
            "type": "postgres",
            "dsn": dsn,
            "schema": "south",
            "route": "south",
            "mode": "append",
        },
    ]
    world = World(folder, None, document)
    world.save()
    return world


def insert(first: int, count: int) -> str:
    tenant = "CASE n % 3 WHEN 0 THEN 'north' WHEN 1 THEN 'south' ELSE 'nobody' END"
    return (
        f"INSERT INTO lake.main.events SELECT n, {tenant}, {VALUES} FROM range({first}, {first + count}) r(n)"
    )


def rows_at(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(sql.encode()).fetchall()


def share(world: World, tenant: str) -> Rows:
    return world.source_rows(f"SELECT {COLUMNS} FROM lake.main.events WHERE tenant = '{tenant}' ORDER BY id")


def test_a_lake_flows_into_postgres(tmp_path: Path, postgres: PostgresServer) -> None:
    """Checked before, run, killed -9 in the middle, run again: each table is its share of the source, and
    the append table tells each change once. No output holds a word of the address."""
    dsn = postgres.create_database("flows") + " password=hush"
    world = make_world(tmp_path, dsn)
    world.source(MADE, insert(0, 300))
    checked = [truecut(command, world.file) for command in ("validate", "doctor", "plan")]
    assert [one.code for one in checked] == [0, 0, 0], checked
    with running(world) as process:
        eventually(
            lambda: rows_at(dsn, "SELECT to_regclass('\"North\".events') IS NOT NULL") == [(True,)],
            what="the first seed",
        )
        for number in range(6):
            world.source(
                insert(300 + 30 * number, 30),
                f"UPDATE lake.main.events SET payload = 'v{number}' WHERE id % 7 = {number}",
                f"DELETE FROM lake.main.events WHERE id % 31 = {number}",
            )
            if number == 3:
                process.kill()
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    assert rows_at(dsn, f'SELECT {COLUMNS} FROM "North".events ORDER BY id') == share(world, "north")
    latest = (
        f"SELECT {COLUMNS} FROM (SELECT DISTINCT ON (id) * FROM south.events "
        "ORDER BY id, _truecut_position DESC, _truecut_seq DESC) e WHERE _truecut_op <> 'delete' ORDER BY id"
    )
    assert rows_at(dsn, latest) == share(world, "south")
    once = "SELECT count(*) - count(DISTINCT (_truecut_position, _truecut_seq)) FROM south.events"
    assert rows_at(dsn, f"{once} WHERE _truecut_op <> 'read'") == [(0,)]
    assert world.sink_rows(
        "lake", f"SELECT {COLUMNS} FROM lake.main.events ORDER BY id"
    ) == world.source_rows(f"SELECT {COLUMNS} FROM lake.main.events ORDER BY id")
    status = truecut("status", world.file)
    said = "".join(one.stdout + one.stderr for one in (*checked, finished, status))
    traced = "".join(path.read_text() for path in world.traces.iterdir())
    assert status.code == 0, status
    assert "hush" not in said + traced
