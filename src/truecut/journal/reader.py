"""Reading a local journal, from any process, while its writer writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from truecut.journal import faults
from truecut.journal.contract import Entry, Outline
from truecut.journal.frame import Header
from truecut.journal.manifest import Manifest, Segment, read_manifest
from truecut.journal.record import Damaged, Head, Record
from truecut.journal.scan import frame_heads, frames, offset_of
from truecut.journal.segment import Start, read_mark, read_start
from truecut.model.position import Position

LOOK_S = 0.005

_T = TypeVar("_T", Record, Head)


class _Walk(Protocol[_T]):
    """A way through the frames of a segment."""

    def __call__(
        self, path: Path, start: Start, *, offset: int, end: int
    ) -> Iterator[tuple[int, Header, list[_T]]]: ...


class LocalReader:
    """Sees what is committed and nothing else. Holds no file between two calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def head(self) -> Position | None:
        """The last committed position."""
        while segments := self._manifest().segments:
            last = segments[-1]
            try:
                return self._end_of(last)[0]
            except FileNotFoundError:
                if self._still_listed(last):
                    raise faults.corrupt(self._folder / last.start.name, "it is missing") from None
            except Damaged as damage:
                raise faults.corrupt(self._folder / last.start.name, str(damage)) from damage
        return None

    def oldest(self) -> Position | None:
        """The first position that is still there."""
        head = self.head()
        segments = self._manifest().segments
        if head is None or head.place < segments[0].start.first:
            return None
        first = segments[0].start
        return next(self.heads(after=Position(first.generation, first.first - 1), upto=head)).position

    def read(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Entry]:
        """The committed records in `(after, upto]`."""
        return (Entry(position, record) for position, record in self._between(after, upto, frames))

    def heads(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Outline]:
        """The same without payloads."""
        return (Outline(position, head) for position, head in self._between(after, upto, frame_heads))

    def _between(
        self, after: Position | None, upto: Position | None, walk: _Walk[_T]
    ) -> Iterator[tuple[Position, _T]]:
        head = self.head()
        if head is None:
            return
        last = head.place if upto is None else min(upto.place, head.place)
        number = 1 if after is None else after.place + 1
        while number <= last:
            for position, found in self._rest_of_segment(number, after, last, walk):
                yield position, found
                number = position.place + 1

    def size(self, *, after: Position | None = None) -> int:
        """How many bytes are kept of the records behind a position, in whole segments."""
        number = after.place if after else 0
        while segments := self._manifest().segments:
            last = segments[-1]  # the only one whose file is looked at
            try:
                return sum(self._bytes_behind(number, one) for one in segments)
            except FileNotFoundError:
                if self._still_listed(last):
                    raise faults.corrupt(self._folder / last.start.name, "it is missing") from None
            except Damaged as damage:
                raise faults.corrupt(self._folder / last.start.name, str(damage)) from damage
        return 0

    def _bytes_behind(self, number: int, segment: Segment) -> int:
        last, end = self._end_of(segment)
        return end if last is not None and last.place > number and last.place >= segment.start.first else 0

    def wait(self, *, after: Position | None, timeout_s: float) -> Position | None:
        """The head, as soon as it is behind `after`; what it is when the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            head = self.head()
            left = deadline - time.monotonic()
            if left <= 0 or (head is not None and (after is None or head > after)):
                return head
            time.sleep(min(LOOK_S, left))

    def close(self) -> None:
        """Nothing is held."""

    def _rest_of_segment(
        self, number: int, after: Position | None, last: int, walk: _Walk[_T]
    ) -> Iterator[tuple[Position, _T]]:
        segment = self._segment_with(number, after)
        path = self._folder / segment.start.name
        try:
            if read_start(path) != segment.start:
                raise Damaged("first page")
            _, end = self._end_of(segment)
            offset = offset_of(path, segment.start, number, end=end)
            for _, header, taken in walk(path, segment.start, offset=offset, end=end):
                for place, one in enumerate(taken, start=header.first):
                    if number <= place <= last:
                        yield Position(one.generation, place), one
                if header.last >= last:
                    return
        except FileNotFoundError:
            if self._still_listed(segment):
                raise faults.corrupt(path, "it is missing") from None
            raise self._trimmed(after) from None
        except Damaged as damage:
            raise faults.corrupt(path, f"{damage} of a committed record from {number} on") from damage

    def _segment_with(self, number: int, after: Position | None) -> Segment:
        segments = self._manifest().segments
        found = next((one for one in reversed(segments) if one.start.first <= number), None)
        if found is None:
            raise self._trimmed(after)
        if found.lost and found.reach is not None and number > found.reach.last:
            raise faults.lost(self._folder, first=found.reach.last + 1, last=found.reach.last + found.lost)
        return found

    def _end_of(self, segment: Segment) -> tuple[Position | None, int]:
        """The last committed position of a segment, and the offset behind it."""
        if (reach := segment.reach) is not None:
            return (Position(reach.generation, reach.last) if reach.last else None), reach.end
        last, generation, end = read_mark(self._folder / segment.start.name)
        if not last:  # nothing here yet: it ends where the one before did
            last, generation = segment.start.first - 1, segment.start.generation
        return (Position(generation, last) if last else None), end

    def _still_listed(self, segment: Segment) -> bool:
        """Whether a file that is not there should be; otherwise it has been trimmed, or was empty."""
        return segment.start in [one.start for one in self._manifest().segments]

    def _trimmed(self, after: Position | None) -> Exception:
        return faults.trimmed(self._folder, after=after, oldest=self.oldest())

    def _manifest(self) -> Manifest:
        manifest = read_manifest(self._folder)
        if manifest is None:
            raise faults.no_log(self._folder)
        return manifest
