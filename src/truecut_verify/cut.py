"""The virtual cut: may this state be claimed at this frontier, of units read under snapshots and a log?

The decision of proofs/Checker.v in plain Python, function by function; `accepted_is_cut` there says what its
word is worth, and under which premises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Sees every transaction below `xmax` that was not running."""

    xmax: int
    running: frozenset[int]

    def sees(self, xid: int) -> bool:
        """Whether what it wrote is in the rows that were read."""
        return xid < self.xmax and xid not in self.running

    def includes(self, other: Snapshot) -> bool:
        """Whether it sees all that the other one sees."""
        late = [xid for xid in other.running if self.xmax <= xid < other.xmax]
        return not any(map(other.sees, self.running)) and len(late) == max(other.xmax - self.xmax, 0)


@dataclass(frozen=True, slots=True)
class ReadUnit:
    """A half-open range of keys (None: no bound), between which places it was read, and its rows in order."""

    low: bytes | None
    high: bytes | None
    lo: int
    hi: int
    snapshot: Snapshot
    rows: Sequence[Row]

    def holds(self, key: bytes) -> bool:
        """Whether a key is of its range."""
        return (self.low is None or self.low <= key) and (self.high is None or key < self.high)


@dataclass(frozen=True, slots=True)
class Change:
    """Of the log. No key: TRUNCATE. No row: deleted."""

    place: int
    xid: int
    key: bytes | None
    row: bytes | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is decided about."""

    start: int  # where the log begins
    before: Snapshot  # who lies before that
    frontier: int
    units: Sequence[ReadUnit]
    log: Sequence[Change]
    parents: Mapping[int, int]  # subtransactions, and whose they are
    claimed: Sequence[Row]


def decide(evidence: Evidence) -> str | None:
    """None: accepted. Otherwise what is wrong."""
    if not _units_ok(evidence.units):
        return "the units do not cover every key once"
    if not _log_ok(evidence):
        return "the log is out of order, or not between its start and the frontier"
    if not _rising([key for key, _ in evidence.claimed]):
        return "the claimed rows are not in order, or one is there twice"
    claims = dict(evidence.claimed)
    for n, unit in enumerate(evidence.units):
        wrong = _unit_wrong(evidence, unit, claims)
        if wrong is not None:
            return f"unit {n}: {wrong}"
    return None


def _units_ok(units: Sequence[ReadUnit]) -> bool:
    if not units or units[0].low is not None or units[-1].high is not None:
        return False
    meet = all(one.high is not None and one.high == two.low for one, two in pairwise(units))
    return meet and all(one.low < one.high for one in units if one.low is not None and one.high is not None)


def _log_ok(evidence: Evidence) -> bool:
    places = [change.place for change in evidence.log]
    in_order = all(one <= two for one, two in pairwise(places))
    return in_order and all(evidence.start < place <= evidence.frontier for place in places)


def _rising(keys: Sequence[bytes]) -> bool:
    return all(one < two for one, two in pairwise(keys))


def _unit_wrong(evidence: Evidence, unit: ReadUnit, claims: Mapping[bytes, bytes]) -> str | None:
    if not _rising([key for key, _ in unit.rows]) or not all(unit.holds(key) for key, _ in unit.rows):
        return "its rows are not in order, or not of its range"
    if not evidence.start <= unit.lo <= unit.hi <= evidence.frontier:
        return "it was not read between the log's start and the frontier"
    if not unit.snapshot.includes(evidence.before):
        return "its snapshot does not see all that lies before the log"
    seen = [unit.snapshot.sees(evidence.parents.get(change.xid, change.xid)) for change in evidence.log]
    for change, visible in zip(evidence.log, seen, strict=True):
        if not (change.place <= unit.hi if visible else unit.lo < change.place):
            return "its snapshot and its bounds in the log contradict each other"
    return _state_wrong(evidence, unit, seen, claims)


def _state_wrong(
    evidence: Evidence, unit: ReadUnit, seen: Sequence[bool], claims: Mapping[bytes, bytes]
) -> str | None:
    """The unit's rows, then every change that its snapshot did not see: is that what is claimed?"""
    state = dict(unit.rows)
    for change, visible in zip(evidence.log, seen, strict=True):
        if visible or change.place <= unit.lo:
            continue
        if change.key is None:
            state.clear()
        elif change.row is None:
            state.pop(change.key, None)
        else:
            state[change.key] = change.row
    mine = {key: row for key, row in state.items() if unit.holds(key)}
    claimed = {key: row for key, row in claims.items() if unit.holds(key)}
    if mine == claimed:
        return None
    first = min(key for key in {*mine, *claimed} if mine.get(key) != claimed.get(key))
    return f"another row than is claimed, of the key {first.hex()}"
