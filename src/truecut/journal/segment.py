"""One segment of a log as a file: a page that says what it is and what is committed, then frames.

The mark (how much is committed) is written after the sync that it tells of, in two places in turn, and
becomes durable with the next sync. Readers in other processes trust it, and nothing beyond it. The index
beside a segment is a hint: whoever follows it checks what it finds.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from truecut.journal import disk
from truecut.journal.frame import encode
from truecut.journal.record import Damaged, Record

PAGE_BYTES = 4096
INDEX_BYTES = 64 << 10  # of frames between two hints
HINT = struct.Struct("<QQI")  # number of a frame's first record, its offset, checksum of both

_MAGIC = b"TCJSEG1\n"
_START = struct.Struct("<8s16sQQIII")
_MARK = struct.Struct("<QQIQI")
_MARKS_AT = (512, 1024)  # in sectors of their own: a torn one leaves the other
_NAME = re.compile(r"\d{20}-\d{8,}\.log")


@dataclass(frozen=True, slots=True)
class Start:
    """What a segment begins with."""

    log_id: bytes
    first: int  # the number of its first record
    epoch: int
    generation: int  # of the record before
    previous_crc: int  # of the frame before, in the segment before

    @property
    def name(self) -> str:
        """The file's name: sorted by place, and no two writers share one."""
        return f"{self.first:020d}-{self.epoch:08d}.log"

    def page(self) -> bytes:
        """The first bytes of the file."""
        fields = (_MAGIC, self.log_id, self.first, self.epoch, self.generation, self.previous_crc)
        return _START.pack(*fields, zlib.crc32(_START.pack(*fields, 0)))


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a segment goes."""

    last: int  # the number of its last record
    generation: int  # of that record
    end: int  # the offset behind its frame
    crc: int  # of that frame

    @staticmethod
    def of_none(start: Start) -> Reach:
        """Of a segment without a frame."""
        return Reach(start.first - 1, start.generation, PAGE_BYTES, start.previous_crc)


def is_segment_name(name: str) -> bool:
    """Whether a file is called as a segment is: nothing else in a log's folder is the log's."""
    return _NAME.fullmatch(name) is not None


def read_start(path: Path) -> Start:
    """What the file says it is; Damaged when that is not what was written."""
    with path.open("rb") as file:
        data = file.read(_START.size)
    if len(data) < _START.size or data[:8] != _MAGIC:
        raise Damaged("first page")
    *fields, crc = _START.unpack(data)
    if zlib.crc32(_START.pack(*fields, 0)) != crc:
        raise Damaged("first page")
    return Start(*fields[1:])


def read_mark(path: Path) -> tuple[int, int, int]:
    """What is committed: the last number (0 if none), its generation, and the offset behind it."""
    with path.open("rb") as file:
        page = file.read(PAGE_BYTES)
    if len(page) < PAGE_BYTES:  # it was whole before anybody was told of the segment
        raise Damaged("first page")
    marks = [_MARK.unpack_from(page, at) for at in _MARKS_AT]
    whole = [mark for mark in marks if mark[0] and zlib.crc32(_MARK.pack(*mark[:4], 0)) == mark[4]]
    _, last, generation, end, _ = max(whole, default=(0, 0, 0, PAGE_BYTES, 0))
    return last, generation, end


class SegmentWriter:
    """The open end of a log. What is written is durable once synced, and readable once published."""

    def __init__(self, path: Path, start: Start) -> None:
        """Make the file, durably."""
        self.path = path
        self.start = start
        self.reach = Reach.of_none(start)
        self._turn = 0
        self._hinted = PAGE_BYTES
        self._hints = 0
        with ExitStack() as undo:  # a disk that is full is tried again and again
            self._file = _created(path, undo)
            self._index = _created(path.with_suffix(".index"), undo)
            disk.write_at(self._file, 0, [self.start.page().ljust(PAGE_BYTES, b"\0")])
            disk.sync(self._file, "segment")
            disk.sync_folder(path.parent, "segment_name")
            undo.pop_all()

    def write(self, records: Sequence[Record]) -> Reach:
        """Behind what is there, as one frame; returns how far the segment would go with it."""
        before = self.reach
        start = self.start
        header, head = encode(
            records,
            log_id=start.log_id,
            first=before.last + 1,
            epoch=start.epoch,
            previous_crc=before.crc,
        )
        disk.write_at(self._file, before.end, [head, *(record.payload for record in records)])
        self._hint(before.end, header.first)
        return Reach(header.last, records[-1].generation, before.end + header.size, header.crc)

    def take_back(self) -> None:
        """Forget a frame that could not be written to its end."""
        disk.truncate(self._file, self.reach.end)

    def sync(self, name: disk.Sync) -> None:
        """Make everything durable that was written."""
        disk.sync(self._file, name)

    def publish(self, reach: Reach) -> None:
        """Let readers see it. Only after its sync."""
        self._turn += 1
        fields = (self._turn, reach.last, reach.generation, reach.end)
        mark = _MARK.pack(*fields, zlib.crc32(_MARK.pack(*fields, 0)))
        disk.write_at(self._file, _MARKS_AT[self._turn % 2], [mark])
        self.reach = reach

    def close(self) -> None:
        """Let the files go."""
        os.close(self._file)
        os.close(self._index)

    def _hint(self, offset: int, number: int) -> None:
        if offset < self._hinted:
            return
        hint = struct.pack("<QQ", number, offset)
        with suppress(OSError):  # it is a hint: a disk that has room for the frame alone is good enough
            disk.write_at(self._index, self._hints * HINT.size, [hint + struct.pack("<I", zlib.crc32(hint))])
            self._hints += 1
            self._hinted = offset + INDEX_BYTES


def _created(path: Path, undo: ExitStack) -> int:
    descriptor = disk.create(path)
    undo.callback(disk.remove, path)
    undo.callback(os.close, descriptor)
    return descriptor
