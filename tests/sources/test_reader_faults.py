"""Faults that must be noticed: each puts a known bug into one small function of the reader, under the name
that the bug has in the spec, and the comparison of copy and source has to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.churn import Churn
from tests.sources.conftest import MakeLake
from truecut.model.table import TableName
from truecut.sources.ducklake import history, normal, tasks
from truecut.sources.ducklake.attach import Lake


def inclusive_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit at `after` itself is read again."""
    monkeypatch.setattr(tasks, "first_wanted", lambda after: after)


def resolve_by_rowid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row ids survive a key change, collide and are reused: they say nothing about keys."""
    for name in ("before_sql", "after_sql"):
        monkeypatch.setattr(tasks, name, _with_row_ids(getattr(tasks, name)))
    monkeypatch.setattr(normal, "same_key", lambda shape: "o.row_id = n.row_id")
    monkeypatch.setattr(tasks, "several_images", lambda *args, **kwargs: False)


def key_change_without_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of a changed key's old key is dropped, as a pre-image would be."""
    before, after = _with_row_ids(tasks.before_sql), _with_row_ids(tasks.after_sql)

    def before_without_moved_keys(lake: Lake, table: TableName, expressions: Any, **bounds: int) -> str:
        old, new = before(lake, table, expressions, **bounds), after(lake, table, expressions, **bounds)
        return f"""SELECT o.* EXCLUDE (row_id) FROM ({old}) o WHERE NOT EXISTS (
                     FROM ({new}) n WHERE n.place = o.place AND n.row_id = o.row_id AND n.x0 <> o.x0)"""

    monkeypatch.setattr(tasks, "before_sql", before_without_moved_keys)


def route_change_without_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that moved is an update where it arrives, and nothing where it was."""
    monkeypatch.setattr(normal, "other_route", lambda shape: "false")


def split_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last change of a window is left for later, and never comes."""
    real = tasks.batches

    def without_the_last(*args: Any) -> Iterator[pa.RecordBatch]:
        whole = list(real(*args))
        yield from whole[:-1]
        if whole and whole[-1].num_rows > 1:
            yield whole[-1].slice(0, whole[-1].num_rows - 1)

    monkeypatch.setattr(tasks, "batches", without_the_last)


def advance_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said to have happened, and the copy moves on."""
    monkeypatch.setattr(history, "steps", lambda *args, **kwargs: [])


def feed_always_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change feed lies around maintenance."""
    monkeypatch.setattr(history, "feed_is_exact", lambda *args, **kwargs: True)


@dataclass(frozen=True)
class Life:
    """Where a fault shows."""

    maintenance: bool = False
    inlining: int = 0
    seeds: Sequence[int] = range(4)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], Life] = {
    inclusive_read: Life(),
    resolve_by_rowid: Life(),
    key_change_without_delete: Life(),
    route_change_without_delete: Life(),
    split_transaction: Life(),
    advance_unread: Life(),
    feed_always_believed: Life(maintenance=True, inlining=10, seeds=(9, 4, 7)),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_the_copy_shows(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """The comparison objects within a few polls of a few seeds."""
    life = FAULTS[fault]
    fault(monkeypatch)
    for seed in life.seeds:
        lake = make_lake(inlining=life.inlining)
        churn = Churn(lake, seed=seed, mode="mirror", maintenance=life.maintenance)
        try:
            churn.live_long(polls=12)
        except AssertionError:
            return
    pytest.fail("the fault was not noticed")


def _with_row_ids(build: Any) -> Any:
    """The same query with the row ids beside the rows."""

    def built(lake: Lake, table: TableName, expressions: Any, **bounds: int) -> str:
        sql: str = build(lake, table, expressions, **bounds)
        return sql.replace(" AS place,", " AS place, rowid AS row_id,", 1)

    return built
