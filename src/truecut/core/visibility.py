"""Which transactions a PostgreSQL snapshot sees.

Owns: the text of `pg_current_snapshot()`, 64-bit transaction ids, and whether one snapshot sees all that
another one sees. A snapshot names top-level transactions only: the id of a subtransaction below xmax would
pass for seen while its transaction still runs, so an id is taken to its top level first. Follows
specs/Cut.tla (Sees, Includes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_TEXT = re.compile(r"(\d+):(\d+):((?:\d+(?:,\d+)*)?)")
_WRAP = 1 << 32
_HALF = 1 << 31

Ids = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Seen is what is below xmax and not among those that were running."""

    xmin: int
    xmax: int
    xip: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        inside = all(self.xmin <= xid < self.xmax for xid in self.xip)
        if not (0 < self.xmin <= self.xmax and inside):
            raise ValueError(f"not a snapshot: {self}")

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.xip)))}"

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read what `pg_current_snapshot()` told; ValueError when it is anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a snapshot: {text!r}; expected e.g. 795:799:795,797")
        running = frozenset(int(xid) for xid in match[3].split(",") if xid)
        return cls(int(match[1]), int(match[2]), running)

    def sees(self, xid: int) -> bool:
        """Sees: whether a top-level transaction was over when the snapshot was taken."""
        return xid < self.xmax and xid not in self.xip

    def includes(self, other: Snapshot) -> bool:
        """Includes: it sees whatever the other one sees."""
        missed = {xid for xid in self.xip if other.sees(xid)}
        later = range(self.xmax, other.xmax)  # none of these is seen here
        return not missed and len(later) == sum(xid in later for xid in other.xip)


def seen(snapshot: Snapshot, xids: Ids) -> NDArray[np.bool_]:
    """`sees`, of many at once."""
    running = np.fromiter(snapshot.xip, np.uint64, len(snapshot.xip))
    return (xids < np.uint64(snapshot.xmax)) & ~np.isin(xids, running)


def nearest(xid: int, *, near: int) -> int:
    """The 64-bit id of a 32-bit one: of all that end so, the one nearest to another. No two ids that are in
    use at a time are further apart than half the circle. `near` is the xmax of a snapshot of about then."""
    return max(near + (xid - near + _HALF) % _WRAP - _HALF, xid % _WRAP)


def nearest_of(xids: Ids, *, near: int) -> Ids:
    """`nearest`, of many at once."""
    offset = (xids - np.uint64(near % _WRAP) + np.uint64(_HALF)) % np.uint64(_WRAP)
    if near < _HALF:  # an id below zero never was
        signed = offset.astype(np.int64) + (near - _HALF)
        return np.where(signed < 0, xids % np.uint64(_WRAP), signed.astype(np.uint64))
    return offset + np.uint64(near - _HALF)


def top_level(xid: int, tops: Mapping[int, int]) -> int:
    """The transaction that an event belongs to: streamed events carry the id of their subtransaction."""
    return tops.get(xid, xid)
