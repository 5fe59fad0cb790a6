"""Append tables: one row for each change, exactly once, in commit order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.e2e.test_mirror import CREATE
from tests.e2e.world import World, tenants_document
from truecut.runtime.pauses import resume

MakeWorld = Callable[[dict[str, Any]], World]
LOG = "SELECT _truecut_op, id, tenant, v FROM lake.main.events ORDER BY _truecut_position, _truecut_seq, id"


def test_every_change_is_one_row(make_world: MakeWorld) -> None:
    """Seeded rows are reads; then inserts, updates and deletes with the values they had."""
    world = make_world(tenants_document(tenants=["t0", "t1"], mode="append"))
    world.source(CREATE, "INSERT INTO lake.main.events VALUES (1, 't0', 1), (2, 't1', 2)")
    assert world.catch_up().reached
    world.source(
        "INSERT INTO lake.main.events VALUES (3, 't0', 3)",
        "UPDATE lake.main.events SET v = 30 WHERE id = 3",
        "UPDATE lake.main.events SET tenant = 't1' WHERE id = 1",
        "UPDATE lake.main.events SET id = 33 WHERE id = 3",
        "DELETE FROM lake.main.events WHERE id = 2",
    )
    for _ in range(2):  # the second run must add nothing
        assert world.catch_up().reached
        assert world.sink_rows("t0", LOG) == [
            ("read", 1, "t0", 1.0),
            ("insert", 3, "t0", 3.0),
            ("update", 3, "t0", 30.0),
            ("delete", 1, "t0", 1.0),
            ("delete", 3, "t0", 30.0),
            ("insert", 33, "t0", 30.0),
        ]
        assert world.sink_rows("t1", LOG) == [
            ("read", 2, "t1", 2.0),
            ("insert", 1, "t1", 1.0),
            ("delete", 2, "t1", 2.0),
        ]


def test_position_and_sequence_are_unique_and_sort(make_world: MakeWorld) -> None:
    """`_truecut_position, _truecut_seq` together name a change; both are text of fixed width."""
    world = make_world(tenants_document(tenants=["t0"], mode="append"))
    world.source(CREATE, "INSERT INTO lake.main.events SELECT i, 't0', i FROM range(30) r(i)")
    assert world.catch_up().reached
    world.source("UPDATE lake.main.events SET v = -v - 1", "DELETE FROM lake.main.events WHERE id % 2 = 0")
    assert world.catch_up().reached
    rows = world.sink_rows("t0", "SELECT _truecut_position, _truecut_seq FROM lake.main.events")
    assert len(rows) == len(set(rows)) == 75
    assert len({(len(position), len(seq)) for position, seq in rows}) == 1


def test_an_append_table_is_repaired_after_a_rename(make_world: MakeWorld) -> None:
    """A column is renamed: the table is held, and the message says what to do. Done so, the table that it was
    stays under the tenant's name for it, and the one that is made anew goes on with the new column."""
    world = make_world(tenants_document(tenants=["t0"], mode="append"))
    world.source(CREATE, "INSERT INTO lake.main.events VALUES (1, 't0', 1)")
    assert world.catch_up().reached
    world.source(
        "ALTER TABLE lake.main.events RENAME COLUMN v TO w",
        "INSERT INTO lake.main.events VALUES (2, 't0', 2)",
    )
    assert "rename or drop it at the sink first, then resume it" in world.catch_up().stragglers["t0"]
    world.tenant("t0", "ALTER TABLE lake.main.events RENAME TO events_before")
    resume(world.pipeline().state, table="main.events")
    assert world.catch_up().reached
    world.source("UPDATE lake.main.events SET w = 3 WHERE id = 2")
    assert world.catch_up().reached
    columns = "SELECT _truecut_op, id, w FROM lake.main.events ORDER BY _truecut_position, _truecut_seq, id"
    assert world.sink_rows("t0", columns) == [("read", 1, 1.0), ("read", 2, 2.0), ("update", 2, 3.0)]
    assert world.sink_rows("t0", "SELECT id, v FROM lake.main.events_before") == [(1, 1.0)]
