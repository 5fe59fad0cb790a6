"""Inside an apply task: sinks one after another, a few at once, none without progress for a deadline.

There is one task for each executor, so that a sink's lake, once attached, is found attached again.

Each attempt runs in a thread of its own and is fed packet by packet, so memory stays bounded whatever
the size of a seed. A thread of which nothing was felt for a deadline (no packet taken, no statement begun,
no progress of the one that runs) is left behind: its sink is reported late, the others go on. Should it
wake up later, the sink's own fence and cursor decide what its commit is worth.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from truecut.config.settings import SinkSettings
from truecut.errors import Fault, Retry
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Packet
from truecut.sinks.registry import open_sink
from truecut.spark.wave import packet
from truecut.spark.wave.packet import Parcel
from truecut.threads import POLL_S, Work, refusal

QUEUE_MAX = 4  # packets waiting for one sink


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


class _Work:
    """A thread that makes one receipt out of a stream of packets."""

    def __init__(self, index: int, sink: str, epoch: int, deadline_s: float, ended: _Ended) -> None:
        self.index = index
        self._sink = sink
        self._epoch = epoch
        self._deadline_s = deadline_s
        self._inbox: queue.Queue[Packet | None] = queue.Queue(QUEUE_MAX)
        self._receipt: Receipt | None = None
        self._done = threading.Event()
        self._ended = ended
        self._thread = Work(f"sink {sink}", deadline_s=deadline_s)

    def start(self, action: Callable[[Iterator[Packet]], Receipt]) -> None:
        def body() -> None:
            try:
                self._end(action(self._packets()))
            except Exception as error:  # noqa: BLE001 - a sink's bug must not fail the others
                self._end(_crashed(self._sink, self._epoch, error))

        refused = refusal(f"sink {self._sink}")
        if refused is not None:
            self._end(Receipt(self._sink, self._epoch, "failed", fault=refused))
            return
        self._thread.start(body)

    def _end(self, receipt: Receipt) -> None:
        self._receipt = receipt
        self._done.set()
        self._ended.put(self)

    def _packets(self) -> Iterator[Packet]:
        while True:
            self._thread.stop_if_left()
            try:
                item = self._inbox.get(timeout=POLL_S)
            except queue.Empty:
                continue
            self._thread.beat()
            if item is None:
                return
            yield item

    def abandon(self) -> None:
        """Make the sink roll back instead of waiting for ever."""
        self._thread.leave_behind()

    def offer(self, item: Packet | None) -> bool:
        """Hand over a packet; False when the sink has ended or is late. Taking one counts as progress."""
        while not self.over():
            try:
                self._inbox.put(item, timeout=POLL_S)
            except queue.Full:
                continue
            self._thread.goes_on()
            return True
        return False

    def over(self) -> bool:
        """Whether it has ended, or may be given up: no progress for a whole deadline."""
        return self._done.is_set() or self._thread.is_late()

    def receipt(self) -> Receipt:
        """Its answer. One that is late is left behind: its commit may still happen, or not."""
        if self._done.is_set() and self._receipt is not None:
            return self._receipt
        self.abandon()
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
        ended.get(timeout=POLL_S)
    for work in [work for work in running if work.over()]:
        running.remove(work)
        yield work.index, work.receipt()


def _feed(attempt: Attempt, deadline_s: float, ended: _Ended) -> _Work:
    """Start the sink's thread and pass its packets on; returns when all are handed over."""
    work = _Work(attempt.index, attempt.order.sink, attempt.order.epoch, deadline_s, ended)
    first = next(attempt.parcels)
    if first.kind == packet.ABORT:
        receipt = _aborted(attempt, [first, *attempt.parcels])
        work.start(lambda _: receipt)
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


def _aborted(attempt: Attempt, parcels: list[Parcel]) -> Receipt:
    """The window could not be read: which tables, and why. What would hold another table is found again."""
    aborts = (parcel for parcel in parcels if parcel.kind == packet.ABORT)
    unread = {
        attempt.tables[abort.part]: abort.content for abort in aborts if isinstance(abort.content, Fault)
    }
    return Receipt(attempt.order.sink, attempt.order.epoch, "aborted", unread=unread)


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
        f"sink {sink} made no progress for {deadline_s:g} s",
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
