"""Rows come in the columns of the window's end; columns are known by id; tables by uuid."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.errors import Retry
from truecut.model.change import CONTROL_NAMES, OP, PLACE
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead, Window, WindowLimits
from truecut.sources.ducklake import schema
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.window import HISTORY_GONE

TABLE = TableRead(TableName("main", "t"), ("id",), None)
OTHER = TableRead(TableName("main", "other"), ("id",), None)
FLUSH = "CALL ducklake_flush_inlined_data('lake')"


def plan(source: DuckLakeSource, *tables: TableRead, after: int, mode: Mode = "mirror") -> Window:
    return source.plan_window(
        {table.name: (table, Position(1, after), frozenset({mode})) for table in tables or (TABLE,)},
        upto_max=source.observe().head,
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
        parallelism=1,
    )


def rows(window: Window) -> list[tuple[int, int, dict[str, Any]]]:
    """(place, operation, the row)."""
    found = changes_of(batch for task in window.tasks for _, batch in task.read())
    return sorted(
        (
            (row[PLACE], row[OP], {name: v for name, v in row.items() if name not in CONTROL_NAMES})
            for row in found
        ),
        key=repr,
    )


def opened(writer: LakeWriter) -> DuckLakeSource:
    writer.release()
    return DuckLakeSource(writer.address, generation=1)


@pytest.mark.parametrize("maintenance", [None, FLUSH], ids=["feed", "difference"])
def test_added_dropped_and_widened_columns(make_lake: MakeLake, maintenance: str | None) -> None:
    """All rows of a window have the columns of its end: added ones with their initial value, dropped ones
    gone, widened ones wide; an ALTER by itself changes no row."""
    writer = make_lake(inlining=10)
    writer.run("CREATE TABLE t (id INTEGER, gone VARCHAR, n INTEGER)")
    writer.run("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    start = writer.head()
    writer.run(
        "UPDATE t SET n = 10 WHERE id = 1",
        "ALTER TABLE t ADD COLUMN added VARCHAR DEFAULT 'it''s'",
        "ALTER TABLE t DROP COLUMN gone",
        "ALTER TABLE t ALTER n SET DATA TYPE BIGINT",
        "INSERT INTO t VALUES (3, 3000000000, NULL)",
    )
    if maintenance:
        writer.run(maintenance)
    window = plan(opened(writer), after=start, mode="append")
    assert [(c.name, c.type, c.initial) for c in window.schemas[TABLE.name].columns] == [
        ("id", "INTEGER", None),
        ("n", "BIGINT", None),
        ("added", "VARCHAR", "'it''s'"),
    ]
    assert rows(window) == [
        (start + 1, 2, {"id": 1, "n": 10, "added": "it's"}),
        (start + 5, 1, {"id": 3, "n": 3000000000, "added": None}),
    ]


@pytest.mark.parametrize("maintenance", [None, FLUSH], ids=["feed", "difference"])
def test_a_column_dropped_and_added_again_is_another_column(
    make_lake: MakeLake, maintenance: str | None
) -> None:
    """Same name, new id: what the old one held is not what the new one holds."""
    writer = make_lake(inlining=10)
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)", "INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    start = writer.head()
    before = opened(writer).describe(TABLE, at=Position(1, start)).column("v")
    writer.run(
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t ADD COLUMN v VARCHAR DEFAULT 'new'",
        "UPDATE t SET v = 'newer' WHERE id = 2",
    )
    if maintenance:
        writer.run(maintenance)
    window = plan(opened(writer), after=start, mode="append")
    after = window.schemas[TABLE.name].column("v")
    assert before is not None
    assert after is not None
    assert before.id != after.id
    assert rows(window) == [(start + 3, 2, {"id": 2, "v": "newer"})]


def test_a_rename_keeps_the_id(make_lake: MakeLake) -> None:
    """The sink decides what a rename means; here the id says that it is one."""
    writer = make_lake()
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)")
    start = writer.head()
    source = opened(writer)
    before = source.describe(TABLE, at=Position(1, start)).column("v")
    writer.run("ALTER TABLE t RENAME COLUMN v TO w", "INSERT INTO t VALUES (1, 'x')")
    window = plan(opened(writer), after=start)
    after = window.schemas[TABLE.name].column("w")
    assert before is not None
    assert after is not None
    assert before.id == after.id
    assert [row for _, _, row in rows(window)] == [{"id": 1, "w": "x"}]


def test_a_key_column_that_goes_holds_the_table_and_no_other(make_lake: MakeLake) -> None:
    """One table's fault; the others go on in the same window."""
    writer = make_lake()
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)", "CREATE TABLE other (id INTEGER)")
    start = writer.head()
    writer.run("ALTER TABLE t DROP COLUMN id", "INSERT INTO other VALUES (7)")
    window = plan(opened(writer), TABLE, OTHER, after=start)
    assert {name: fault.code for name, fault in window.faults.items()} == {TABLE.name: schema.COLUMN_MISSING}
    assert [row for _, _, row in rows(window)] == [{"id": 7}]


def test_a_dropped_table_is_delivered_up_to_the_drop(make_lake: MakeLake) -> None:
    """First everything before the drop, then the fault; the other table is not disturbed."""
    writer = make_lake()
    writer.run("CREATE TABLE t (id INTEGER)", "CREATE TABLE other (id INTEGER)")
    start = writer.head()
    writer.run("INSERT INTO t VALUES (1)", "DROP TABLE t", "INSERT INTO other VALUES (7)")
    source = opened(writer)
    first = plan(source, TABLE, OTHER, after=start)
    assert first.upto == Position(1, start + 1)
    assert not first.faults
    assert rows(first) == [(start + 1, 1, {"id": 1})]
    second = plan(source, TABLE, OTHER, after=start + 1)
    assert {name: fault.code for name, fault in second.faults.items()} == {TABLE.name: schema.TABLE_MISSING}
    assert rows(second) == [(start + 3, 1, {"id": 7})]


def test_a_table_created_anew_is_not_the_same_table(make_lake: MakeLake) -> None:
    """Same name, other uuid: its history does not continue the old one's."""
    writer = make_lake()
    writer.run("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1)")
    start = writer.head()
    writer.run("CREATE OR REPLACE TABLE t AS SELECT 2 AS id")
    window = plan(opened(writer), after=start)
    fault = window.faults[TABLE.name]
    assert (fault.code, fault.retry) == (schema.TABLE_REPLACED, Retry.NOT_RETRYABLE)
    assert not window.tasks


def test_an_unsupported_column_holds_the_table(make_lake: MakeLake) -> None:
    """A type that cannot be copied exactly stops the table when it appears, not before."""
    writer = make_lake()
    writer.run("CREATE TABLE t (id INTEGER)")
    start = writer.head()
    writer.run("INSERT INTO t VALUES (1)", "ALTER TABLE t ADD COLUMN v INTERVAL")
    window = plan(opened(writer), after=start)
    assert window.faults[TABLE.name].code == schema.TYPE_UNSUPPORTED


def test_a_place_that_was_expired_holds_the_table(make_lake: MakeLake) -> None:
    """Across a gap nothing is read: the snapshot we stand at is gone, in the middle of the others."""
    writer = make_lake()
    writer.run("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    start = writer.head()
    writer.run("INSERT INTO t VALUES (3)", f"CALL ducklake_expire_snapshots('lake', versions => [{start}])")
    window = plan(opened(writer), after=start)
    assert window.faults[TABLE.name].code == HISTORY_GONE
    assert not window.tasks
