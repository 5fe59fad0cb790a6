"""What a read task finds wrong: with the world around it, which passes; with the table's past, which is a
gap; or with the table itself, which holds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import ReadTask, TableRead, WindowLimits
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.tasks import DUPLICATE_KEY

TABLE = TableRead(TableName("main", "t"), ("id",), None)

MODES: tuple[Mode, ...] = ("append", "mirror")


def window_tasks(lake: LakeWriter, *, after: int, mode: Mode = "mirror") -> list[ReadTask]:
    """What reads everything since a snapshot."""
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    window = source.plan_window(
        {TABLE.name: (TABLE, Position(1, after), frozenset({mode}))},
        upto_max=source.observe().head,
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
        parallelism=2,
    )
    assert not window.faults
    return list(window.tasks)


def seed_tasks(lake: LakeWriter) -> list[ReadTask]:
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    return list(source.plan_seed([TABLE], at=source.observe().head, parallelism=2).tasks)


def read(tasks: list[ReadTask]) -> list[dict[str, Any]]:
    return changes_of(rows.batch for task in tasks for rows in task.read())


def fault_of(tasks: list[ReadTask]) -> Fault:
    with pytest.raises(TruecutError) as raised:
        read(tasks)
    return raised.value.fault


def taken_away(path: Path) -> Callable[[], None]:
    """Somewhere else for a moment; the answer brings it back."""
    elsewhere = path.rename(path.with_suffix(".away"))
    return lambda: [elsewhere.rename(path)].clear()


def replaced_by_nonsense(path: Path) -> Callable[[], None]:
    """In the middle of a restore."""
    back = taken_away(path)
    path.write_text("no catalog " * 2000)
    return back


@pytest.mark.parametrize("catalog", ["source.ducklake", "sqlite:s.sqlite"])
@pytest.mark.parametrize("trouble", [taken_away, replaced_by_nonsense])
@pytest.mark.parametrize("tasks", [lambda lake: window_tasks(lake, after=1), seed_tasks])
def test_trouble_around_the_table_passes(
    make_lake: MakeLake,
    catalog: str,
    trouble: Callable[[Path], Callable[[], None]],
    tasks: Callable[[LakeWriter], list[ReadTask]],
) -> None:
    """The catalog is gone for a moment, or is no catalog: not the table's fault, so it can be tried again,
    and then it is read."""
    lake = make_lake(catalog)
    lake.run("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1)")
    work = tasks(lake)
    restore = trouble(Path(lake.address.target.reveal()))
    assert fault_of(work).retry is Retry.RETRYABLE
    restore()
    assert [row["id"] for row in read(work)] == [1]


def test_a_table_that_was_away_under_another_name_is_read_under_it(make_lake: MakeLake) -> None:
    """Renamed and renamed back: each version is found by the name that the table had then."""
    lake = make_lake(inlining=0)
    lake.run("CREATE TABLE t (id INTEGER, v INTEGER)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    after = lake.head()
    lake.run(
        "ALTER TABLE t RENAME TO away",
        "INSERT INTO away VALUES (3, 3)",
        "UPDATE away SET v = 9 WHERE id = 2",
        "CALL ducklake_rewrite_data_files('lake', 'away', delete_threshold => 0.0)",
        "ALTER TABLE away RENAME TO t",
        "INSERT INTO t VALUES (4, 4)",
    )
    for mode in MODES:
        assert sorted(row["id"] for row in read(window_tasks(lake, after=after, mode=mode))) == [2, 3, 4]


def test_another_table_under_the_name_for_a_while_is_not_read(make_lake: MakeLake) -> None:
    """Two tables swap names and swap them back: what the other one held is no change of this one."""
    lake = make_lake(inlining=0)
    lake.run("CREATE TABLE t (id INTEGER)", "CREATE TABLE u (id INTEGER)", "INSERT INTO t VALUES (1)")
    swap = ("ALTER TABLE t RENAME TO x", "ALTER TABLE u RENAME TO t", "ALTER TABLE x RENAME TO u")
    after = lake.head()
    lake.transaction(*swap)
    lake.run("INSERT INTO t VALUES (666)", "INSERT INTO u VALUES (2), (4)", "DELETE FROM u WHERE id = 4")
    lake.run("CALL ducklake_rewrite_data_files('lake', 'u', delete_threshold => 0.0)")
    lake.transaction(*swap)
    lake.run("INSERT INTO t VALUES (3)")
    found = read(window_tasks(lake, after=after, mode="append"))
    assert sorted(row["id"] for row in found) == [2, 3, 4, 4], "4 came and went"


def added_twice(make_lake: MakeLake, tmp_path: Path) -> LakeWriter:
    lake = make_lake(inlining=0)
    file = tmp_path / "outside.parquet"
    lake.run(
        f"COPY (SELECT i::INTEGER AS id FROM range(3) r(i)) TO '{file}'",
        "CREATE TABLE t (id INTEGER)",
        f"CALL ducklake_add_data_files('lake', 't', '{file}')",
        f"CALL ducklake_add_data_files('lake', 't', '{file}')",
    )
    return lake


def test_a_file_that_was_added_twice_is_read_twice(make_lake: MakeLake, tmp_path: Path) -> None:
    """As plain DuckDB reads it: its rows are there twice, and no copy may hide that."""
    lake = added_twice(make_lake, tmp_path)
    expected = sorted(lake.rows("FROM t"))
    assert len(expected) == 6
    assert sorted((row["id"],) for row in read(seed_tasks(lake))) == expected


def test_changes_after_a_file_was_added_twice_tell_the_true_reason(
    make_lake: MakeLake, tmp_path: Path
) -> None:
    """Two rows have one key: that is what is said when versions are compared."""
    lake = added_twice(make_lake, tmp_path)
    after = lake.head()
    lake.run("CALL ducklake_merge_adjacent_files('lake')", "UPDATE t SET id = id + 10 WHERE id = 2")
    assert fault_of(window_tasks(lake, after=after)).code == DUPLICATE_KEY
