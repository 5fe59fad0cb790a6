"""Inside an apply task: sinks one after another, a few at once, none longer than the deadline.

There is one task for each executor, so that a sink's lake, once attached, is found attached again.

Each attempt runs in a thread of its own and is fed packet by packet, so memory stays bounded whatever
the size of a seed. A thread that misses its deadline is abandoned: its sink is reported late, the
others go on. Should it wake up later, the sink's own fence and cursor decide what its commit is worth.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from truecut.config.settings import SinkSettings
from truecut.errors import Fault, Retry
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Packet
from truecut.sinks.registry import open_sink
from truecut.spark import packet
from truecut.spark.packet import Parcel

QUEUE_MAX = 4  # packets waiting for one sink
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sink's share of a wave: its order and its packets, still to come."""

    index: int
    order: Order
    settings: SinkSettings
    pipeline: str
    tables: tuple[str, ...]
    parcels: Iterator[Parcel]


@dataclass(frozen=True, slots=True)
class Takeover:
    """One sink to be recovered."""

    index: int
    pipeline: str
    settings: SinkSettings
    epoch: int
    token: int


class _Thread:
    """A thread that is used again: a new one would warm up its memory for each small order anew."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name="apply", daemon=True).start()

    def run(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def _loop(self) -> None:
        while True:
            self._jobs.get()()
            _idle_threads.append(self)  # one whose sink hangs never comes back, and is not missed


_idle_threads: list[_Thread] = []


def _run_in_thread(job: Callable[[], None]) -> None:
    try:
        thread = _idle_threads.pop()
    except IndexError:
        thread = _Thread()
    thread.run(job)


class _Work:
    """A thread that makes one receipt out of a stream of packets."""

    def __init__(self, index: int, sink: str, epoch: int, deadline_s: float, ended: _Ended) -> None:
        self.index = index
        self._sink = sink
        self._epoch = epoch
        self._deadline_s = deadline_s
        self._inbox: queue.Queue[Packet | Exception | None] = queue.Queue(QUEUE_MAX + 1)
        self._receipt: Receipt | None = None
        self._done = threading.Event()
        self._ended = ended
        self._due = time.monotonic() + deadline_s

    def start(self, action: Callable[[Iterator[Packet]], Receipt]) -> None:
        def body() -> None:
            try:
                self._receipt = action(self._packets())
            except Exception as error:  # noqa: BLE001 - a sink's bug must not fail the others
                self._receipt = _crashed(self._sink, self._epoch, error)
            finally:
                self._done.set()
                self._ended.put(self)

        _run_in_thread(body)

    def _packets(self) -> Iterator[Packet]:
        while (item := self._inbox.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def abandon(self) -> None:
        """The task itself was stopped: make the sink roll back instead of waiting for ever."""
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(RuntimeError("the task was stopped"))

    def offer(self, item: Packet | None) -> bool:
        """Hand over a packet; False when the sink has ended or is late. Taking one counts as progress."""
        while not self._done.is_set() and time.monotonic() < self._due:
            try:
                self._inbox.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            self._due = time.monotonic() + self._deadline_s
            return True
        return False

    def over(self) -> bool:
        """Whether it has ended, or may be given up."""
        return self._done.is_set() or time.monotonic() >= self._due

    def receipt(self) -> Receipt:
        if self._done.is_set() and self._receipt is not None:
            return self._receipt
        return Receipt(self._sink, self._epoch, "late", fault=_late(self._sink, self._deadline_s))


_Ended = queue.SimpleQueue[_Work]  # who has ended, so that nobody has to be asked in turn


def run_attempts(
    attempts: Iterable[Attempt], *, threads: int, deadline_ms: int
) -> Iterator[tuple[int, Receipt]]:
    """Carry out the orders of one task; yields (index, receipt) as they end."""
    ended: _Ended = queue.SimpleQueue()
    works = (_feed(attempt, deadline_ms / 1000, ended) for attempt in attempts)
    yield from _overlapped(works, ended, threads)


def run_takeovers(
    takeovers: Iterable[Takeover], *, threads: int, deadline_ms: int
) -> Iterator[tuple[int, Receipt]]:
    """Recover the sinks of one task."""
    ended: _Ended = queue.SimpleQueue()
    works = (_take_over(takeover, deadline_ms / 1000, ended) for takeover in takeovers)
    yield from _overlapped(works, ended, threads)


def _overlapped(works: Iterable[_Work], ended: _Ended, threads: int) -> Iterator[tuple[int, Receipt]]:
    """At most so many at once. One that is given up makes room like one that has ended."""
    running: list[_Work] = []
    for work in works:
        running.append(work)
        while len(running) >= threads:
            yield from _wait_for_some(running, ended)
    while running:
        yield from _wait_for_some(running, ended)


def _wait_for_some(running: list[_Work], ended: _Ended) -> Iterator[tuple[int, Receipt]]:
    with contextlib.suppress(queue.Empty):  # nobody has ended: somebody may be late
        ended.get(timeout=_POLL_S)
    for work in [work for work in running if work.over()]:
        running.remove(work)
        yield work.index, work.receipt()


def _feed(attempt: Attempt, deadline_s: float, ended: _Ended) -> _Work:
    """Start the sink's thread and pass its packets on; returns when all are handed over."""
    work = _Work(attempt.index, attempt.order.sink, attempt.order.epoch, deadline_s, ended)
    first = next(attempt.parcels)
    if first.kind == packet.ABORT:
        assert isinstance(first.content, Fault)
        fault = first.content
        work.start(lambda _: Receipt(attempt.order.sink, attempt.order.epoch, "aborted", fault=fault))
        return work
    sink = open_sink(attempt.settings, pipeline=attempt.pipeline)
    work.start(lambda packets: sink.apply(attempt.order, packets))
    try:
        for parcel in chain([first], attempt.parcels):
            if parcel.kind != packet.MARKER and not work.offer(_open(parcel, attempt.tables)):
                return work  # groupby skips the rest of this sink's parcels
    except BaseException:
        work.abandon()
        raise
    work.offer(None)
    return work


def _open(parcel: Parcel, tables: tuple[str, ...]) -> Packet:
    table = tables[parcel.table]
    if isinstance(parcel.content, Fault):
        return Packet(table, fault=parcel.content)
    return Packet(table, rows=parcel.content)


def _take_over(takeover: Takeover, deadline_s: float, ended: _Ended) -> _Work:
    work = _Work(takeover.index, takeover.settings.name, takeover.epoch, deadline_s, ended)
    sink = open_sink(takeover.settings, pipeline=takeover.pipeline)
    work.start(lambda _: sink.recover(epoch=takeover.epoch, token=takeover.token))
    return work


def _late(sink: str, deadline_s: float) -> Fault:
    return Fault(
        "TC4101",
        f"sink {sink} did not answer within {deadline_s:g} s",
        "Check its storage; it is tried again by itself, and the other sinks go on.",
        Retry.RETRYABLE,
    )


def _crashed(sink: str, epoch: int, error: Exception) -> Receipt:
    # The text of an unforeseen error may hold row values: only its class is told.
    fault = Fault(
        "TC4199",
        f"sink {sink}: unexpected {type(error).__name__}",
        "Report it if it persists.",
        Retry.RETRYABLE,
    )
    return Receipt(sink, epoch, "failed", fault=fault)
