"""Ranges are half-open here and inclusive at both ends in the extension: the border, on the real thing."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.model.change import CONTROL_FIELDS, DELETE, INSERT, OP, PLACE, SEQ, UPDATE
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead, Window, WindowLimits
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.tasks import DifferenceTask, FeedTask

TABLE = TableRead(TableName("main", "t"), ("id",), None)
WIDE = WindowLimits(rows_max=1_000_000, bytes_max=1 << 40)


def plan(
    source: DuckLakeSource,
    *,
    after: int,
    upto: int,
    limits: WindowLimits = WIDE,
    mode: Mode = "mirror",
    parallelism: int = 2,
) -> Window:
    return source.plan_window(
        {TABLE.name: (TABLE, Position(1, after), frozenset({mode}))},
        upto_max=Position(1, upto),
        limits=limits,
        parallelism=parallelism,
    )


def changes(window: Window) -> list[tuple[int, int, Any]]:
    """(place, operation, id), through a pickle as on the way to an executor."""
    tasks = [pickle.loads(pickle.dumps(task)) for task in window.tasks]
    rows = changes_of(batch for task in tasks for _, batch in task.read())
    return sorted((row[PLACE], row[OP], row["id"]) for row in rows)


@pytest.fixture
def lake(make_lake: MakeLake) -> LakeWriter:
    """Snapshot 1 makes the table; 2, 3 and 4 insert the ids 2, 3 and 4."""
    writer = make_lake(inlining=0)
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)")
    start = writer.head()
    writer.run(*(f"INSERT INTO t VALUES ({start + n}, 'x')" for n in (1, 2, 3)))
    writer.release()
    return writer


def test_the_extension_is_inclusive_at_both_ends(lake: LakeWriter) -> None:
    """The fact that the reader is built on: the extension's range holds both of its ends."""
    head = lake.head()
    for function in ("ducklake_table_insertions", "ducklake_table_changes"):
        rows = lake.rows(f"SELECT id FROM {function}('lake', 'main', 't', {head - 1}, {head})")
        assert sorted(row[0] for row in rows) == [head - 1, head]


def test_after_is_exclusive_and_upto_inclusive(lake: LakeWriter) -> None:
    """(after, upto] for every pair of snapshots: exactly the commits after the one, up to the other."""
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    for after in range(head - 3, head):
        for upto in range(after + 1, head + 1):
            window = plan(source, after=after, upto=upto)
            assert window.upto == Position(1, upto)
            assert changes(window) == [(place, INSERT, place) for place in range(after + 1, upto + 1)]


def test_adjacent_windows_meet_without_gap_or_overlap(lake: LakeWriter) -> None:
    """Windows that end where the next begins give every change once, as feed and as differences."""
    first = lake.head() - 3
    lake.run("UPDATE t SET v = 'y'", "DELETE FROM t WHERE id > 2")
    ids = [first + 1, first + 2, first + 3]
    expected = [
        *((place, INSERT, place) for place in ids),
        *((first + 4, UPDATE, key) for key in ids),
        *((first + 5, DELETE, key) for key in ids if key > 2),
    ]
    assert _read_one_by_one(lake, after=first, upto=first + 5, task=FeedTask) == expected
    lake.run("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.0)")
    assert _read_one_by_one(lake, after=first, upto=first + 5, task=DifferenceTask) == expected


def _read_one_by_one(lake: LakeWriter, *, after: int, upto: int, task: type) -> list[tuple[int, int, Any]]:
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    windows = [plan(source, after=place, upto=place + 1) for place in range(after, upto)]
    assert all(type(one) is task for window in windows for one in window.tasks)
    return [change for window in windows for change in changes(window)]


def test_a_caught_up_source_is_not_asked(lake: LakeWriter) -> None:
    """Nothing after the head: an empty window at the head, no error."""
    head = lake.head()
    lake.release()
    window = plan(DuckLakeSource(lake.address, generation=1), after=head, upto=head)
    assert (window.upto, list(window.tasks), dict(window.faults)) == (Position(1, head), [], {})


def test_limits_end_a_window_early_but_never_split_a_transaction(lake: LakeWriter) -> None:
    """A window holds at least one commit, whole, and otherwise stays within its limits."""
    lake.transaction("INSERT INTO t SELECT i, 'x' FROM range(100, 120) r(i)", "DELETE FROM t WHERE id = 2")
    lake.run("INSERT INTO t VALUES (1000, 'x')")
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    ends = []
    place = head - 5
    while place < head:
        window = plan(source, after=place, upto=head, limits=WindowLimits(rows_max=2, bytes_max=1 << 40))
        place = window.upto.place
        ends.append((place, len(changes(window))))
    assert ends == [(head - 3, 2), (head - 2, 1), (head - 1, 21), (head, 1)]


def test_a_window_is_cut_by_bytes_like_by_rows(make_lake: MakeLake) -> None:
    """Commits of like size, and room for two of them: two in every window, none of them split."""
    lake = make_lake(inlining=0)
    lake.run("CREATE TABLE t (id INTEGER, v VARCHAR)")
    start = lake.head()
    lake.run(
        *(
            f"INSERT INTO t SELECT i, repeat(md5(i::VARCHAR), 20) FROM range({n * 50}, {n * 50 + 50}) r(i)"
            for n in range(6)
        )
    )
    head = lake.head()
    each = lake.rows("SELECT max(file_size_bytes) FROM __ducklake_metadata_lake.ducklake_data_file")[0][0]
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    ends = []
    place = start
    while place < head:
        limits = WindowLimits(rows_max=1 << 40, bytes_max=int(each * 2.5))
        window = plan(source, after=place, upto=head, limits=limits)
        place = window.upto.place
        ends.append((place, len(changes(window))))
    assert ends == [(start + 2, 100), (start + 4, 100), (start + 6, 100)]


def test_updates_of_many_commits_that_share_a_delete_file_weigh_like_rows(make_lake: MakeLake) -> None:
    """The catalog tells only how many deletes the file holds; an update counts once all the same."""
    lake = make_lake(inlining=0)
    lake.run("CREATE TABLE t (id INTEGER, v VARCHAR)", "INSERT INTO t SELECT i, 'x' FROM range(1000) r(i)")
    start = lake.head()
    lake.run(*(f"UPDATE t SET v = 'y' WHERE id // 100 = {n}" for n in range(10)))
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    sizes = []
    place = start
    while place < head:
        window = plan(source, after=place, upto=head, limits=WindowLimits(rows_max=500, bytes_max=1 << 40))
        place = window.upto.place
        sizes.append(len(changes(window)))
    assert sizes == [500, 500]


def test_a_window_in_parallel_pieces_is_the_same_window(lake: LakeWriter, monkeypatch: Any) -> None:
    """Cut at commits into tasks of like size: together they give what one task gives."""
    lake.run(
        "UPDATE t SET v = 'y'", "ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 7", "DELETE FROM t WHERE id = 3"
    )
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    whole = plan(source, after=head - 6, upto=head, parallelism=1)
    monkeypatch.setattr("truecut.sources.ducklake.history.TASK_ROWS_MIN", 1)
    parts = plan(source, after=head - 6, upto=head, parallelism=4)
    assert len(whole.tasks) == 1 < len(parts.tasks)
    assert changes(parts) == changes(whole)
    schemas = {batch.schema for task in parts.tasks for _, batch in task.read()}
    assert len(schemas) == 1, "every task gives rows in the columns of the window's end"


def test_a_difference_in_buckets_is_the_same_difference(lake: LakeWriter, monkeypatch: Any) -> None:
    """Shared out by key: together the buckets give what one task gives, with unique sequence numbers."""
    lake.run("INSERT INTO t SELECT i, 'x' FROM range(100, 200) r(i)", "UPDATE t SET v = 'y' WHERE id < 150")
    lake.run("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.0)")
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    whole = plan(source, after=1, upto=head, mode="append")
    monkeypatch.setattr("truecut.sources.ducklake.history.BUCKET_ROWS", 30)
    parts = plan(source, after=1, upto=head, mode="append")
    assert (len(whole.tasks), len(parts.tasks)) == (1, 4)
    assert changes(parts) == changes(whole)
    rows = changes_of(batch for task in parts.tasks for _, batch in task.read())
    assert len({(row[PLACE], row[SEQ]) for row in rows}) == len(rows) == 3 + 100 + 53


def test_batches_have_the_control_columns_first(lake: LakeWriter) -> None:
    """The form that every consumer relies on, field by field."""
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    windows = [
        plan(source, after=head - 1, upto=head),
        source.plan_seed([TABLE], at=Position(1, head), parallelism=2),
    ]
    for window in windows:
        for task in window.tasks:
            for _, batch in task.read():
                assert tuple(batch.schema)[: len(CONTROL_FIELDS)] == CONTROL_FIELDS
                assert batch.schema.names[len(CONTROL_FIELDS) :] == ["id", "v"]
