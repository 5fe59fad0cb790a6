"""Mirrors end to end: whatever the source does, every sink equals its share, row for row."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from tests.e2e.world import Rows, World, tenants_document
from tests.postgres_server import PostgresServer

MakeWorld = Callable[[dict[str, Any]], World]
CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR, v DECIMAL(18, 2))"


def fill(count: int, tenants: int = 3) -> str:
    return f"INSERT INTO lake.main.events SELECT i, 't' || (i % {tenants}), i * 1.5 FROM range({count}) r(i)"


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "postgres"])
def test_a_table_is_routed_to_tenants_on_every_kind_of_catalog(
    kind: str, make_world: MakeWorld, postgres: PostgresServer
) -> None:
    """Seed, then updates, deletes, changed keys and changed routes; source and sinks of one kind."""
    if kind == "postgres":
        names = {name: postgres.create_database(f"mirror_{name}") for name in ("source", "t0", "t1", "t2")}
        document = tenants_document(tenants=["t0", "t1", "t2"], source=f"postgres:{names['source']}")
        for sink in document["spec"]["sinks"]:
            sink["catalog"] = f"postgres:{names[sink['name']]}"
    else:
        prefix = "sqlite:" if kind == "sqlite" else ""
        document = tenants_document(
            tenants=["t0", "t1", "t2"], source=f"{prefix}source.db", catalog=prefix + "{tenant}.db"
        )
    world = make_world(document)
    world.source(CREATE, fill(900))
    assert world.catch_up().reached
    world.assert_mirrors()
    world.source(
        "UPDATE lake.main.events SET v = v + 1 WHERE id % 10 = 0",
        "DELETE FROM lake.main.events WHERE id < 50",
        "UPDATE lake.main.events SET tenant = 't0' WHERE id BETWEEN 100 AND 120",
        "UPDATE lake.main.events SET id = id + 10000 WHERE id BETWEEN 200 AND 210",
        "INSERT INTO lake.main.events VALUES (1, 't1', 7), (2, 'nobody', 8), (3, NULL, 9)",
    )
    assert world.catch_up().reached
    world.assert_mirrors()


def test_random_churn_with_maintenance_stays_equal(make_world: MakeWorld) -> None:
    """Random operations, several in a transaction, and random maintenance of source and tenants. All of it is
    read as changes: nothing is seeded anew but for what the source has let expire."""
    rng = random.Random(20260101)
    world = make_world(tenants_document(tenants=["t0", "t1", "t2"]))
    world.source(CREATE, fill(60))
    assert world.catch_up().reached
    for _ in range(8):
        seeds, expired = _seeds(world), False
        for _ in range(rng.randint(1, 4)):
            world.source(_random_transaction(rng))
        if rng.random() < 0.5:
            upkeep = rng.choice(MAINTENANCE)
            expired = "expire" in upkeep
            world.source(upkeep)
        if rng.random() < 0.5:
            world.tenant(rng.choice(["t0", "t1", "t2"]), rng.choice(MAINTENANCE))
        assert world.catch_up().reached
        world.assert_mirrors()
        assert expired or _seeds(world) == seeds, "seeded anew, though nothing had expired"


def _seeds(world: World) -> int:
    """How many the traces tell of."""
    return sum(path.read_text().count('"StartSeed"') for path in world.traces.glob("*.jsonl"))


MAINTENANCE = [
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
]


def _random_transaction(rng: random.Random) -> str:
    return "BEGIN; " + "; ".join(_random_operation(rng) for _ in range(rng.randint(1, 3))) + "; COMMIT"


def _random_operation(rng: random.Random) -> str:
    low = rng.randint(0, 80)
    some = f"id BETWEEN {low} AND {low + rng.randint(0, 15)}"
    fresh = rng.randint(1000, 9_999_999)
    return rng.choice(
        [
            f"UPDATE lake.main.events SET v = {rng.random()} WHERE {some}",
            f"UPDATE lake.main.events SET tenant = 't{rng.randint(0, 3)}' WHERE {some}",
            f"DELETE FROM lake.main.events WHERE {some}",
            f"INSERT INTO lake.main.events SELECT i, 't' || (i % 4), {rng.random()}"
            f" FROM range({low}, {low + 9}) r(i) WHERE i NOT IN (SELECT id FROM lake.main.events)",
            f"UPDATE lake.main.events SET id = {fresh} WHERE id = {low}",
            f"MERGE INTO lake.main.events e USING (SELECT unnest(range({low}, {low + 5})) AS id) s"
            f" ON e.id = s.id WHEN MATCHED THEN UPDATE SET v = {rng.random()}"
            " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 't' || (s.id % 3), 0)",
        ]
    )


@pytest.mark.parametrize("limit", [{"rows_max": 50}, {"bytes_max": "2KiB"}], ids=["rows", "bytes"])
def test_windows_end_before_the_head_and_never_split_a_snapshot(
    make_world: MakeWorld, limit: dict[str, Any]
) -> None:
    """A backlog is cut by rows or by bytes into several waves; whatever a tenant can ever read is something
    that the source was, also of a transaction larger than a window."""
    world = make_world(tenants_document(tenants=["t0"], batch={"interval": "100ms", **limit}))
    world.source(CREATE)
    assert world.catch_up().reached
    world.source(*(_insert(n * 40, 40) for n in range(3)))
    world.source(f"BEGIN; {_insert(1000, 300)}; DELETE FROM lake.main.events WHERE id < 60; COMMIT")
    world.source(*(_insert(n * 40, 40) for n in range(3, 6)))
    assert world.catch_up().reached
    world.assert_mirrors()
    states = every_state(world.sink_rows, "t0", "main.events")
    assert len(states) >= 5, "the backlog came in several waves"
    assert_states_of_the_source(world, states, "main.events")


def _insert(first: int, count: int) -> str:
    text = "INSERT INTO lake.main.events SELECT i, 't0', i * 0.5 FROM range({}, {}) r(i)"
    return text.format(first, first + count)


def every_state(read: Callable[..., Rows], name: str, *tables: str) -> list[tuple[Rows, ...]]:
    """What these tables of a lake were in each of its versions, one after another, without repetitions."""
    states: list[tuple[Rows, ...]] = []
    for (version,) in read(name, "SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY ALL"):
        try:
            now = tuple(
                read(name, f"FROM lake.{table} AT (VERSION => {version}) ORDER BY ALL") for table in tables
            )
        except duckdb.Error:  # the tables were not there yet
            continue
        if not states or states[-1] != now:
            states.append(now)
    return states


def assert_states_of_the_source(world: World, states: list[tuple[Rows, ...]], *tables: str) -> None:
    """Each is a state that the source had, and they came in the source's order."""
    history = iter(every_state(lambda _, query: world.source_rows(query), "", *tables))
    for state in states:
        assert any(state == past for past in history), "a state that the source never had, or too late"


def test_an_unchanged_pipeline_has_nothing_to_do(make_world: MakeWorld) -> None:
    """A second run finds everything where it was: no row is written again."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(100, 2))
    assert world.catch_up().reached
    before = world.sink_rows(
        "t0", "SELECT max(begin_snapshot) FROM __ducklake_metadata_lake.ducklake_data_file"
    )
    assert world.catch_up().reached
    assert before == world.sink_rows(
        "t0", "SELECT max(begin_snapshot) FROM __ducklake_metadata_lake.ducklake_data_file"
    )
    world.assert_mirrors()


def test_several_tables_advance_together(make_world: MakeWorld) -> None:
    """One transaction over two tables is visible at the sink as one."""
    document = tenants_document(tenants=["t0"])
    document["spec"]["tables"].append({"name": "main.lines", "key": ["id", "n"], "broadcast": True})
    world = make_world(document)
    world.source(CREATE, "CREATE TABLE lake.main.lines (id INTEGER, n INTEGER, text VARCHAR)")
    world.source(
        *(
            f"BEGIN; INSERT INTO lake.main.events VALUES ({i}, 't0', 0);"
            f" INSERT INTO lake.main.lines VALUES ({i}, 1, 'x'), ({i}, 2, 'y'); COMMIT"
            for i in range(5)
        )
    )
    assert world.catch_up().reached
    world.assert_mirrors()
    world.assert_mirrors_whole("main.lines")
    world.source("BEGIN; UPDATE lake.main.events SET v = 1; DELETE FROM lake.main.lines WHERE n = 1; COMMIT")
    assert world.catch_up().reached
    world.assert_mirrors()
    world.assert_mirrors_whole("main.lines")
    states = every_state(world.sink_rows, "t0", "main.events", "main.lines")
    assert len(states) >= 2
    assert_states_of_the_source(world, states, "main.events", "main.lines")
