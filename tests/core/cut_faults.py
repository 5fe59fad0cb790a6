"""The bugs that specs/Cut.tla can be given, put into the code and into the simulated life around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.core import cut_life
from truecut.core import cut, splice, visibility
from truecut.core.cut import Unit
from truecut.core.splice import ABSENT, Splice

_splice_of, _ready, _ranges, _taken = cut.splice_of, cut.ready, cut.ranges, splice.taken


def _by_watermark(unit: Unit, cursor: Any, *, new: bool) -> Splice | None:
    """What was committed when the log was asked for its end is believed to be in the rows."""
    if new and unit.evidence is not None:
        return Splice(unit.evidence.hi)
    return _splice_of(unit, cursor, new=new)


def _from_cursor(unit: Unit, cursor: Any, *, new: bool) -> Splice | None:
    found = _splice_of(unit, cursor, new=new)
    return None if found is None else replace(found, after=max(found.after, cursor))


def _null(before: Any, after: Any) -> Any:
    return tuple(None if value is ABSENT else value for value in after)


def _without_truncate(rows: Any, event: Any, takes: Any) -> Any:
    return dict(rows) if event.kind == "truncate" else _taken(rows, event, takes)


def _at_any_frontier(backfill: Any, *, upto: Any) -> frozenset[int]:
    found = enumerate(backfill.units)
    return frozenset(index for index, unit in found if unit.evidence is not None and not unit.applied)


def _again(backfill: Any, *, upto: Any) -> frozenset[int]:
    recorded = [(n, unit.evidence) for n, unit in enumerate(backfill.units) if unit.evidence is not None]
    return frozenset(index for index, evidence in recorded if evidence.hi <= upto)


def _without_end(bounds: Any) -> Any:
    """The last known key is taken for the last one."""
    return _ranges(bounds)[:-1]


Leaves = dict[str, Callable[..., Any]]
MACHINE: dict[str, Leaves] = {
    "watermark_only": {"truecut.core.cut.splice_of": _by_watermark},
    "end_is_last_key": {"truecut.core.cut.ranges": _without_end},
    "absent_is_null": {"truecut.core.splice.merged": _null},
    "truncate_ignored": {"truecut.core.splice.taken": _without_truncate},
    "subtransactions_forgotten": {"truecut.core.visibility.top_level": lambda xid, tops: xid},
    "hi_ignored": {"truecut.core.cut.ready": _at_any_frontier},
    "replayed_from_cursor": {"truecut.core.cut.splice_of": _from_cursor},
    "applied_again": {"truecut.core.cut.ready": _again},
    "start_unchecked": {"truecut.core.visibility.Snapshot.includes": lambda self, other: True},
    "writers_unawaited": {"truecut.core.cut.unended": lambda writers, snapshot: frozenset()},
    "torn_kept": {"truecut.core.splice.incomplete": lambda row: False},
}
AROUND: dict[str, Leaves] = {
    "row_order": {"tests.core.cut_life.in_order": cut_life.by_row},
    "snapshot_apart": {"tests.core.cut_life.reads_under": lambda opened, now: now},
    "applied_unrecorded": {"tests.core.cut_life.durable_at_once": lambda: False},
    "lock_after_snapshot": {"tests.core.cut_life.truncate_waits": lambda: False},
}
# Of the code alone: the spec's ids have no width.
WIDTH: dict[str, Leaves] = {"epoch_ignored": {"truecut.core.visibility.nearest": lambda xid, *, near: xid}}
FAULTS = MACHINE | AROUND | WIDTH
assert visibility.top_level(1, {}) == 1


def injected(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Switch one fault on."""
    for leaf, broken in FAULTS[name].items():
        monkeypatch.setattr(leaf, broken)
