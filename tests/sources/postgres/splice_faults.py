"""The faults that a splice can have, put into the code: each must be seen by who compares content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.sources.postgres.shop import Shop
from truecut.core import cut
from truecut.core.cut import Unit
from truecut.core.splice import ABSENT, Splice
from truecut.core.visibility import Snapshot
from truecut.model.position import Position
from truecut.sources.postgres import unit_read
from truecut.sources.postgres.history import Events, Log
from truecut.sources.postgres.server import Connection

_asked, _ranges, _events, _wide = unit_read.asked, cut.ranges, Log.events, Log._wide
_NEVER = (1 << 63) - 1


@dataclass
class Story:
    """What a fault has to know of what happens at the source."""

    shop: Shop
    parts: dict[int, int] = field(default_factory=dict)  # a transaction → the id of its subtransaction
    began_before: int = 0  # ids below this began before the place that is asked for


def _by_watermark(unit: Unit, cursor: Position, *, new: bool) -> Splice:
    """What was in the log when the rows were read is believed to be in them."""
    assert unit.evidence is not None
    return Splice(unit.evidence.hi)


def _by_row(story: Story) -> Callable[..., Iterator[Events]]:
    """A change counts from where it was written, not from where it was committed."""

    def events(self: Log, oid: int, shape: Any, *, upto: int) -> Iterator[Events]:
        for one in _events(self, oid, shape, upto=_NEVER):
            places = np.asarray(one.rows.column("_truecut_place"))
            which = np.flatnonzero((places <= upto) | (one.xids < story.began_before))
            yield Events(one.relation, one.rows.take(pa.array(which)), one.xids[which])

    return events


def _apart(story: Story) -> Callable[[Connection], tuple[Snapshot, int]]:
    """The rows are those of the transaction's snapshot; another one is asked for."""

    def asked(connection: Connection) -> tuple[Snapshot, int]:
        connection.execute("SELECT 1")
        with story.shop.connect() as other:
            other.execute("SET synchronous_commit = local")
            other.execute("UPDATE items SET n = 6 WHERE id = 6 AND n = 0")
            return _asked(other)

    return asked


def _without_end(bounds: Any) -> Any:
    """The last known key is taken for the last one."""
    return _ranges(bounds)[:-1]


def _null(before: Any, after: Any) -> Any:
    """An untold value is what its event has in its place, which is NULL."""
    told = next(value for value in after if value is not ABSENT)
    return tuple(told for _ in after)


def _parts_apart(story: Story) -> Callable[..., Any]:
    """A change is taken for one of the subtransaction that made it."""

    def wide(self: Log, xids: Any) -> Any:
        found = _wide(self, xids)
        return np.array([story.parts.get(int(xid), int(xid)) for xid in found], np.uint64)

    return wide


FAULTS: dict[str, Callable[[Story], dict[str, Any]]] = {
    "watermark_only": lambda _: {"truecut.core.cut.splice_of": _by_watermark},
    "row_order": lambda story: {"truecut.sources.postgres.history.Log.events": _by_row(story)},
    "snapshot_apart": lambda story: {"truecut.sources.postgres.unit_read.asked": _apart(story)},
    "end_is_last_key": lambda _: {"truecut.sources.postgres.units.ranges": _without_end},
    "absent_is_null": lambda _: {"truecut.core.splice.merged": _null},
    "truncate_ignored": lambda _: {
        "truecut.sources.postgres.splicing._Folding._truncate": lambda self, keeps: None
    },
    "subtransactions_forgotten": lambda story: {
        "truecut.sources.postgres.history.Log._wide": _parts_apart(story)
    },
}


def injected(monkeypatch: pytest.MonkeyPatch, name: str, story: Story) -> None:
    """Switch one fault on."""
    for leaf, broken in FAULTS[name](story).items():
        monkeypatch.setattr(leaf, broken)
