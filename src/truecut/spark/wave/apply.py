"""Inside an apply task: sinks one after another, a few at once, none without progress for a deadline.

There is one task for each executor, so that a sink's lake, once attached, is found attached again.

Each attempt runs in a thread of its own (`sink_work`) and is fed packet by packet, so memory stays bounded
whatever the size of a seed. Of an order that the reading tasks have staged, their parts come instead of rows.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from truecut.certificate.segment import NOTHING, Beside, Besides, SegmentWriter, Wanted
from truecut.certificate.unit_evidence import Units
from truecut.config.settings import SinkSettings
from truecut.errors import Fault
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Packet, Sink
from truecut.sinks.parts import Part
from truecut.sinks.passage import Passage, not_kept, settled_of_parts
from truecut.sinks.registry import open_sink
from truecut.spark.wave import packet
from truecut.spark.wave.packet import Parcel
from truecut.spark.wave.sink_work import Ended, SinkWork
from truecut.threads import POLL_S

_Work = SinkWork[Packet, Receipt]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sink's share of a wave: its order and its packets, still to come."""

    index: int
    order: Order
    settings: SinkSettings
    pipeline: str
    tables: tuple[str, ...]
    parcels: Iterator[Parcel]
    routed: Mapping[str, int] | None = None  # rows by table, as those say who read them
    evidence: Wanted | None = None
    pieces: int | None = None  # so many have staged it; None: its rows come as packets
    units: Units = field(default_factory=Units)  # that its tables were read in

    def beside(self, table: str) -> Beside:
        """What the base of a copy says of its units."""
        assert self.evidence is not None
        return self.units.beside(self.evidence, self.order, table)


@dataclass(frozen=True, slots=True)
class Takeover:
    """One sink to be recovered."""

    index: int
    pipeline: str
    settings: SinkSettings
    epoch: int
    token: int


def run_attempts(
    attempts: Iterable[Attempt], *, threads: int, deadline_ms: int
) -> Iterator[tuple[int, Receipt]]:
    """Carry out the orders of one task; yields (index, receipt) as they end."""
    ended: Ended = queue.SimpleQueue()
    works = (_feed(attempt, deadline_ms / 1000, ended) for attempt in attempts)
    yield from _overlapped(works, ended, threads)


def run_takeovers(
    takeovers: Iterable[Takeover], *, threads: int, deadline_ms: int
) -> Iterator[tuple[int, Receipt]]:
    """Recover the sinks of one task."""
    ended: Ended = queue.SimpleQueue()
    works = (_take_over(takeover, deadline_ms / 1000, ended) for takeover in takeovers)
    yield from _overlapped(works, ended, threads)


def _overlapped(works: Iterable[_Work], ended: Ended, threads: int) -> Iterator[tuple[int, Receipt]]:
    """At most so many at once. One that is given up makes room like one that has ended."""
    running: list[_Work] = []
    for work in works:
        running.append(work)
        while len(running) >= threads:
            yield from _wait_for_some(running, ended)
    while running:
        yield from _wait_for_some(running, ended)


def _wait_for_some(running: list[_Work], ended: Ended) -> Iterator[tuple[int, Receipt]]:
    with contextlib.suppress(queue.Empty):  # nobody has ended: somebody may be late
        ended.get(timeout=POLL_S)
    for work in [work for work in running if work.over()]:
        running.remove(work)
        yield work.index, work.answer()


def _work(index: int, sink: str, epoch: int, deadline_s: float, ended: Ended) -> _Work:
    def trouble(outcome: Literal["late", "failed"], fault: Fault) -> Receipt:
        return Receipt(sink, epoch, outcome, fault=fault)

    return SinkWork[Packet, Receipt](index, sink, trouble, deadline_s=deadline_s, ended=ended)


def _feed(attempt: Attempt, deadline_s: float, ended: Ended) -> _Work:
    """Start the sink's thread and pass its packets on; returns when all are handed over."""
    work = _work(attempt.index, attempt.order.sink, attempt.order.epoch, deadline_s, ended)
    first = next(attempt.parcels)
    if first.kind == packet.ABORT:
        receipt = _aborted(attempt, [first, *attempt.parcels])
        work.start(lambda _: receipt)
        return work
    sink = open_sink(attempt.settings, pipeline=attempt.pipeline)
    if attempt.pieces is not None:
        parts, stops = _gathered(attempt, [first, *attempt.parcels])
        work.start(lambda _: _parts_carried_out(attempt, sink, parts, stops))
        return work
    work.start(lambda packets: _carried_out(attempt, sink, packets))
    try:
        for parcel in chain([first], attempt.parcels):
            if parcel.kind != packet.MARKER and not work.offer(_open(parcel, attempt.tables)):
                return work  # groupby skips the rest of this sink's parcels
    except BaseException:
        work.abandon()
        raise
    work.offer(None)
    return work


def _gathered(attempt: Attempt, parcels: list[Parcel]) -> tuple[list[Part], dict[str, Fault]]:
    """What the pieces have left, and the tables that could not be read."""
    contents = [(parcel.table, parcel.content) for parcel in parcels]
    parts = [content for _, content in contents if isinstance(content, Part)]
    stops = {attempt.tables[table]: fault for table, fault in contents if isinstance(fault, Fault)}
    return parts, stops


def _carried_out(attempt: Attempt, sink: Sink[Any], packets: Iterator[Packet]) -> Receipt:
    segments = (
        None if attempt.evidence is None else _segments(attempt.evidence, attempt.order, attempt.beside)
    )
    with closing(Passage(attempt.order, attempt.routed, segments)) as passage:
        return sink.apply(attempt.order, packets, passage)


def _parts_carried_out(
    attempt: Attempt, sink: Sink[Any], parts: Sequence[Part], stops: Mapping[str, Fault]
) -> Receipt:
    order, wanted = attempt.order, attempt.evidence
    assert attempt.pieces is not None
    settled = (
        None if wanted is None else (lambda: settled_of_parts(order, wanted, parts, stops, attempt.beside))
    )
    return sink.apply_parts(
        order, parts, stops, pieces=attempt.pieces, routed=attempt.routed, settled=settled
    )


def _segments(evidence: Wanted, order: Order, besides: Besides = lambda _: NOTHING) -> SegmentWriter:
    try:
        return SegmentWriter(evidence, order, besides)
    except OSError as error:
        raise not_kept(order.sink, error) from error


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


def _take_over(takeover: Takeover, deadline_s: float, ended: Ended) -> _Work:
    work = _work(takeover.index, takeover.settings.name, takeover.epoch, deadline_s, ended)
    sink = open_sink(takeover.settings, pipeline=takeover.pipeline)
    work.start(lambda _: sink.recover(epoch=takeover.epoch, token=takeover.token))
    return work
