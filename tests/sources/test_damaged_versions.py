"""Versions that maintenance has damaged are read as they were committed, and by nobody else any more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sources.conftest import MakeLake
from tests.sources.copy_model import CopyModel, changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.errors import Retry, TruecutError
from truecut.model.change import PLACE
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead, Window, WindowLimits
from truecut.sources.ducklake import normal
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.tasks import FILES_CHANGED, DifferenceTask, FeedTask
from truecut.sources.ducklake.window import HISTORY_DAMAGED, SEED_DAMAGED

TABLE = TableRead(TableName("main", "t"), ("id",), None)
HISTORY = (
    "INSERT INTO t BY NAME SELECT i::INTEGER AS id, i::INTEGER AS v FROM range(60) r(i)",
    "DELETE FROM t WHERE id < 35",
    "INSERT INTO t BY NAME SELECT 100 AS id, 1 AS v",
    "DELETE FROM t WHERE id IN (35, 36)",
    "UPDATE t SET v = -v WHERE id IN (37, 38)",
    "DELETE FROM t WHERE id IN (38, 39)",
)
DAMAGE = (
    "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.0)",
    "CALL ducklake_flush_inlined_data('lake')",
)

Noted = dict[int, set[tuple[int, int]]]  # snapshot → the rows as they were committed


def damaged_lake(make_lake: MakeLake, *, columns: str = "id INTEGER, v INTEGER") -> tuple[LakeWriter, Noted]:
    """A delete in a file, inlined deletes of the same file, a rewrite, a flush, and another commit."""
    writer = make_lake(inlining=10)
    after = (*DAMAGE, "INSERT INTO t BY NAME SELECT 200 AS id, 1 AS v")
    return writer, noting(writer, f"CREATE TABLE t ({columns})", *HISTORY, *after)


def noting(writer: LakeWriter, *statements: str) -> Noted:
    """Each is a commit."""
    noted: Noted = {}
    for statement in statements:
        writer.run(statement)
        noted[writer.head()] = set(writer.rows("SELECT id, v FROM t"))
    return noted


def window_of(source: DuckLakeSource, *, after: int, upto: int, mode: Mode = "mirror") -> Window:
    return source.plan_window(
        {TABLE.name: (TABLE, Position(1, after), frozenset({mode}))},
        upto_max=Position(1, upto),
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
        parallelism=2,
    )


def test_every_version_is_read_as_it_was_committed(make_lake: MakeLake) -> None:
    """A seed at any place, and every single step from one place to the next, each at its own position; plain
    reads of some of these versions bring deleted rows back."""
    writer, noted = damaged_lake(make_lake)
    wrong = [s for s, rows in noted.items() if set(writer.table("t", at=s)[1]) != rows]
    assert wrong, "the extension reads them right by now: the precaution may go"
    writer.release()
    source = DuckLakeSource(writer.address, generation=1)
    for snapshot, rows in noted.items():
        seed = source.plan_seed([TABLE], at=Position(1, snapshot), parallelism=3)
        assert not seed.faults
        read = changes_of(batch for task in seed.tasks for _, batch in task.read())
        assert sorted((row["id"], row["v"]) for row in read) == sorted(rows), snapshot


def test_an_append_table_gets_each_change_at_its_own_position(make_lake: MakeLake) -> None:
    """The changes of a damaged snapshot do not come with the next one."""
    writer, noted = damaged_lake(make_lake)
    writer.release()
    first, last = min(noted), max(noted)
    window = window_of(DuckLakeSource(writer.address, generation=1), after=first, upto=last, mode="append")
    assert not window.faults
    changes = changes_of(batch for task in window.tasks for _, batch in task.read())
    model = CopyModel(key=TABLE.key, route_by=None)
    model.evolve([("id", None), ("v", None)])
    for snapshot in sorted(noted)[1:]:
        model.apply((change for change in changes if change[PLACE] == snapshot), numbered=True)
        assert set(model.rows()) == noted[snapshot], snapshot


@pytest.mark.parametrize("hides", ["filename", "File_Row_Number"])
def test_a_column_that_hides_the_rows_of_a_file_is_the_reason_told(make_lake: MakeLake, hides: str) -> None:
    """Then such a version is not read: a gap for whoever stands there, a hold for a seed; both say why."""
    writer, noted = damaged_lake(make_lake, columns=f'id INTEGER, v INTEGER, "{hides}" VARCHAR')
    spoilt = next(
        s for s in sorted(noted) if set(writer.rows(f"SELECT id, v FROM t AT (VERSION => {s})")) != noted[s]
    )
    writer.release()
    source = DuckLakeSource(writer.address, generation=1)
    window = window_of(source, after=spoilt, upto=max(noted))
    assert window.lost == {TABLE.name}
    assert window.faults[TABLE.name].code == HISTORY_DAMAGED
    steps = window_of(source, after=min(noted), upto=max(noted), mode="append")
    assert steps.lost == {TABLE.name}
    assert steps.faults[TABLE.name].code == HISTORY_DAMAGED
    seed = source.plan_seed([TABLE], at=Position(1, spoilt), parallelism=1)
    assert not seed.lost
    assert seed.faults[TABLE.name].code == SEED_DAMAGED
    assert "hides" in seed.faults[TABLE.name].message
    assert not source.plan_seed([TABLE], at=Position(1, max(noted)), parallelism=1).faults


def test_maintenance_that_spoils_a_version_while_it_is_read_is_noticed(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at which files are read repeatedly and their reading: what was read is not believed,
    and read again it is right."""
    writer = make_lake("sqlite:s.sqlite", inlining=10)
    noted = noting(writer, "CREATE TABLE t (id INTEGER, v INTEGER)", *HISTORY)
    first, last = min(noted), max(noted)
    window = window_of(DuckLakeSource(writer.address, generation=1), after=first, upto=last)
    (task,) = window.tasks
    assert isinstance(task, FeedTask)
    compared = DifferenceTask(task.address, task.shape, task.source, task.versions, task.numbered)
    real = normal.keep_net

    def keep_net(*args: Any, **kwargs: Any) -> None:
        writer.run(*DAMAGE)
        real(*args, **kwargs)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(normal, "keep_net", keep_net)
        with pytest.raises(TruecutError) as caught:
            list(compared.read())
    assert (caught.value.fault.code, caught.value.fault.retry) == (FILES_CHANGED, Retry.RETRYABLE)
    model = CopyModel(key=TABLE.key, route_by=None)
    model.evolve([("id", None), ("v", None)])
    model.apply(changes_of(batch for _, batch in compared.read()), numbered=False)
    assert set(model.rows()) == noted[last]
