"""The change feed as a task reads it: what it says of each key, how changes are numbered, when it is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.errors import Retry, TruecutError
from truecut.lake import connect
from truecut.model.change import DELETE, INSERT, OP, PLACE, SEQ, UPDATE
from truecut.model.position import Position
from truecut.model.table import Column, Mode, TableName, TableSchema
from truecut.sources.contract import TableRead, Window, WindowLimits
from truecut.sources.ducklake import tasks
from truecut.sources.ducklake.normal import SEQS_MAX
from truecut.sources.ducklake.schema import Shape
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.tasks import DifferenceTask, FeedTask

TABLE = TableRead(TableName("main", "t"), ("id",), "tenant")


def plan(writer: LakeWriter, *modes: Mode, after: int) -> Window:
    head = writer.head()
    writer.release()
    return DuckLakeSource(writer.address, generation=1).plan_window(
        {TABLE.name: (TABLE, Position(1, after), frozenset(modes or ("mirror",)))},
        upto_max=Position(1, head),
        limits=WindowLimits(rows_max=1_000_000, bytes_max=1 << 40),
        parallelism=1,
    )


def read(window: Window) -> list[tuple[Any, ...]]:
    """(place, seq within the table, operation, row) in order, all of them from feeds."""
    assert all(type(task) is FeedTask for task in window.tasks)
    rows = changes_of(batch for task in window.tasks for _, batch in task.read())
    return sorted(
        (row[PLACE], row[SEQ] % SEQS_MAX, row[OP], row["id"], row["tenant"], row["v"]) for row in rows
    )


@pytest.fixture
def lake(make_lake: MakeLake) -> LakeWriter:
    """Keys 1 to 6 of tenant a."""
    writer = make_lake("sqlite:source.sqlite", inlining=0)
    writer.run("CREATE TABLE t (id INTEGER, tenant VARCHAR, v INTEGER)")
    writer.run("INSERT INTO t SELECT i, 'a', i FROM range(1, 7) r(i)")
    return writer


def change_everything(lake: LakeWriter) -> int:
    """In one commit: delete 1, move 2, update 3, write 4 as it was, insert 0 and 9. Returns its snapshot."""
    lake.transaction(
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET tenant = 'b' WHERE id = 2",
        "UPDATE t SET v = 30 WHERE id = 3",
        "UPDATE t SET v = v WHERE id = 4",
        "INSERT INTO t VALUES (9, 'a', 9), (0, 'b', 0)",
    )
    return lake.head()


def test_a_mirror_only_learns_that_deletes_come_first(lake: LakeWriter) -> None:
    """Nothing is sorted for it: a delete has 0 and a put has 1, so a moved row goes before it comes."""
    place = change_everything(lake)
    assert read(plan(lake, "mirror", after=place - 1)) == [
        (place, 0, DELETE, 1, "a", 1),
        (place, 0, DELETE, 2, "a", 2),
        (place, 1, INSERT, 0, "b", 0),
        (place, 1, INSERT, 2, "b", 2),
        (place, 1, INSERT, 9, "a", 9),
        (place, 1, UPDATE, 3, "a", 30),
    ]


@pytest.mark.parametrize("modes", [("append",), ("append", "mirror")])
def test_an_append_table_gets_a_number_for_each_change(lake: LakeWriter, modes: tuple[Mode, ...]) -> None:
    """Also when a mirror reads the same window: deletes first, then by key, the same at every read."""
    place = change_everything(lake)
    expected = [
        (place, 0, DELETE, 1, "a", 1),
        (place, 1, DELETE, 2, "a", 2),
        (place, 2, INSERT, 0, "b", 0),
        (place, 3, INSERT, 2, "b", 2),
        (place, 4, UPDATE, 3, "a", 30),
        (place, 5, INSERT, 9, "a", 9),
    ]
    for _ in range(2):
        assert read(plan(lake, *modes, after=place - 1)) == expected


def test_differences_are_numbered_the_same_way(lake: LakeWriter) -> None:
    """Whether a change was read from the feed or as a difference, its number is the same."""
    place = change_everything(lake)
    fed = {mode: read(plan(lake, mode, after=place - 1)) for mode in MODES}
    for mode in MODES:
        (task,) = plan(lake, mode, after=place - 1).tasks
        assert isinstance(task, FeedTask)
        compared = DifferenceTask(task.address, task.shape, task.source, task.versions, task.numbered)
        rows = changes_of(batch for _, batch in compared.read())
        assert (
            sorted((r[PLACE], r[SEQ] % SEQS_MAX, r[OP], r["id"], r["tenant"], r["v"]) for r in rows)
            == fed[mode]
        ), mode


MODES: tuple[Mode, ...] = ("mirror", "append")


@pytest.mark.parametrize("order", ["i", "i DESC", "hash(i)"])
def test_new_keys_may_come_in_any_order(lake: LakeWriter, order: str) -> None:
    """Ascending keys are seen to be distinct at a glance; others are counted, and are as good."""
    lake.run(f"INSERT INTO t SELECT i, 'c', i FROM range(1000, 6000) r(i) ORDER BY {order}")
    place = lake.head()
    assert read(plan(lake, after=place - 1)) == [
        (place, 1, INSERT, key, "c", key) for key in range(1000, 6000)
    ]


def test_a_window_of_inserts_reads_no_rows_of_before(
    lake: LakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots say whether they took rows away; where none did, the feed of what was is not even asked."""
    asked: list[dict[str, int]] = []
    build: Any = tasks.before_sql

    def noted(*args: Any, **bounds: int) -> str:
        asked.append(bounds)
        return str(build(*args, **bounds))

    monkeypatch.setattr(tasks, "before_sql", noted)
    lake.run("INSERT INTO t VALUES (7, 'a', 7)", "INSERT INTO t VALUES (8, NULL, 8)")
    place = lake.head()
    inserts = [(place - 1, 1, INSERT, 7, "a", 7), (place, 1, INSERT, 8, None, 8)]
    assert read(plan(lake, after=place - 2)) == inserts
    assert asked == []
    lake.run("UPDATE t SET v = 70 WHERE id = 7")
    assert read(plan(lake, after=place - 2)) == [*inserts, (place + 1, 1, UPDATE, 7, "a", 70)]
    assert asked == [{"first": place - 1, "last": place + 1}]


@pytest.mark.parametrize("inlining", [0, 10], ids=["files", "inlined"])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE id = 1",
        "DELETE FROM t",
        "TRUNCATE t",
        "UPDATE t SET v = 0 WHERE id = 1",
        "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 0",
    ],
)
@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_a_snapshot_that_takes_rows_away_says_so(
    make_lake: MakeLake, statement: str, inlining: int, many: bool
) -> None:
    """The fact that leaving out the rows of before is built on, for every way to take a row away."""
    writer = make_lake("sqlite:source.sqlite", inlining=inlining)
    writer.run("CREATE TABLE t (id INTEGER, tenant VARCHAR, v INTEGER)")
    writer.run(f"INSERT INTO t SELECT i, 'a', i FROM range(1, {100 if many else 7}) r(i)")
    writer.transaction(statement, "INSERT INTO t VALUES (1000, 'a', 0)")
    place = writer.head()
    window = plan(writer, after=place - 1)
    assert [type(task) for task in window.tasks] == [FeedTask]
    assert not any(task.only_inserts for task in window.tasks if isinstance(task, FeedTask))
    assert {row[2] for row in read(window)} >= {INSERT}


def test_windows_of_inserts_have_the_same_columns_as_others(make_lake: MakeLake) -> None:
    """However a window is read, its batches have one schema: packets of many tasks meet in a sink."""
    writer = make_lake("sqlite:source.sqlite", inlining=0)
    writer.run(
        "CREATE TABLE t (id UUID, tenant VARCHAR, moment TIMESTAMP, doc JSON, n DECIMAL(9,2), l INTEGER[])",
        "INSERT INTO t VALUES (uuid(), 'a', now()::TIMESTAMP, '{}', 1.5, [1])",
        "UPDATE t SET tenant = 'b'",
    )
    head = writer.head()
    windows = [plan(writer, mode, after=after) for after in (head - 2, head - 1) for mode in MODES]
    kinds = [task.only_inserts for window in windows for task in window.tasks if isinstance(task, FeedTask)]
    assert kinds == [False] * 4
    inserts = DuckLakeSource(writer.address, generation=1).plan_window(
        {TABLE.name: (TABLE, Position(1, head - 2), frozenset({"mirror"}))},
        upto_max=Position(1, head - 1),
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 40),
        parallelism=1,
    )
    (task,) = inserts.tasks
    assert isinstance(task, FeedTask)
    assert task.only_inserts
    schemas = {batch.schema for window in (*windows, inserts) for t in window.tasks for _, batch in t.read()}
    assert len(schemas) == 1


@pytest.mark.parametrize("before", [True, False], ids=["before", "meanwhile"])
def test_several_images_of_a_key_are_told_by_the_versions(
    lake: LakeWriter, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """A feed that lists a key twice on one side at one place is not believed; the versions tell."""
    lake.run("UPDATE t SET v = 10 WHERE id < 3")
    place = lake.head()
    name = "before_sql" if before else "after_sql"
    build = getattr(tasks, name)
    monkeypatch.setattr(
        tasks, name, lambda *args, **bounds: f"{build(*args, **bounds)} UNION ALL {build(*args, **bounds)}"
    )
    assert read(plan(lake, after=place - 1)) == [
        (place, 1, UPDATE, 1, "a", 10),
        (place, 1, UPDATE, 2, "a", 10),
    ]


def test_a_feed_whose_beginning_has_expired_is_not_believed(lake: LakeWriter) -> None:
    """With the snapshot it starts from go the files of what was deleted right after it, and the feed does
    not say so: read after a plan of before, it must not lose the delete."""
    start = lake.head()
    lake.run("DELETE FROM t")
    window = plan(lake, after=start)
    lake.run(f"CALL ducklake_expire_snapshots('lake', versions => [{start}])")
    lake.release()
    with pytest.raises(TruecutError) as caught:
        read(window)
    assert (caught.value.fault.code, caught.value.fault.retry) == ("TC2013", Retry.RETRYABLE)


# --- how keys are found to be distinct ----------------------------------------------------------------

KEYED = Shape(
    TableRead(TableName("main", "t"), ("b", "a"), None),
    TableSchema("t", (Column(1, "a", "INTEGER"), Column(2, "v", "INTEGER"), Column(3, "b", "VARCHAR"))),
)
Keys = list[tuple[int, int | None, str | None]]  # place, a, b

distinct_or_not = st.lists(
    st.tuples(st.integers(1, 3), st.none() | st.integers(0, 2), st.none() | st.sampled_from(["", "x"])),
    max_size=8,
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect()
    yield connection
    connection.close()


@settings(max_examples=80, deadline=None)
@given(keys=distinct_or_not, ordered=st.booleans())
def test_keys_that_ascend_are_distinct(
    database: duckdb.DuckDBPyConnection, keys: Keys, ordered: bool
) -> None:
    """NULLs are found wherever they are; (place, key) is said to ascend exactly when it does."""
    if ordered:
        keys = sorted(keys, key=repr)
    database.execute("CREATE OR REPLACE TEMP TABLE net (place BIGINT, x0 INTEGER, x1 INTEGER, x2 VARCHAR)")
    for place, a, b in keys:
        database.execute("INSERT INTO net VALUES (?, ?, 0, ?)", [place, a, b])
    null, ascending = tasks.look_at_keys(database, KEYED)
    assert null == any(a is None or b is None for _, a, b in keys)
    if not null:
        found = [(place, b or "", a or 0) for place, a, b in keys]
        assert ascending == (found == sorted(set(found)))
