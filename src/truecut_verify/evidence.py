"""V1: is the evidence the one that was meant? Hashes, each copy's chain, ranges that meet, order.

A copy's evidence falls into *runs*, each from a base on. What is claimed now rests on the last one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from truecut_verify.chain import History, begins
from truecut_verify.documents import Copy, Segment, count_rows, parse_segment, read_metadata, read_rows
from truecut_verify.folder import Folder
from truecut_verify.verdict import Fail, Unknown

_BLOCK = ("fixed_size_binary[16]",)
TYPES = {
    "place": ("uint64",),
    "seq": ("int64",),
    "op": ("uint8",),
    "key": _BLOCK,
    "row": _BLOCK,
    "absent": ("list<element: uint32>", "list<item: uint32>"),
    "cells": tuple(
        f"list<{inner}: struct<column: uint32, digest: {_BLOCK[0]}>>" for inner in ("element", "item")
    ),
}
ZERO = bytes(32)
EXTENSION_MAX = 100_000  # segments


@dataclass(frozen=True, slots=True)
class Step:
    """A segment, or the claim of a certificate about what all segments before it came to."""

    number: int  # of the certificate
    segment: Segment | None = None
    claim: Copy | None = None
    head: bytes = ZERO  # of the chain, after this step


@dataclass(slots=True)
class Run:
    """Segments from a base on, with the claims between them. Without a base it cannot be followed."""

    mode: str  # of the copy while it lasted: another edition may have another one
    steps: list[Step] = field(default_factory=list)
    has_base: bool = False  # it begins where it can be followed from

    @property
    def segments(self) -> list[Segment]:
        """In order."""
        return [step.segment for step in self.steps if step.segment is not None]


def runs_of(history: History) -> list[Run]:
    """V1 without the files: segments in their chain, heads as the certificates say, ranges that meet."""
    runs, head = [Run(history.claims[0][1].mode)], ZERO
    for certificate, copy in history.claims:
        for segment in copy.segments:
            if begins(segment, copy):
                head = ZERO
                runs.append(Run(copy.mode, has_base=True))
            head = hashlib.sha256(head + segment.header).digest()
            runs[-1].steps.append(Step(certificate.number, segment=segment, head=head))
        if (runs[-1].has_base or certificate.number == 1) and copy.evidence and head.hex() != copy.evidence:
            if copy.verdict != "unknown":
                raise Fail("the chain of its segments has another head", certificate=certificate.number)
            head = bytes.fromhex(copy.evidence)  # it says itself that it does not know what led there
            runs.append(Run(copy.mode))
        runs[-1].steps.append(Step(certificate.number, claim=copy, head=head))
    for run in runs:
        _check_ranges(run)
    return [run for run in runs if run.steps]


def _check_ranges(run: Run) -> None:
    """Each segment begins where the one before ended, in one history and one edition after the other."""
    steps = [(step.number, step.segment) for step in run.steps if step.segment is not None]
    for (_, one), (number, following) in pairwise(steps):
        where = {"certificate": number, "after": following.after, "upto": following.upto}
        if following.edition < one.edition or (
            following.kind == "changes" and following.edition != one.edition
        ):
            raise Fail("a segment of another edition", **where)
        if following.after is not None and following.after < one.upto:  # between them there may be nothing
            raise Fail("a segment begins before the one before it ends", **where)
    for number, segment in steps:
        backwards = segment.after is not None and segment.after >= segment.upto
        if backwards or (segment.after or segment.upto)[:8] != segment.upto[:8]:
            raise Fail("a segment that ends before it begins, or in another history",
                       certificate=number, after=segment.after, upto=segment.upto)  # fmt: skip


def check_files(folder: Folder, runs: Sequence[Run], kept_from: int) -> int:
    """V1 of the files: how many segments were checked. Files of a run that another base has followed
    may be gone; of the last run they are needed."""
    checked = 0
    for run in runs:
        for step in run.steps:
            if step.segment is None:
                continue
            missing = [name for name in step.segment.files if folder.find(name) is None]
            if not missing:
                _check_segment(folder, step.segment, step.number)
                checked += 1
            elif run is runs[-1]:
                raise Unknown(
                    "evidence is not here (trimmed, or left out)", certificate=step.number, file=missing[0]
                )
    if not runs or not runs[-1].has_base:
        trimmed = f"; those before certificate {kept_from} were trimmed" if kept_from > 1 else ""
        raise Unknown(f"its base is not among the segments that these certificates tell{trimmed}")
    return checked


def _check_segment(folder: Folder, segment: Segment, number: int) -> None:
    where = {"certificate": number, "after": segment.after, "upto": segment.upto}
    hashes = b"".join(folder.sha256(name) or b"" for name in segment.files)
    if hashlib.sha256(hashes).hexdigest() != segment.sha256:
        raise Fail("a segment's files have another hash", **where, file=", ".join(segment.files[:1]))
    paths = [(folder.find(name), name) for name in segment.files]
    if sum(count_rows(path, name) for path, name in paths if path is not None) != segment.rows:
        raise Fail("a segment has another number of rows", **where)
    if segment.kind == "changes":
        _check_order(folder, segment, where)


def _check_order(folder: Folder, segment: Segment, where: dict[str, Any]) -> None:
    """Place and seq grow from row to row, within the segment's range."""
    assert segment.after is not None
    low, high = int(segment.after[9:], 16), int(segment.upto[9:], 16)
    last = (low, 1 << 63)  # nothing at the place where it begins
    for places, seqs in columns_of(folder, segment, ["place", "seq"]):
        for now in zip(places, seqs, strict=True):
            if now <= last or now[0] > high:
                raise Fail(
                    "a change that is not in order, or not of its segment", **where, place=now[0], seq=now[1]
                )
            last = now


def columns_of(folder: Folder, segment: Segment, columns: list[str]) -> Iterator[list[list[Any]]]:
    """Batches of a segment's rows, in order."""
    for name in segment.files:
        if (path := folder.find(name)) is None:
            raise Unknown("evidence is not here (trimmed, or left out)", file=name)
        yield from read_rows(path, name, TYPES, columns)


# --- what came after the last certificate -----------------------------------------------------------------


def extension(folder: Folder, copy: Copy, head: str) -> list[Segment] | None:
    """The segments from the certified head to that of a sink's cursor, found by their names; None: not all
    are here. Nobody has signed them: that they belong there is said by the head alone, which the sink's own
    transaction wrote."""
    found: list[Segment] = []
    while head != copy.evidence:
        paths = (
            sorted((folder.root / "evidence").glob(f"*/{head}.parquet"))
            if re.fullmatch("[0-9a-f]{64}", head)
            else []
        )
        if len(paths) != 1 or len(found) >= EXTENSION_MAX:
            return None
        name = str(paths[0].relative_to(folder.root))
        previous, segment = _segment_in(folder, name)
        chained = hashlib.sha256((bytes.fromhex(previous) or ZERO) + segment.header).hexdigest()
        if chained != head or (segment.table, segment.sink) != copy.name or segment.kind != "changes":
            return None
        found.append(segment)
        head = previous
    return found[::-1]


def _segment_in(folder: Folder, name: str) -> tuple[str, Segment]:
    """What a file says of itself, and the head before it."""
    told, rows = read_metadata(folder.find(name) or folder.root, name)
    hashed = hashlib.sha256(folder.sha256(name) or b"").hexdigest()
    return str(told["previous"]), parse_segment(
        {**told["about"], "rows": rows, "sha256": hashed, "files": [name]}, name
    )
