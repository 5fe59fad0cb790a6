"""What is certified of a copy at later places: its ledger, extended by the segments delivered since.

Picklable work for an executor; the ledger is not changed, and nothing is read from a sink. The ledger must be
what the last certificate claims, by its root, and nobody may fold meanwhile (`runtime.claims`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.compute as pc

from truecut.certificate.folding import Target, are_continued, ledger_path
from truecut.certificate.ledger import Contradiction, Ledger
from truecut.certificate.segment import Segment, batches_of, copy_folder, segments_between
from truecut.model.change import TRUNCATE


@dataclass(frozen=True, slots=True)
class Extended:
    """The copy at one place."""

    root: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Extension:
    """From what a certificate claims (`root`, at the head `target.since`) to where a copy stands, and to the
    places on the way that are asked for."""

    folder: str
    target: Target
    root: bytes
    places: tuple[int, ...]

    def run(self) -> tuple[Extended, ...] | str:
        """One for each place; or why nobody can say."""
        try:
            return self._extended()
        except Contradiction as contradiction:
            return f"its evidence contradicts itself: {contradiction}"
        except duckdb.Error as error:
            return f"its ledger cannot be read ({type(error).__name__})"

    def _extended(self) -> tuple[Extended, ...] | str:
        target, segments = self.target, self._segments()
        if segments is None:
            return "a segment of its evidence is missing, or is not what it was"
        if any(one.header.kind == "base" for one in segments):
            return "it was made anew since the last certificate"
        path = ledger_path(Path(self.folder), sink=target.sink, table=target.table)
        with Ledger.open(path, target.mode) as ledger:
            standing, known = ledger.standing, ledger.buckets()
        if (standing.edition, standing.evidence) != (
            target.edition,
            target.since,
        ) or known.root() != self.root:
            return "its ledger is not what the last certificate claims"
        if not are_continued([standing.columns, *(one.columns for one in segments), target.columns]):
            return "its columns changed"
        found = []
        for place in self.places:
            with Ledger.open(path, target.mode) as ledger:
                buckets = ledger.extended(segments, place).buckets()
            found.append(Extended(buckets.root(), int(buckets.counts.sum())))
        return tuple(found)

    def _segments(self) -> list[Segment] | None:
        folder = copy_folder(Path(self.folder), sink=self.target.sink, table=self.target.table)
        return segments_between(folder, after=self.target.since, head=self.target.evidence)

    def touched(self, *, after: int) -> frozenset[bytes] | None:
        """The keys of what happened beyond a place, by their digests; None: all of them, or nobody knows."""
        return _touched(self._segments() or (), after)


def _touched(segments: Sequence[Segment], after: int) -> frozenset[bytes] | None:
    found: set[bytes] = set()
    for segment in segments:
        for batch in batches_of(segment):
            late = batch.filter(pc.greater(batch.column("place"), after))
            if pc.any(pc.equal(late.column("op"), TRUNCATE)).as_py():
                return None
            found.update(late.column("key").to_pylist())
    return frozenset(found)
