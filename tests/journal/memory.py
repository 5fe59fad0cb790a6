"""A journal in memory that keeps the contract, and faults that break it: what the laws are tried on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from truecut.errors import Fault
from truecut.journal import faults
from truecut.journal.contract import Entry, Outline
from truecut.journal.frame import size_of
from truecut.journal.record import Head, Record
from truecut.journal.submission import position_after
from truecut.model.position import UNTOLD, Position

SEGMENT_BYTES = 5_000


@dataclass
class Store:
    """What is durable: segments of entries, and where the log ends, also when nothing is left of it."""

    segments: list[list[Entry]] = field(default_factory=lambda: [[]])
    last: Position | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def entries(self) -> list[Entry]:
        return [entry for segment in self.segments for entry in segment]


class MemoryJournal:
    """One store, opened for writing."""

    def __init__(self, store: Store, *, bytes_max: int | None = None, fault: str = "") -> None:
        self._store, self._bytes_max, self._fault = store, bytes_max, fault
        if fault == "the last append is lost" and store.entries:
            store.segments[-1].pop()
            store.last = store.entries[-1].position if store.entries else None
        if fault == "numbers begin again" and store.entries:
            store.last = Position(store.last.generation if store.last else 1, len(store.entries))

    def head(self) -> Position | None:
        if self._store.last is None and self._fault == "the head of nothing is 0":
            return Position(0, 0)
        return self._store.last

    def oldest(self) -> Position | None:
        return next((entry.position for entry in self._store.entries), None)

    def read(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Entry]:
        first = after.place if after else 0
        last = self._store.last.place if upto is None and self._store.last else upto.place if upto else 0
        oldest = self.oldest()
        if oldest is not None and first < oldest.place - 1 and self._fault != "what was trimmed is a gap":
            raise faults.trimmed("in memory", after=after, oldest=oldest)
        first -= self._fault == "after inclusive" and first > 0
        last -= self._fault == "upto exclusive" and upto is not None
        for position, record in self._store.entries:
            if first < position.place <= last:
                told = UNTOLD if self._fault == "the source's position is dropped" else record.source_position
                yield Entry(position, replace(record, source_position=told))

    def heads(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Outline]:
        for position, record in self.read(after=after, upto=upto):
            yield Outline(position, Head(replace(record, payload=b""), len(record.payload), 0))

    def size(self, *, after: Position | None = None) -> int:
        first = after.place if after else 0
        behind = [one for one in self._store.segments if one and one[-1].position.place > first]
        size = sum(size_of([entry.record]) for segment in behind for entry in segment)
        return size // 2 if self._fault == "half is measured" else size

    def wait(self, *, after: Position | None, timeout_s: float) -> Position | None:
        return self.head()

    def close(self) -> None:
        pass

    def hindrance(self) -> Fault | None:
        return None

    def append(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Position:
        return self.submit(records, expected_last=expected_last).result()

    def submit(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Future[Position]:
        with self._store.lock:
            return self._submit(records, expected_last)

    def _submit(self, records: Sequence[Record], expected_last: Position | None) -> Future[Position]:
        store = self._store
        if expected_last not in (None, store.last) and self._fault != "any end will do":
            raise faults.moved_on(expected=expected_last, last=store.last)
        while self._bytes_max is not None and self.size() + size_of(records) > self._bytes_max:
            if self._fault != "the oldest make room":
                raise faults.full("in memory", bytes_max=self._bytes_max)
            del store.segments[0]
        first = store.last.place + 1 if store.last else 1
        if self._fault == "a generation may fall":
            store.last = Position(records[-1].generation, first + len(records) - 1)
        else:
            store.last = position_after(store.last, records)
        self._put([Entry(Position(one.generation, first + n), one) for n, one in enumerate(records)])
        answer: Future[Position] = Future()
        answer.set_result(
            Position(store.last.generation, first) if self._fault == "answered with the first" else store.last
        )
        return answer

    def _put(self, entries: Sequence[Entry]) -> None:
        """Behind the others; a segment that is large enough ends."""
        segment = self._store.segments[-1]
        if self._fault == "submissions overtake each other" and segment:
            (before, record), (now, other) = segment[-1], entries[0]
            segment[-1], entries = Entry(before, other), [Entry(now, record), *entries[1:]]
        segment += entries
        if sum(size_of([entry.record]) for entry in segment) > SEGMENT_BYTES:
            self._store.segments.append([])

    def trim(self, *, before: Position) -> None:
        place = before.place + 9 if self._fault == "more is trimmed" else before.place
        *sealed, last = self._store.segments
        self._store.segments = [*(one for one in sealed if one and one[-1].position.place >= place), last]


def opener(fault: str = "") -> Any:
    """Opens a new log, again and again."""
    store = Store()

    def open_it(*, bytes_max: int | None = None) -> MemoryJournal:
        return MemoryJournal(store, bytes_max=bytes_max, fault=fault)

    return open_it
