"""Certificates for the checker that was extracted from the proof: of a life of the machine, and as lines.

A life (tests/core/cut_life.py) is the code's own units, brackets and snapshots beside a source in small. What
the sink holds in the end is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.core.cut_life import Life
from tests.core.cut_source import OTHERS, Commit, Rows, Written
from truecut.core.cut import Bound, Unit
from truecut.core.visibility import Snapshot, nearest

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """A unit and its rows."""

    low: bytes | None
    high: bytes | None
    lo: int
    hi: int
    snapshot: Snapshot
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """No key: TRUNCATE. No row: deleted."""

    place: int
    xid: int
    key: bytes | None = None
    row: bytes | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """Fields in the order of Checker.v."""

    start: int
    before: Snapshot
    frontier: int
    units: tuple[Part, ...]
    log: tuple[Change, ...]
    parents: tuple[tuple[int, int], ...]
    claimed: tuple[Row, ...]


# --- of a life ----------------------------------------------------------------------------------------


def of(life: Life) -> Certificate:
    """What a backfill that has ended would claim."""
    slot = life.backfill.slot
    commits = [one for one in life.source.commits if slot.at.place < one.place <= life.sink.cursor.place]
    return Certificate(
        slot.at.place,
        slot.seen,
        life.sink.cursor.place,
        tuple(_part(life, unit) for unit in life.backfill.units),
        tuple(change for one in commits for written in one.written for change in _changes(one, written)),
        tuple(pair for one in commits for pair in _parents(one, slot.seen.xmax)),
        _rows(life.sink.rows),
    )


def _part(life: Life, unit: Unit) -> Part:
    told = unit.evidence
    assert told is not None
    low, high = _bound(unit.range.low), _bound(unit.range.high)
    rows = _rows(life.files[unit.range, told])
    return Part(low, high, told.lo.place, told.hi.place, told.snapshot, rows)


def _bound(bound: Bound) -> bytes | None:
    return None if bound is None else _key(bound)


def _key(key: object) -> bytes:
    assert isinstance(key, int)
    return bytes([key])


def _rows(rows: Rows) -> tuple[Row, ...]:
    return tuple((_key(key), repr(rows[key]).encode()) for key in sorted(set(rows) - set(OTHERS)))


def _changes(one: Commit, written: Written) -> list[Change]:
    """A changed key is gone there and here now."""
    event = written.event
    if event.kind == "truncate":
        return [Change(one.place, written.xid)]
    if event.key in OTHERS:
        return []
    gone = [Change(one.place, written.xid, _key(event.key))] if event.kind != "put" else []
    row = repr(written.full).encode()
    return gone + ([Change(one.place, written.xid, _key(event.to), row)] if event.kind != "delete" else [])


def _parents(one: Commit, near: int) -> list[tuple[int, int]]:
    wide = [(nearest(sub, near=near), nearest(top, near=near)) for sub, top in one.tops.items()]
    return [(sub, top) for sub, top in wide if sub != top]


# --- as lines -----------------------------------------------------------------------------------------


def lines(one: Certificate) -> Iterable[str]:
    """As proofs/verdicts.ml reads it."""
    yield f"log {one.start:x} {_snapshot(one.before)}"
    yield f"frontier {one.frontier:x}"
    for part in one.units:
        yield f"unit {_hex(part.low)} {_hex(part.high)} {part.lo:x} {part.hi:x} {_snapshot(part.snapshot)}"
        yield from (f"row {_hex(key)} {_hex(row)}" for key, row in part.rows)
    for change in one.log:
        yield f"change {change.place:x} {change.xid:x} {_hex(change.key)} {_hex(change.row)}"
    yield from (f"parent {sub:x} {top:x}" for sub, top in one.parents)
    yield from (f"claim {_hex(key)} {_hex(row)}" for key, row in one.claimed)
    yield "end"


def _hex(data: bytes | None) -> str:
    return "-" if data is None else f"={data.hex()}"


def _snapshot(one: Snapshot) -> str:
    return f"{one.xmax:x} {','.join(f'{xid:x}' for xid in sorted(one.xip)) or '-'}"
