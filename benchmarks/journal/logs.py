"""The logs that are compared, each behind the same two verbs: write, and follow from the start.

A log is an address: it can be sent to another process and opened there. What is written is random bytes that
carry their number, and whoever reads compares all of them: count, order and content.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

import psutil

from truecut.journal.contract import Journal, JournalReader
from truecut.journal.local import LocalJournal
from truecut.journal.reader import LocalReader
from truecut.journal.record import Record
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.model.position import Position

BATCH_BYTES = 256 << 10
SINGLE_BYTES = 1 << 10
_POOL_BYTES = 16 << 20  # of random content, which comes again later than any compressor looks back
_NUMBER_BYTES = 8
_WAIT_S = 1.0


@dataclass(frozen=True)
class Cost:
    """Of one piece of work."""

    wall_s: float
    cpu_s: float  # of every process that took part


Write = Callable[[Iterable[bytes], int], None]  # all of them, with at most so many unacknowledged


class Log(Protocol):
    """One log, for its one writer and readers in any process."""

    @property
    def served_by(self) -> tuple[int, ...]:
        """The processes that do the work, beside the writer's and the reader's own."""

    def writing(self) -> AbstractContextManager[Write]:
        """Open for writing."""

    def follow(self) -> Iterator[bytes]:
        """Every record from the first on, each as soon as it can be seen; it does not end. Of a log that has
        one; connected when it returns."""


class Payloads:
    """Numbered random bytes of one size, the same in every process."""

    def __init__(self, size: int) -> None:
        self.size = size
        chance = random.Random(size)
        self._pieces = [chance.randbytes(size - _NUMBER_BYTES) for _ in range(_POOL_BYTES // size)]

    def make(self, number: int) -> bytes:
        """One of them."""
        return number.to_bytes(_NUMBER_BYTES, "big") + self._pieces[number % len(self._pieces)]

    def some(self, *, after: int, upto: int) -> Iterator[bytes]:
        """A range of them."""
        return map(self.make, range(after + 1, upto + 1))

    def check(self, number: int, payload: bytes) -> None:
        """An error unless it is this one, byte for byte."""
        if not (
            len(payload) == self.size
            and payload.startswith(number.to_bytes(_NUMBER_BYTES, "big"))
            and payload.endswith(self._pieces[number % len(self._pieces)])
        ):
            raise AssertionError(f"record {number} is not what was written")


@dataclass(frozen=True)
class LocalLog:
    """A folder."""

    folder: Path
    served_by: tuple[int, ...] = ()

    @contextmanager
    def writing(self) -> Iterator[Write]:
        with closing(LocalJournal(self.folder)) as journal:
            yield lambda payloads, window: submit_all(journal, payloads, window)

    def follow(self) -> Iterator[bytes]:
        return _follow(LocalReader(self.folder))


@dataclass(frozen=True)
class ReplicatedLog:
    """Two replicas on the nodes of one coordinator."""

    coordinator: str
    name: str
    served_by: tuple[int, ...] = ()

    def journal(self) -> ReplicatedJournal:
        """With its default time-outs."""
        return ReplicatedJournal(self.coordinator, self.name, replicas=2)

    def reader(self) -> ReplicatedReader:
        return ReplicatedReader(self.coordinator, self.name)

    @contextmanager
    def writing(self) -> Iterator[Write]:
        with closing(self.journal()) as journal:
            yield lambda payloads, window: submit_all(journal, payloads, window)

    def follow(self) -> Iterator[bytes]:
        return _follow(self.reader())


def submit_all(journal: Journal, payloads: Iterable[bytes], window: int) -> None:
    """One record for each append, at most `window` of them unacknowledged."""
    under_way: deque[Future[Position]] = deque()
    for payload in payloads:
        if len(under_way) == window:
            under_way.popleft().result()
        under_way.append(journal.submit([Record(payload)]))
    for answer in under_way:
        answer.result()


def _follow(reader: JournalReader) -> Iterator[bytes]:
    reader.head()
    return _records(reader)


def _records(reader: JournalReader) -> Iterator[bytes]:
    after: Position | None = None
    while True:
        head = reader.wait(after=after, timeout_s=_WAIT_S)
        if head is not None and head != after:
            for entry in reader.read(after=after, upto=head):
                yield entry.record.payload
            after = head


def read_back(log: Log, *, size: int, count: int, times: int = 1) -> Cost:
    """In a process of its own, everything, compared: what it cost, once connected; the median of wall
    seconds, and all the processes' CPU seconds for one reading."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        elsewhere.submit(_imported).result()
        before_s = cpu_seconds(log.served_by)
        mine = elsewhere.submit(_read, log, size, count, times).result()
        served_s = cpu_seconds(log.served_by) - before_s
        return Cost(mine.wall_s, mine.cpu_s + served_s / times)


def cpu_seconds(processes: Iterable[int]) -> float:
    """What they have used so far."""
    used = (psutil.Process(one).cpu_times() for one in processes)
    return sum(one.user + one.system for one in used)


def _imported() -> None:
    """Runs where everything that reading needs is imported."""


def _read(log: Log, size: int, count: int, times: int) -> Cost:
    payloads = Payloads(size)
    costs = [_read_once(log, payloads, count) for _ in range(times)]
    wall_s = statistics.median(cost.wall_s for cost in costs)
    return Cost(wall_s, statistics.median(cost.cpu_s for cost in costs))


def _read_once(log: Log, payloads: Payloads, count: int) -> Cost:
    records = log.follow()
    began, cpu_s = time.monotonic(), time.process_time()
    number = 0
    for number, payload in enumerate(islice(records, count), start=1):
        payloads.check(number, payload)
    assert number == count
    return Cost(time.monotonic() - began, time.process_time() - cpu_s)
