"""Where a unit's rows and the log meet: which events follow a row, and what an event leaves of it.

Promises:
  S1  for a key of a unit, events of transactions that its snapshot saw are in the row and are dropped, and
      all others follow, in the order of their commits
  S2  a value that an event does not tell (it did not change) is taken from the row before, never NULL; where
      nobody has that row, the value is missing, and says so
Follows specs/Cut.tla (Splices, Taken, Merged). `keep_mask` is the same decision for columns of events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from truecut.core.visibility import Ids, Snapshot, seen
from truecut.errors import require
from truecut.model.position import Position

Key = Hashable
Row = tuple[object, ...]
Kind = Literal["put", "delete", "move", "truncate"]


class Untold(Enum):
    """In place of a value."""

    ABSENT = "absent"  # in an event: it did not change
    MISSING = "missing"  # in a row: nobody has it


ABSENT, MISSING = Untold.ABSENT, Untold.MISSING


@dataclass(frozen=True, slots=True)
class Splice:
    """From where a unit's keys take events, and under which snapshot its rows were read. A unit that was
    applied before has none: it goes on from the cursor."""

    after: Position
    snapshot: Snapshot | None = None

    def keeps(self, *, at: Position, xid: int) -> bool:
        """S1: whether an event follows the rows. `at` is the place of its commit, `xid` its top-level id."""
        return at > self.after and (self.snapshot is None or not self.snapshot.sees(xid))


def keep_mask(
    *, place: Ids, xid: Ids, unit: NDArray[np.intp], splices: Sequence[Splice | None], generation: int
) -> NDArray[np.bool_]:
    """S1 for columns: commit's place, top-level id and unit of each event. None: a unit that is not there yet
    takes nothing; neither do keys of no unit (-1)."""
    keep = np.zeros(len(unit), np.bool_)
    for index in np.unique(unit[unit >= 0]):
        splice = splices[index]
        if splice is not None:
            rows = np.flatnonzero(unit == index)
            keep[rows] = _kept(splice, place[rows], xid[rows], generation)
    return keep


def _kept(splice: Splice, place: Ids, xid: Ids, generation: int) -> NDArray[np.bool_]:
    require(splice.after.generation == generation, "a splice lies within one generation of its log")
    follows = place > np.uint64(splice.after.place)
    return follows if splice.snapshot is None else follows & ~seen(splice.snapshot, xid)


@dataclass(frozen=True, slots=True)
class Event:
    """One change as the log tells it: `after` is the row with what was told of it."""

    kind: Kind
    key: Key = None
    to: Key = None  # the new key of a move
    after: Row = ()


Takes = Callable[[Key], bool]


def merged(before: Row | None, after: Row) -> Row:
    """S2, column by column."""
    if before is None:
        return tuple(MISSING if value is ABSENT else value for value in after)
    return tuple(old if value is ABSENT else value for old, value in zip(before, after, strict=True))


def taken(rows: Mapping[Key, Row], event: Event, takes: Takes) -> dict[Key, Row]:
    """Taken: the rows after an event, which counts for those keys whose units take it. A moved row brings its
    values along only from where the move counts, too: elsewhere the row has gone already, or was never
    there."""
    left = dict(rows)
    if event.kind == "truncate":
        return {key: row for key, row in left.items() if not takes(key)}
    moves = event.kind == "move"
    before = left.get(event.key) if takes(event.key) else None
    if takes(event.key) and event.kind != "put":
        left.pop(event.key, None)
    target = event.to if moves else event.key
    if event.kind != "delete" and takes(target):
        left[target] = merged(before, event.after)
    return left


def incomplete(row: Row) -> bool:
    """S2: whether a value of it is missing."""
    return MISSING in row
