"""A seed: the whole table at one snapshot, each row once, in parallel, while the owner goes on."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.errors import Retry, TruecutError
from truecut.model.change import OP, PLACE, READ, SEQ
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import TableRead, Window, WindowLimits
from truecut.sources.ducklake.attach import FILE_GONE
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.tasks import DUPLICATE_KEY, FILES_CHANGED, NULL_KEY, SeedTask

TABLE = TableRead(TableName("main", "t"), ("id",), None)


def read(window: Window) -> list[dict[str, Any]]:
    tasks = [pickle.loads(pickle.dumps(task)) for task in window.tasks]
    return changes_of(batch for task in tasks for _, batch in task.read())


@pytest.fixture
def lake(make_lake: MakeLake) -> LakeWriter:
    """Four files, one of them with deletes, and inlined rows."""
    writer = make_lake(inlining=10)
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)")
    writer.run(
        *(f"INSERT INTO t SELECT i, 'x' FROM range({n * 100}, {n * 100 + 100}) r(i)" for n in range(4))
    )
    writer.run("DELETE FROM t WHERE id % 100 = 7", "INSERT INTO t VALUES (1000, NULL), (1001, 'inlined')")
    return writer


def test_every_row_once_in_parallel(lake: LakeWriter) -> None:
    """Tasks share the files; inlined rows belong to exactly one; place, operation and sequence are set."""
    _, expected = lake.table("t")
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    head = source.observe().head
    window = source.plan_seed([TABLE], at=head, parallelism=3)
    assert len(window.tasks) == 3
    rows = read(window)
    assert sorted((row["id"], row["v"]) for row in rows) == sorted(expected)
    assert {(row[OP], row[PLACE]) for row in rows} == {(READ, head.place)}
    assert len({row[SEQ] for row in rows}) == len(rows) == window.rows_estimate


def test_each_task_reads_its_own_files(lake: LakeWriter) -> None:
    """Parallel means less work for each: no file is in two shares, and none is missing."""
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    window = source.plan_seed([TABLE], at=source.observe().head, parallelism=4)
    tasks = [task for task in window.tasks if isinstance(task, SeedTask)]
    shares = [path for task in tasks for path in task.mine]
    assert sorted(shares) == sorted(tasks[0].listed)
    assert len(set(shares)) == len(shares) == 4
    assert [task.inlined for task in tasks].count(True) == 1


def test_a_seed_is_pinned(lake: LakeWriter) -> None:
    """What is committed after the pinned snapshot is not in it, whenever it is read."""
    _, expected = lake.table("t")
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    window = source.plan_seed([TABLE], at=source.observe().head, parallelism=2)
    lake.run("UPDATE t SET v = 'later'", "INSERT INTO t VALUES (2000, 'later')")
    lake.release()
    assert sorted((row["id"], row["v"]) for row in read(window)) == sorted(expected)


def test_the_owner_commits_while_a_seed_is_read(lake: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed may take hours: a DuckDB-file catalog must not be locked for so long."""
    monkeypatch.setattr("truecut.sources.ducklake.tasks.BATCH_ROWS", 64)
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    window = source.plan_seed([TABLE], at=source.observe().head, parallelism=1)
    batches = window.tasks[0].read()
    read_rows = next(batches).batch.num_rows
    lake.run("INSERT INTO t VALUES (3000, 'meanwhile')")
    lake.release()
    read_rows += sum(batch.num_rows for _, batch in batches)
    assert read_rows == 398


def test_compaction_between_plan_and_read_is_noticed(lake: LakeWriter) -> None:
    """Shares of files are exact only while the files are the same: otherwise the seed starts again."""
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    window = source.plan_seed([TABLE], at=source.observe().head, parallelism=3)
    lake.run("CALL ducklake_merge_adjacent_files('lake')", "CALL ducklake_flush_inlined_data('lake')")
    lake.release()
    with pytest.raises(TruecutError) as caught:
        read(window)
    assert (caught.value.fault.code, caught.value.fault.retry) == (FILES_CHANGED, Retry.RETRYABLE)


def test_a_null_key_is_refused(lake: LakeWriter) -> None:
    """A row without a key could be told from no other; the message names table and snapshot, no value."""
    start = lake.head()
    lake.run("INSERT INTO t VALUES (NULL, 'secret')")
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    head = source.observe().head
    for window in (source.plan_seed([TABLE], at=head, parallelism=1), changes(source, after=start)):
        with pytest.raises(TruecutError) as caught:
            read(window)
        assert (caught.value.fault.code, caught.value.fault.retry) == (NULL_KEY, Retry.NOT_RETRYABLE)
        assert "main.t" in caught.value.fault.message
        assert str(head.place) in caught.value.fault.message
        assert "secret" not in str(caught.value)


def test_two_rows_of_one_key_in_one_commit_are_refused(lake: LakeWriter) -> None:
    """Neither of them is the row of that key."""
    start = lake.head()
    lake.run("INSERT INTO t VALUES (5000, 'secret'), (5000, 'secret')")
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    with pytest.raises(TruecutError) as caught:
        read(changes(source, after=start))
    assert (caught.value.fault.code, caught.value.fault.retry) == (DUPLICATE_KEY, Retry.NOT_RETRYABLE)
    assert "secret" not in str(caught.value)


def changes(source: DuckLakeSource, *, after: int) -> Window:
    return source.plan_window(
        {TABLE.name: (TABLE, Position(1, after), frozenset({"mirror"}))},
        upto_max=source.observe().head,
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
        parallelism=1,
    )


def test_a_file_that_was_cleaned_up_can_be_tried_again(lake: LakeWriter) -> None:
    """Retention removed what a planned read needs: retryable, because a new plan will see what is left."""
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    task = source.plan_seed([TABLE], at=source.observe().head, parallelism=1).tasks[0]
    assert isinstance(task, SeedTask)
    Path(task.listed[0]).unlink()
    with pytest.raises(TruecutError) as caught:
        list(task.read())
    assert (caught.value.fault.code, caught.value.fault.retry) == (FILE_GONE, Retry.RETRYABLE)
