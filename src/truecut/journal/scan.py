"""Reading a segment's frames, and judging what a crash or a bad disk has left of them."""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from truecut.journal.frame import (
    HEADER_BYTES,
    Header,
    beginning,
    check_heads,
    parse_header,
    read_records,
    verify,
)
from truecut.journal.record import Damaged, Head, Record
from truecut.journal.segment import HINT, PAGE_BYTES, Reach, Start, read_mark

_BUFFER_BYTES = 1 << 20
_HEADS_BUFFER_BYTES = 8 << 10  # small: what is read ahead of a head is mostly payload

_RUN_BYTES = 1 << 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a segment holds: its good frames, and what is wrong behind them."""

    reach: Reach
    committed: int  # the last number that is known to have been whole
    torn_bytes: int = 0  # behind the good frames: a write that a crash cut short
    damage: str | None = None  # anything else that is not as it was written


@dataclass(frozen=True, slots=True)
class Run:
    """Whole frames that stand behind each other in a file."""

    file: BinaryIO
    offset: int
    size: int


Piece = Run | bytes


def frames(
    path: Path, start: Start, *, offset: int = PAGE_BYTES, end: int
) -> Iterator[tuple[int, Header, list[Record]]]:
    """Every frame from one offset to another, checked, with the offset behind it; Damaged where one is not
    good, or does not follow the one before."""
    return _walk(path, start, offset, end, _frame, _BUFFER_BYTES)


def frame_heads(
    path: Path, start: Start, *, offset: int = PAGE_BYTES, end: int
) -> Iterator[tuple[int, Header, list[Head]]]:
    """As `frames`, with payloads neither read nor checked."""
    return _walk(path, start, offset, end, _skipped_frame, _HEADS_BUFFER_BYTES)


def _walk(
    path: Path,
    start: Start,
    offset: int,
    end: int,
    take: Callable[[BinaryIO], tuple[Header, list[_T]]],
    buffer_bytes: int,
) -> Iterator[tuple[int, Header, list[_T]]]:
    with path.open("rb", buffering=buffer_bytes) as file:
        yield from _walk_file(file, start, offset, end, take)


def _walk_file(
    file: BinaryIO, start: Start, offset: int, end: int, take: Callable[[BinaryIO], tuple[Header, list[_T]]]
) -> Iterator[tuple[int, Header, list[_T]]]:
    before = (start.first - 1, start.previous_crc) if offset == PAGE_BYTES else None
    file.seek(offset)
    while offset < end:
        header, taken = take(file)
        if before not in (None, (header.first - 1, header.previous_crc)) or not _belongs(header, start):
            raise Damaged("order")
        before = header.last, header.crc
        offset += header.size
        yield offset, header, taken


def runs(
    path: Path, start: Start, *, offset: int, end: int, first: int, last: int
) -> Iterator[tuple[Header, Piece]]:
    """The frames with the records from `first` to `last` as places in the file, many at a time, each with the
    header of its last one; a last frame that goes on behind `last` as bytes. Checked but for payloads, which
    are not read: whoever gets them has to."""
    with path.open("rb", buffering=_HEADS_BUFFER_BYTES) as file:
        begun = offset
        for behind, header, _ in _walk_file(file, start, offset, end, _skipped_frame):
            if behind > end:
                raise Damaged("length")
            if header.last < first:
                begun = behind
            elif header.last > last:
                yield header, Run(file, begun, behind - header.size - begun)
                file.seek(behind - header.size)
                yield header, file.read(header.size)
            elif behind - begun >= _RUN_BYTES or header.last == last:
                yield header, Run(file, begun, behind - begun)
                begun = behind
            if header.last >= last:
                return
        raise Damaged(f"it ends before record {last}")


def raw_frames(path: Path, start: Start, *, offset: int, end: int) -> Iterator[tuple[Header, bytes]]:
    """Every frame from one offset to another as it is stored, checked."""
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        file.seek(offset)
        while offset < end:
            size = parse_header(file.read(HEADER_BYTES)).size
            if size > end - offset:  # before so much is read
                raise Damaged("length")
            file.seek(offset)  # within the buffer; the whole frame is read to where it stays
            data = file.read(size)
            header = verify(memoryview(data))
            if not _belongs(header, start):
                raise Damaged("order")
            offset += header.size
            yield header, data


def scan(path: Path, start: Start) -> Scanned:
    """Read everything, up to the first bad frame, and judge what is behind it."""
    reach = Reach.of_none(start)
    committed, _, committed_end = read_mark(path)
    size = path.stat().st_size
    try:
        for offset, header, records in frames(path, start, end=size):
            reach = Reach(header.last, records[-1].generation, offset, header.crc)
    except Damaged:
        pass  # the frames up to here are good; the rest is judged
    behind = _last_good_behind(path, start, reach)
    damage = None
    if reach.last < committed or reach.end < committed_end:
        damage = f"records up to {committed} are committed, and it can be read up to {reach.last}"
    elif behind:
        damage = f"record {reach.last + 1} cannot be read, and {behind} behind it can"
    return Scanned(reach, max(committed, behind), torn_bytes=size - reach.end, damage=damage)


def offset_of(path: Path, start: Start, number: int, *, end: int) -> int:
    """Where to begin to read for a record: at a frame at or before it."""
    data = b""
    with suppress(FileNotFoundError):  # it is lost, or goes with a segment that is trimmed
        data = path.with_suffix(".index").read_bytes()
    whole = (HINT.unpack_from(data, at) for at in range(0, len(data) - HINT.size + 1, HINT.size))
    hints: list[tuple[int, int]] = [
        (first, offset) for first, offset, crc in whole if _hint_crc(first, offset) == crc
    ]
    for first, offset in reversed(hints[: bisect_right(hints, (number, end))]):
        if offset < end and _begins_at(path, start, offset, first):
            return offset
    return PAGE_BYTES


def _frame(file: BinaryIO) -> tuple[Header, list[Record]]:
    header = parse_header(file.read(HEADER_BYTES))
    return header, list(read_records(file, header))


def _skipped_frame(file: BinaryIO) -> tuple[Header, list[Head]]:
    header = parse_header(file.read(HEADER_BYTES))
    heads = check_heads(header, file.read(header.heads_bytes))
    file.seek(header.payloads_bytes, os.SEEK_CUR)
    return header, heads


def _last_good_behind(path: Path, start: Start, reach: Reach) -> int:
    """The last record of the good frames behind a bad one; 0 if there are none. A crash does not leave any,
    because a sync is one frame. Frames of other logs, or with numbers that are behind us, are the payload of
    the bad one."""
    last = 0
    with path.open("rb") as file:
        file.seek(reach.end)
        rest = file.read()
        at = rest.find(beginning(start.log_id), 1)
        while at >= 0:
            file.seek(reach.end + at)
            try:
                header, _ = _frame(file)
                if _belongs(header, start) and header.first > reach.last:
                    last = max(last, header.last)
                    at += header.size - 1
            except Damaged:
                pass
            at = rest.find(beginning(start.log_id), at + 1)
    return last


def _begins_at(path: Path, start: Start, offset: int, first: int) -> bool:
    with path.open("rb") as file:
        file.seek(offset)
        try:
            header = parse_header(file.read(HEADER_BYTES))
            check_heads(header, file.read(header.heads_bytes))
        except Damaged:
            return False
    return header.first == first and _belongs(header, start)


def _belongs(header: Header, start: Start) -> bool:
    """To this log, by the writer of this segment."""
    return header.log_id == start.log_id and header.epoch == start.epoch


def _hint_crc(first: int, offset: int) -> int:
    return zlib.crc32(HINT.pack(first, offset, 0)[:16])
