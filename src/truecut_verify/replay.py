"""V2: does the evidence make the state that is claimed? Segments are replayed from a base on, claim by claim.

Memory is bounded: a copy with many rows is replayed in several parts, each a range of buckets, and every part
reads the evidence again. The root at a claim is put together from the parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from truecut_verify.digest import MODULUS, bucket
from truecut_verify.documents import Copy, Segment
from truecut_verify.evidence import Run, columns_of
from truecut_verify.folder import Folder
from truecut_verify.verdict import Fail, Finding, Unknown

BUCKETS = 4096
ROWS_AT_ONCE = 4_000_000  # of evidence, for one part: under two gigabytes
INSERT, UPDATE, DELETE, READ, TRUNCATE = 1, 2, 3, 4, 5

Cells = dict[int, int]
Event = tuple[int, int, int, bytes | None, bytes | None, list[int] | None, Cells]


@dataclass(slots=True)
class Buckets:
    """Sums and counts of the buckets `low` to `high` - 1, as the bytes that a root is the hash of."""

    low: int = 0
    high: int = BUCKETS
    sums: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    _stale: set[int] = field(default_factory=set)
    _sums: bytearray = field(default_factory=bytearray)
    _counts: bytearray = field(default_factory=bytearray)

    def add(self, key: bytes, row: int, each: int = 1) -> None:
        """A row is there now; -1: no more."""
        at = bucket(key)
        self.sums[at] = (self.sums.get(at, 0) + each * row) % MODULUS
        self.counts[at] = self.counts.get(at, 0) + each
        self._stale.add(at)

    def clear(self) -> None:
        """Nothing is there."""
        self._stale.update(self.sums)
        self.sums.clear()
        self.counts.clear()

    def raw(self) -> tuple[bytes, bytes]:
        """All sums, each as four words, the lowest first; all counts."""
        if not self._sums:
            self._sums, self._counts = (
                bytearray(16 * (self.high - self.low)),
                bytearray(8 * (self.high - self.low)),
            )
        for at in self._stale:
            number, n = self.sums.get(at, 0).to_bytes(16, "big"), at - self.low
            self._sums[16 * n : 16 * n + 16] = number[12:] + number[8:12] + number[4:8] + number[:4]
            self._counts[8 * n : 8 * n + 8] = self.counts.get(at, 0).to_bytes(8, "big")
        self._stale.clear()
        return bytes(self._sums), bytes(self._counts)

    def root(self) -> bytes:
        """Of a whole table."""
        sums, counts = self.raw()
        return hashlib.sha256(sums + counts).digest()

    @property
    def rows(self) -> int:
        """How many."""
        return sum(self.counts.values())


@dataclass(slots=True)
class State:
    """Key → row and the cells that may be needed again, of some buckets."""

    buckets: Buckets
    rows: dict[bytes, tuple[int, Cells]] = field(default_factory=dict)

    def put(self, key: bytes, row: int, cells: Cells) -> None:
        """A row that is not there yet."""
        self.rows[key] = row, cells
        self.buckets.add(key, row)

    def take(self, key: bytes) -> tuple[int, Cells]:
        """A row that is there, away."""
        row, cells = self.rows.pop(key)
        self.buckets.add(key, row, -1)
        return row, cells

    def clear(self) -> None:
        """TRUNCATE, or a new base."""
        self.rows.clear()
        self.buckets.clear()


def apply(state: State, event: Event) -> None:
    """One change. A key that is there, or is not, against the rules is a failure; what is absent and was
    never told is unknown."""
    _, _, op, key, raw, absent, told = event
    if op == TRUNCATE:
        return state.clear()
    if key is None or (raw is None) != (op == DELETE):
        raise Fail("a change without its key or row, or with one too many")
    if op in (UPDATE, DELETE) and key not in state.rows:
        raise Fail("a change of a row that is not there", key_digest=key.hex())
    if op in (INSERT, READ) and key in state.rows:
        raise Fail("a row that is there already", key_digest=key.hex())
    before = state.take(key)[1] if op in (UPDATE, DELETE) else {}
    if raw is None:
        return None
    row, cells = int.from_bytes(raw, "big"), dict(told)
    for column in absent or ():
        if column not in before:
            raise Unknown("a value that was not sent, and was never told before", key_digest=key.hex())
        cells[column] = before[column]
        row += before[column]
    return state.put(key, row % MODULUS, cells)


def events(folder: Folder, segment: Segment, low: int, high: int) -> Iterator[Event]:
    """The changes of a segment to rows of these buckets; a truncate is of all."""
    whole = (low, high) == (0, BUCKETS)
    names = ["place", "seq", "op", "key", "row", "absent", "cells"]
    for columns in columns_of(folder, segment, names):
        for place, seq, op, key, row, absent, cells in zip(*columns, strict=True):
            if whole or key is None or low <= bucket(key) < high:
                told = {one["column"]: int.from_bytes(one["digest"], "big") for one in cells or ()}
                yield place, seq, op, key, row, absent, told


def _allowed(mode: str, kind: str) -> frozenset[int]:
    if kind == "base":
        return frozenset({READ})
    return frozenset({INSERT}) if mode == "append" else frozenset({INSERT, UPDATE, DELETE, TRUNCATE})


def replay_segment(folder: Folder, state: State, segment: Segment, mode: str) -> None:
    """Onto a state, which a base of a mirror replaces."""
    if segment.kind == "base" and mode == "mirror":
        state.clear()
    allowed = _allowed(mode, segment.kind)
    for event in events(folder, segment, state.buckets.low, state.buckets.high):
        try:
            if event[2] not in allowed:
                raise Fail(f"an operation ({event[2]}) that such a segment cannot have")
            apply(state, event)
        except Finding as finding:
            finding.witness.update(upto=segment.upto, place=event[0], seq=event[1])
            raise


def replay_all(folder: Folder, run: Run, low: int, high: int) -> State:
    """What all segments of a run come to, of some buckets."""
    state = State(Buckets(low, high))
    for segment in run.segments:
        replay_segment(folder, state, segment, run.mode)
    return state


def parts_of(run: Run) -> list[tuple[int, int]]:
    """Ranges of buckets, so that one holds a bearable number of rows."""
    rows = sum(segment.rows for segment in run.segments)
    count = 1
    while count < BUCKETS and rows > count * ROWS_AT_ONCE:
        count *= 2
    size = BUCKETS // count
    return [(low, low + size) for low in range(0, BUCKETS, size)]


def replay(folder: Folder, run: Run) -> None:
    """Each claim of the run, against what its segments come to; the first that is wrong is raised."""
    claims = [step for step in run.steps if step.claim is not None]
    tallies = [Tally() for _ in claims]
    found: list[tuple[int, Finding]] = []
    parts = parts_of(run)
    for low, high in parts:
        found += _replay_part(folder, run, State(Buckets(low, high)), tallies)
    for step, tally in zip(claims, tallies, strict=True):
        if step.claim is not None and tally.parts == len(parts):
            _compare(step.claim, tally, step.number)
    if found:
        raise min(found, key=lambda one: one[0])[1]


@dataclass(slots=True)
class Tally:
    """A root that is put together part by part."""

    parts: int = 0
    rows: int = 0
    counts: bytes = b""
    hashed: Any = field(default_factory=hashlib.sha256)

    def take(self, buckets: Buckets) -> None:
        """The next part."""
        sums, counts = buckets.raw()
        self.hashed.update(sums)
        self.counts += counts
        self.parts, self.rows = self.parts + 1, self.rows + buckets.rows

    def root(self) -> bytes:
        """Of all parts."""
        self.hashed.update(self.counts)
        return bytes(self.hashed.digest())


def _replay_part(
    folder: Folder, run: Run, state: State, tallies: Sequence[Tally]
) -> list[tuple[int, Finding]]:
    """The first step that cannot be replayed, if there is one; nothing after it is known."""
    claims = iter(tallies)
    for n, step in enumerate(run.steps):
        try:
            if step.segment is not None:
                replay_segment(folder, state, step.segment, run.mode)
            else:
                next(claims).take(state.buckets)
        except Finding as finding:
            finding.witness.setdefault("certificate", step.number)
            return [(n, finding)]
    return []


def _compare(claim: Copy, tally: Tally, number: int) -> None:
    if claim.verdict == "unknown":
        return
    if tally.rows != claim.rows:
        raise Fail(f"replay gives {tally.rows} rows, the certificate claims {claim.rows}", certificate=number)
    if tally.root() != claim.root:
        raise Fail("replay gives another content than the certificate claims", certificate=number)


def check_replay(folder: Folder, runs: Sequence[Run]) -> None:
    """V2 of a copy. Runs whose evidence is gone and that a later base replaced say nothing any more."""
    for run in runs:
        here = run.has_base and all(folder.find(name) for one in run.segments for name in one.files)
        if here or run is runs[-1]:
            replay(folder, run)
    last = runs[-1].steps[-1].claim
    if last is not None and last.verdict == "unknown":
        raise Unknown(f"the certificate itself says that it does not know: {last.reason}")
