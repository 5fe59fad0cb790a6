"""From a copy's cursor to what can be claimed of it: its ledger is brought to the cursor's head.

Picklable work for an executor; nothing is read from the sink. Whatever is missing or contradicts makes the
claim unknown, with the reason.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb

from truecut.certificate.chain import NO_HEAD
from truecut.certificate.ledger import Contradiction, Ledger, Standing, Verdict, begins
from truecut.certificate.segment import Segment, copy_folder, segments_between
from truecut.model.table import Mode

LEDGERS = "ledgers"
AGAIN = ".again"  # a ledger on its way to take the place of one that cannot be used


@dataclass(frozen=True, slots=True)
class Target:
    """A copy as its sink's cursor shows it."""

    table: str
    sink: str
    mode: Mode
    edition: int
    at: str
    evidence: str
    columns: str  # as `columns_text` tells them
    since: str  # the head in the last certificate


@dataclass(frozen=True, slots=True)
class Claim:
    """What came of it."""

    verdict: Verdict
    reason: str
    rows: int
    root: bytes | None
    segments: tuple[dict[str, Any], ...]  # headers, with their files, since the last certificate
    untold: bool = False  # what led to the copy's head is not among them, and cannot be: no head is told
    units: str = "[]"  # that the last base among these was read in, as canonical JSON


def ledger_path(folder: Path, *, sink: str, table: str) -> Path:
    """Where a copy's ledger is."""
    return folder / LEDGERS / f"{copy_folder(folder, sink=sink, table=table).name}.duckdb"


@dataclass(frozen=True, slots=True)
class Folding:
    """One copy's."""

    folder: str
    target: Target

    def run(self) -> Claim:
        """Fold, and say what can be claimed."""
        target = self.target
        if target.evidence == NO_HEAD:
            return _unknown(
                "no evidence was gathered since it was copied; copy it again to have it certified"
            )
        path = ledger_path(Path(self.folder), sink=target.sink, table=target.table)
        path.parent.mkdir(parents=True, exist_ok=True)
        segments = self._segments(target.since)
        if segments is None:
            return _unknown("a segment of its evidence is missing, or is not what it was", untold=True)
        try:
            claim = self._claimed(path)
        except Exception as error:  # noqa: BLE001 - whatever it is, the claim is unknown
            claim = unforeseen(error)
        bases = [one.beside.units for one in segments if one.header.kind == "base"]
        told = tuple(self._told(one) for one in segments)
        return replace(claim, untold=False, segments=told, units=bases[-1] if bases else "[]")

    def _claimed(self, path: Path) -> Claim:
        """By the copy's ledger; by one that is made again of all evidence where that cannot be used. It takes
        the other's place only where it knows: what hurt the first one (a full disk) may hurt the second."""
        try:
            return self._folded_in(path)
        except duckdb.Error as error:
            again = path.with_suffix(AGAIN)
            _remove(again)
            try:
                claim = self._folded_in(again)
                if claim.verdict != "certified":
                    raise error
                _journal_of(path).unlink(missing_ok=True)  # it is not of the file that comes
                again.replace(path)
            finally:
                _remove(again)
            return claim

    def _folded_in(self, path: Path) -> Claim:
        with Ledger.open(path, self.target.mode, read_only=False) as ledger:
            return self._folded(ledger)

    def _folded(self, ledger: Ledger) -> Claim:
        target, standing = self.target, ledger.standing
        to = Standing(target.edition, target.at, target.evidence, target.columns, "certified", "")
        whole = standing.verdict == "certified"
        if standing.evidence == target.evidence and standing.columns == target.columns:
            if not whole:
                return _unknown(standing.reason)
            if standing.at != target.at:
                ledger.fold([], to)
            return _claim(ledger)
        segments = self._segments(standing.evidence)
        if segments is None:
            return self._doubted(ledger, to, "a segment of its evidence is missing, or is not what it was")
        anew = any(begins(one, target.mode) for one in segments)
        if not (whole or anew) and standing.evidence != NO_HEAD:
            return self._doubted(ledger, to, standing.reason)  # until the copy is made anew
        columns = [one.columns for one in segments] + [target.columns]
        if not anew and standing.evidence != NO_HEAD:
            columns.insert(0, standing.columns)
        if not are_continued(columns):
            reason = "its columns changed; copy it again, or verify it against the source"
            return self._doubted(ledger, to, reason)
        try:
            ledger.fold(segments, to)
        except Contradiction as contradiction:
            return self._doubted(ledger, to, f"its evidence contradicts itself: {contradiction}")
        return _claim(ledger)

    def _doubted(self, ledger: Ledger, to: Standing, reason: str) -> Claim:
        ledger.doubt(reason, to)
        return _unknown(reason)

    def _segments(self, after: str) -> list[Segment] | None:
        folder = copy_folder(Path(self.folder), sink=self.target.sink, table=self.target.table)
        return segments_between(folder, after=after, head=self.target.evidence)

    def _told(self, segment: Segment) -> dict[str, Any]:
        found: dict[str, Any] = segment.header.told()
        found["files"] = [os.path.relpath(file, self.folder) for file in segment.files]
        if segment.beside.splice:
            found["splice"] = json.loads(segment.beside.splice)
        return found


def _claim(ledger: Ledger) -> Claim:
    buckets = ledger.buckets()
    return Claim("certified", "", int(buckets.counts.sum()), buckets.root(), ())


def unforeseen(error: Exception) -> Claim:
    """Of a folding that broke: the others go on. Only the class is told, a text may hold anything."""
    return _unknown(f"its evidence could not be folded: unexpected {type(error).__name__}", untold=True)


def _unknown(reason: str, *, untold: bool = False) -> Claim:
    return Claim("unknown", reason, 0, None, (), untold=untold)


def _journal_of(ledger: Path) -> Path:
    """DuckDB's write-ahead log of the file."""
    return ledger.with_name(f"{ledger.name}.wal")


def _remove(ledger: Path) -> None:
    for path in (ledger, _journal_of(ledger)):
        path.unlink(missing_ok=True)


def are_continued(columns: list[str]) -> bool:
    """Whether rows that nobody touched have the same digests all along: renames, and columns that old rows
    have NULL in."""
    shapes = [{number: (form, initial) for _, number, form, initial in json.loads(one)} for one in columns]
    return all(_follows(a, b) for a, b in pairwise(shapes))


def _follows(before: dict[int, Any], after: dict[int, Any]) -> bool:
    kept = all(number in after and after[number][0] == shape[0] for number, shape in before.items())
    return kept and all(shape[1] is None for number, shape in after.items() if number not in before)
