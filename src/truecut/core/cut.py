"""A table that is copied while it changes: its units, what is known of each, and when each may be applied.

Promises:
  C1  units are half-open ranges from the lowest key to the highest; each key is in exactly one
  C2  a unit's snapshot sees all that the log leaves out, be it of before the slot or of before the table
      was published; all that it does not see lies after its lo, all
      that it sees at or before its hi, which is a commit
  C3  what is known of a unit is durable in the journal before the unit is applied
  C4  a unit is applied at hi or later, once in an edition, and its range is replayed from lo
  C5  a unit that lacks a value is read again, under a snapshot that sees all up to where that was found
  C6  the table streams from the frontier at which its last unit was applied
Follows specs/Cut.tla; public functions that make a backfill of a backfill are its actions. No I/O, no
clock. Bounds of ranges are opaque: only the source knows their order. What the sink keeps of it (edition,
applied, floors) is in its cursor, what the journal keeps is a unit's evidence; the rest is volatile.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from truecut.core.splice import Splice
from truecut.core.visibility import Snapshot
from truecut.errors import require
from truecut.model.position import Position

Bound = Hashable  # a key as the source writes it; None: no bound


@dataclass(frozen=True, slots=True)
class Range:
    """Keys from `low` to below `high`; None is below, or above, all keys."""

    low: Bound = None
    high: Bound = None


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the log begins, and which transactions lie before it."""

    at: Position
    seen: Snapshot
    writers: frozenset[int] = frozenset()  # had written to the table before its rows were in the log


@dataclass(frozen=True, slots=True)
class Log:
    """Commits in order: where, and which top-level transaction. It begins where the slot does, or at the lo
    of any snapshot that was taken: what one sees is seen by all later ones."""

    after: Position
    commits: Sequence[tuple[Position, int]]


@dataclass(frozen=True, slots=True)
class Opened:
    """A reader is at it: its snapshot, and where the log ended right after that was taken."""

    snapshot: Snapshot
    end: Position


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the journal's record says of a unit that was read."""

    snapshot: Snapshot
    lo: Position
    hi: Position
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Unit:
    """One range and how far it is."""

    range: Range
    floor: Position | None = None  # its snapshot has to see all up to here (C5)
    opened: Opened | None = None
    evidence: Evidence | None = None
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Backfill:
    """One table at one sink. `units` are in the order of their ranges."""

    slot: Slot
    units: tuple[Unit, ...]
    cursor: Position
    edition: int = 1

    @property
    def streaming(self) -> bool:
        """C6: nothing is left to apply."""
        return all(unit.applied for unit in self.units)

    def with_units(self, changed: Mapping[int, Unit]) -> Backfill:
        """With other units in these places."""
        units = tuple(changed.get(index, unit) for index, unit in enumerate(self.units))
        return replace(self, units=units)


# --- the plan -----------------------------------------------------------------------------------------


def ranges(bounds: Sequence[Bound]) -> tuple[Range, ...]:
    """C1: everything, cut at these bounds, which are in the source's order."""
    edges = (None, *dict.fromkeys(bounds), None)
    return tuple(Range(low, high) for low, high in pairwise(edges))


def planned(histogram: Sequence[Bound], *, rows: int, rows_max: int) -> tuple[Range, ...]:
    """Units of at most about `rows_max` rows, by the source's statistics: between two bounds of the
    histogram there are about as many rows as between any other two. What it does not know of is in a unit
    for all that."""
    inner = list(dict.fromkeys(histogram))[1:-1]
    wanted = min(-(-rows // rows_max) - 1, len(inner))
    return ranges([inner[(n + 1) * len(inner) // (wanted + 1)] for n in range(wanted)])


def begin(slot: Slot, parts: Iterable[Range], *, cursor: Position) -> Backfill:
    """Init: a table that the sink does not have."""
    return Backfill(slot, tuple(Unit(part) for part in parts), cursor)


def split(backfill: Backfill, index: int, *, at: Bound) -> Backfill:
    """Split: a unit turned out to be large. A reader that is at it goes on with the part below `at`,
    under the snapshot that it has."""
    unit = backfill.units[index]
    require(at not in (unit.range.low, unit.range.high), "C1: no unit is empty")
    if unit.evidence is not None or unit.applied:
        return backfill
    left = replace(unit, range=Range(unit.range.low, at))
    right = replace(unit, range=Range(at, unit.range.high), opened=None)
    return replace(backfill, units=(*backfill.units[:index], left, right, *backfill.units[index + 1 :]))


# --- reading ------------------------------------------------------------------------------------------


def to_open(backfill: Backfill, *, workers: int) -> list[int]:
    """Units to be read next, also after a crash: those that no record tells of."""
    reading = sum(unit.opened is not None for unit in backfill.units)
    waiting = [index for index, unit in enumerate(backfill.units) if _unread(unit)]
    return waiting[: max(0, workers - reading)]


def _unread(unit: Unit) -> bool:
    return unit.opened is None and unit.evidence is None and not unit.applied


def open_unit(backfill: Backfill, index: int, *, snapshot: Snapshot, end: Position, log: Log) -> Backfill:
    """OpenUnit: unless its snapshot came too early, so that another one has to be taken (C2, C5). `log`
    reaches the unit's floor."""
    unit = backfill.units[index]
    if not _unread(unit) or not fits(backfill.slot, unit, snapshot, log):
        return backfill
    return backfill.with_units({index: replace(unit, opened=Opened(snapshot, end))})


def fits(slot: Slot, unit: Unit, snapshot: Snapshot, log: Log) -> bool:
    """Whether a unit may be read under the snapshot."""
    early = [
        xid
        for at, xid in log.commits
        if unit.floor is not None and at <= unit.floor and not snapshot.sees(xid)
    ]
    return snapshot.includes(slot.seen) and not unended(slot.writers, snapshot) and not early


def unended(writers: Collection[int], snapshot: Snapshot) -> frozenset[int]:
    """C2: who had written to the table before its rows were in the log, and may still commit that. Whoever
    is seen has ended, and what it wrote is in every unit."""
    return frozenset(xid for xid in writers if not snapshot.sees(xid))


def bracket(opened: Opened, *, log: Log) -> tuple[Position, Position]:
    """C2: lo and hi. hi is the last commit that the snapshot saw, lo the last place before the first that it
    did not see, hi at the latest. What the log leaves out was seen."""
    known = [(at, opened.snapshot.sees(xid)) for at, xid in log.commits if at <= opened.end]
    hi = max([log.after, *(at for at, is_seen in known if is_seen)])
    unseen = [at for at, is_seen in known if not is_seen and at < hi]
    return (replace(unseen[0], place=unseen[0].place - 1) if unseen else hi), hi


def record_unit(backfill: Backfill, index: int, *, rows: int, digest: str, log: Log) -> Backfill:
    """RecordUnit: its rows are stored, and the journal has its record. `log` reaches the reader's end."""
    unit = backfill.units[index]
    require(unit.opened is not None, "a unit is recorded by who has opened it")
    assert unit.opened is not None
    lo, hi = bracket(unit.opened, log=log)
    evidence = Evidence(unit.opened.snapshot, lo, hi, rows, digest)
    return backfill.with_units({index: replace(unit, opened=None, evidence=evidence)})


# --- delivery -----------------------------------------------------------------------------------------


def ready(backfill: Backfill, *, upto: Position) -> frozenset[int]:
    """C3, C4: the units that a wave up to there may apply."""
    return frozenset(
        index
        for index, unit in enumerate(backfill.units)
        if unit.evidence is not None and not unit.applied and unit.evidence.hi <= upto
    )


def splices(backfill: Backfill, units: Collection[int]) -> list[Splice | None]:
    """How each unit takes the events of a wave that applies these. None: not at all."""
    return [splice_of(unit, backfill.cursor, new=index in units) for index, unit in enumerate(backfill.units)]


def splice_of(unit: Unit, cursor: Position, *, new: bool) -> Splice | None:
    """C4: a new unit from its lo, one that was applied from the cursor."""
    if new and unit.evidence is not None:
        return Splice(unit.evidence.lo, unit.evidence.snapshot)
    return Splice(cursor) if unit.applied else None


def reads_after(backfill: Backfill, units: Collection[int]) -> Position:
    """Where a wave that applies these begins to read the log."""
    return min([backfill.cursor, *(s.after for s in splices(backfill, units) if s is not None)])


def wave(backfill: Backfill, *, upto: Position, units: Collection[int], torn: Collection[int]) -> Backfill:
    """Wave: the sink has committed. `torn` are units that lack a value now: the same commit took them out."""
    require(upto >= backfill.cursor, "a frontier never moves back")
    require(ready(backfill, upto=upto) >= set(units), "C4: what was applied was ready")
    changed = {index: replace(backfill.units[index], applied=True) for index in units}
    changed |= {index: Unit(backfill.units[index].range, floor=upto) for index in torn}
    return replace(backfill.with_units(changed), cursor=upto)


def repeat(backfill: Backfill) -> Backfill:
    """Repeat: a new edition of a table that streams, with the same units."""
    require(backfill.streaming, "a backfill that is under way is not begun again")
    units = tuple(Unit(unit.range) for unit in backfill.units)
    return replace(backfill, units=units, edition=backfill.edition + 1)


def forget(backfill: Backfill) -> Backfill:
    """Forget: what is neither in the journal nor in the sink is forgotten."""
    return replace(backfill, units=tuple(replace(unit, opened=None) for unit in backfill.units))


def recovered(
    slot: Slot,
    parts: Iterable[Range],
    *,
    cursor: Position,
    edition: int,
    applied: Collection[Range],
    floors: Mapping[Range, Position],
    records: Mapping[Range, Evidence],
) -> Backfill:
    """After a crash, from what is durable: the plan, the sink's cursor, and the journal's records of this
    edition. A record from before the sink asked for another reading is void (C5)."""
    require(set(applied) <= set(records), "C3: what was applied has its record")
    units = []
    for part in parts:
        floor, record = floors.get(part), records.get(part)
        void = record is None or (floor is not None and record.lo < floor)
        units.append(Unit(part, floor, evidence=None if void else record, applied=part in applied))
    return Backfill(slot, tuple(units), cursor, edition)


def needed_after(backfill: Backfill, *, settled: Position, log: Log) -> Position:
    """What of the log may go: all up to here. `settled` is the lo of a snapshot, the latest that was asked
    for: those to come see at least as much, in this edition or the next; those of readers at work may be
    older."""
    known = [unit.evidence.lo for unit in backfill.units if unit.evidence is not None and not unit.applied]
    known += [bracket(unit.opened, log=log)[0] for unit in backfill.units if unit.opened is not None]
    return min([backfill.cursor, settled, *known])


# --- what may be claimed ------------------------------------------------------------------------------


def doubts(backfill: Backfill, *, frontier: Position) -> list[str]:
    """Claimed: why it cannot be said that the copy is the source at a frontier; nothing if it can. Each
    key is in one unit, each unit was applied, and its evidence lies at or before the frontier."""
    found = (
        [] if _whole([unit.range for unit in backfill.units]) else ["the units do not cover all keys once"]
    )
    for number, unit in enumerate(backfill.units, start=1):
        found += [f"unit {number}: {doubt}" for doubt in _doubts(unit, backfill.slot, frontier)]
    return found


def _whole(parts: Sequence[Range]) -> bool:
    """C1: bounds are compared for equality alone."""
    if not parts or parts[0].low is not None or parts[-1].high is not None:
        return False
    inner = [part.high for part in parts[:-1]]
    return inner == [part.low for part in parts[1:]] and None not in inner and len(set(inner)) == len(inner)


def _doubts(unit: Unit, slot: Slot, frontier: Position) -> list[str]:
    evidence = unit.evidence
    if evidence is None or not unit.applied:
        return ["it was not applied"]
    checks = {
        "its snapshot does not see all that lies before the log": evidence.snapshot.includes(slot.seen),
        "it does not lie within the log": slot.at <= evidence.lo <= evidence.hi,
        "it ends after the frontier": evidence.hi <= frontier,
    }
    return [doubt for doubt, holds in checks.items() if not holds]
