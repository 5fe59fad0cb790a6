"""A busy PostgreSQL, copied and followed at once, stopped at places of its log: there, every sink is what a
plain SELECT shows under the snapshot of a slot that was made at that place; read by psql and plain DuckDB."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import run, running
from tests.e2e.trade import COLUMNS, TORN, Trade, trading
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import pipeline_document

TABLES = [
    {"name": "public.orders"},
    {"name": "public.lines"},
    {"name": "public.items"},
    {"name": "public.pairs"},
]


def make_world(folder: Path, name: str, source: str, target: str, **spec: Any) -> World:
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "./lake.ducklake", "data_path": "./lake-data"},
        {"name": "warehouse", "type": "postgres", "dsn": target, "schema": "shop"},
    ]
    document = pipeline_document(name, source, TABLES, sinks=sinks, lease={"duration": "5s"}, **spec)
    document["spec"] |= {"batch": {"interval": "100ms"}, "state": "./state"}
    world = World(folder, None, document)
    world.save()
    return world


def content(
    source: psycopg.Connection[Any], of: Mapping[str, str] = COLUMNS
) -> dict[str, list[tuple[Any, ...]]]:
    """What a session at the source sees."""
    assert source.execute(TORN.format("").encode()).fetchone() == (0,)
    return {
        table: sorted(source.execute(f"SELECT {columns} FROM {table}".encode()).fetchall(), key=repr)
        for table, columns in of.items()
    }


def texts(source: psycopg.Connection[Any], of: Mapping[str, str] = COLUMNS) -> dict[str, str]:
    """The same, as the server writes it."""
    found = {}
    for table, columns in of.items():
        rows = source.execute(f"SELECT ROW({columns})::text FROM {table} ORDER BY 1".encode()).fetchall()
        found[table] = "\n".join(row[0] for row in rows)
    return found


def assert_sinks_are(
    world: World,
    postgres: PostgresServer,
    target: str,
    source: psycopg.Connection[Any],
    of: Mapping[str, str] = COLUMNS,
) -> None:
    """Both mirrors, bit for bit."""
    seen, written = content(source, of), texts(source, of)
    for table, columns in of.items():
        plain = f"SET TimeZone = 'UTC'; SELECT ROW({columns})::text FROM shop.{table} ORDER BY 1"
        assert postgres.psql(plain, database=target) == written[table], table
        lake = world.sink_rows("lake", f"SELECT {columns.replace('::text', '')} FROM lake.public.{table}")
        assert list(map(repr, sorted(lake, key=repr))) == list(map(repr, seen[table])), table


def all_units_are_read(folder: Path) -> bool:
    """Every table was planned, and each of its units has a record."""
    newest: dict[Path, Path] = {}
    for plan in sorted((folder / "state" / "units").glob("*/*/plan.json")):
        newest[plan.parent.parent] = plan
    return len(newest) == len(TABLES) and all(
        len(list(plan.parent.glob("0*.json"))) == len(_plan(plan)["bounds"]) + 1 for plan in newest.values()
    )


def _plan(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["plan"]
    return found


def stopped_at_a_frontier(
    world: World,
    postgres: PostgresServer,
    trade: Trade,
    target: str,
    of: Mapping[str, str] = COLUMNS,
) -> None:
    """Take a place of the log while everybody writes on, stop the sinks there, and compare."""
    with trade.frontier() as (lsn, seen):
        stopped = run(world, "--until-position", lsn)
        assert stopped.code == 0, stopped.stderr
        assert_sinks_are(world, postgres, target, seen, of)


def test_a_copy_is_the_source_at_a_frontier(tmp_path: Path, postgres: PostgresServer) -> None:
    """Killed -9 once every table was read, with some of them delivered or none; stopped at a place of the log
    that came later, while everybody goes on writing: each sink is the source there, over all tables, to the
    last bit, and holds no half of a transaction."""
    source, target = postgres.create_database("frontier_from"), postgres.create_database("frontier_to")
    world = make_world(tmp_path, "frontier", source, target)
    with dropped_slots(source), trading(source, seed=11) as trade:
        with running(world) as process:
            eventually(lambda: all_units_are_read(tmp_path), pause_s=0.05, what="every table was read")
            process.kill()
        stopped_at_a_frontier(world, postgres, trade, "frontier_to")


@pytest.mark.parametrize(
    ("seed", "frontiers"),
    [(23, 1), *(pytest.param(seed, 10, marks=pytest.mark.soak) for seed in (31, 41, 59))],
)
def test_frontiers_among_changes_of_columns(
    tmp_path: Path, postgres: PostgresServer, seed: int, frontiers: int
) -> None:
    """Stopped again and again, each time after columns came with a constant, were written to, and went: at
    each place every sink is the source, with the columns that it has there."""
    name = f"columns_{seed}_{frontiers}"
    source, target = postgres.create_database(name), postgres.create_database(f"{name}_to")
    world = make_world(tmp_path, name, source, target)
    with dropped_slots(source), trading(source, seed=seed) as trade:
        assert run(world, "--until-caught-up").code == 0
        for number in range(frontiers):
            trade.change(
                f"ALTER TABLE orders ADD COLUMN e{number} int DEFAULT {number}",
                f"UPDATE orders SET e{number} = id WHERE id % 3 = 0",
                f"ALTER TABLE lines ADD COLUMN e{number} text DEFAULT 'none'",
                *([f"ALTER TABLE lines DROP COLUMN e{number - 1}"] if number else []),
                f"UPDATE lines SET e{number} = note WHERE n = 2",
            )
            more = ", ".join(f"e{one}" for one in range(number + 1))
            of = {
                **COLUMNS,
                "orders": f"{COLUMNS['orders']}, {more}",
                "lines": f"{COLUMNS['lines']}, e{number}",
            }
            stopped_at_a_frontier(world, postgres, trade, f"{name}_to", of)
