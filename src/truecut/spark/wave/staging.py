"""Inside a reading task: rows of a piece go to the sinks that stage apart, what they tell goes on as parcels.

Each sink has a thread of its own, fed as the rows come, and a deadline by progress. Its trouble is told by
its part and stops neither the reading nor the other sinks.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from truecut.certificate.segment import Wanted
from truecut.config.settings import SinkSettings
from truecut.errors import Fault, TruecutError
from truecut.model.order import Order
from truecut.sinks.contract import Packet
from truecut.sinks.parts import Landing, Part
from truecut.sinks.passage import staged_with_evidence
from truecut.sinks.registry import open_sink
from truecut.spark.wave import packet
from truecut.spark.wave.packet import Parcel
from truecut.spark.wave.sink_work import Ended, SinkWork
from truecut.threads import Late, refusal, within

LANDING_DEADLINE_S = 60.0  # then the order is staged whole, and whoever applies it finds out more


@dataclass(frozen=True, slots=True)
class Apart:
    """One order that tasks stage, and where."""

    order: Order
    settings: SinkSettings
    landing: Landing


def landing_of(order: Order, settings: SinkSettings, *, pipeline: str) -> Landing | None:
    """What the sink says; None where it says nothing in time."""
    who = f"sink {settings.name}"
    if refusal(who) is not None:
        return None
    sink = open_sink(settings, pipeline=pipeline)
    with suppress(Late, TruecutError):
        for landing in within(who, lambda: iter([sink.landing(order)]), deadline_s=LANDING_DEADLINE_S):
            return landing
    return None


@dataclass(frozen=True, slots=True)
class Staging:
    """One piece of the reading. `apart`: by index of the wave's orders."""

    pipeline: str
    tables: tuple[str, ...]
    apart: Mapping[int, Apart]
    piece: int
    deadline_ms: int
    evidence: Wanted | None = None  # of certificates

    def parcels(self, read: Iterable[Parcel]) -> Iterator[Parcel]:
        """The same parcels, but one part for each of these sinks in place of its rows."""
        works: dict[int, SinkWork[Packet, Part]] = {}
        answers: dict[int, Part] = {}  # of those that took no more: what they lack will never come
        try:
            for parcel in read:
                sink = parcel.sink
                if parcel.kind != packet.ROWS or sink not in self.apart:
                    yield parcel
                    continue
                if sink not in works:
                    works[sink] = self._begin(sink)
                rows = Packet(self.tables[parcel.table], rows=parcel.content)
                if sink not in answers and not works[sink].offer(rows):
                    answers[sink] = works[sink].answer()
            for sink, work in works.items():
                if sink not in answers:
                    work.offer(None)
            for sink in self.apart:
                if sink not in answers:
                    answers[sink] = works[sink].wait() if sink in works else Part(self.piece)
                yield Parcel(sink, -1, packet.PART, self.piece, answers[sink])
        finally:
            for work in works.values():
                work.abandon()

    def _begin(self, index: int) -> SinkWork[Packet, Part]:
        apart = self.apart[index]

        def trouble(outcome: Literal["late", "failed"], fault: Fault) -> Part:
            return Part(self.piece, fault=fault, late=outcome == "late")

        ended: Ended = queue.SimpleQueue()
        name, deadline_s = apart.settings.name, self.deadline_ms / 1000
        work = SinkWork[Packet, Part](index, name, trouble, deadline_s=deadline_s, ended=ended, waiting_max=1)
        sink = open_sink(apart.settings, pipeline=self.pipeline)

        def stage(rows: Iterator[Packet]) -> Part:
            return sink.stage_part(apart.order, apart.landing, rows, piece=self.piece)

        wanted = self.evidence
        if wanted is None:
            work.start(stage)
        else:
            work.start(lambda rows: staged_with_evidence(apart.order, wanted, stage, rows))
        return work
