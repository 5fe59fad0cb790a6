"""Where everything stands, as `run` would find it: the delivery machine fed with a look at the world.

The machine that decides in production decides here, too, so a plan cannot differ from what a run does.
Nothing is written: sinks are only looked at, so tokens are made up and no fence is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from truecut.config.settings import Pipeline
from truecut.core import delivery
from truecut.core.copies import copy_at
from truecut.core.delivery import Copy, Delivery
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.runtime.look import SinkLook, look_at_sinks, patiently, without_trace
from truecut.runtime.pauses import Pauses, read_pauses
from truecut.runtime.peek import Known, peek
from truecut.runtime.plan import wanted
from truecut.sources.contract import Observation
from truecut.sources.ducklake import DuckLakeSource

Reason = Literal["new", "gap", "source replaced", "settings changed", "resumed"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """The source as seen, the sinks as seen, and what the machine makes of both."""

    seen: Observation
    known: Known
    looks: Mapping[str, SinkLook]
    state: Delivery
    pauses: Pauses

    def reason(self, sink: str, table: str) -> Reason:
        """Why a copy that is to be seeded lacks its place."""
        cursor = self.looks[sink].cursor or Cursor(None, 0)
        before = copy_at(cursor, table, self.state.sinks[sink].settings[table])
        if before.status == "held":
            return "resumed"
        if before.status == "unseeded":
            return "new"
        return "gap" if cursor.source_identity == self.seen.identity else "source replaced"


def look_ahead(pipeline: Pipeline) -> Outlook:
    """Look at source, sinks and control store; TruecutError when source or store cannot be read."""
    known = peek(pipeline.control, pipeline=pipeline.name)
    seen = observe(pipeline)
    return foresee(pipeline, seen, known, look_at_sinks(pipeline))


def observe(pipeline: Pipeline, *, generation: int = 1) -> Observation:
    """Look at the source, read-only."""
    address = pipeline.source.address
    with without_trace(address):
        return patiently(DuckLakeSource(address, generation=generation).observe)


def foresee(pipeline: Pipeline, first: Observation, known: Known, looks: Mapping[str, SinkLook]) -> Outlook:
    """What the machine makes of what was seen."""
    generation = known.generation(first.identity, at_least=_latest(looks, first.identity))
    seen = first if generation == 1 else observe(pipeline, generation=generation)
    pauses = read_pauses(pipeline.state)
    return Outlook(seen, known, looks, _state(pipeline, seen, looks, pauses), pauses)


def _latest(looks: Mapping[str, SinkLook], identity: str) -> int:
    """The sinks may know a later generation than the store: it may have been lost."""
    return max(
        (
            look.cursor.position.generation
            for look in looks.values()
            if look.cursor is not None
            and look.cursor.position is not None
            and look.cursor.source_identity == identity
        ),
        default=1,
    )


def _state(pipeline: Pipeline, seen: Observation, looks: Mapping[str, SinkLook], pauses: Pauses) -> Delivery:
    state = Delivery(wanted(pipeline))
    state = delivery.observe(state, identity=seen.identity, oldest=seen.oldest, head=seen.head)
    state = delivery.acquire(state, dict.fromkeys(state.sinks, 1))
    state, _ = delivery.start_recovery(state, now_ms=0)
    receipts = [_receipt(name, state.sinks[name].epoch, look) for name, look in looks.items()]
    state, _ = delivery.recovered(state, receipts, now_ms=0)
    for table in sorted(pauses.tables):
        state = delivery.pause_table(state, table)
    for table in sorted(pauses.resumed_tables):
        state = delivery.resume_table(state, table, sinks=state.sinks)
    paused = frozenset(state.sinks) if pauses.everything else pauses.sinks
    return delivery.pause(state, sinks=paused)


def _receipt(name: str, epoch: int, look: SinkLook) -> Receipt:
    if look.fault is not None:
        return Receipt(name, epoch, "failed", fault=look.fault)
    return Receipt(name, epoch, "applied", cursor=look.cursor or Cursor(position=None, token=1))


def is_outstanding(copy: Copy, seen: Observation) -> bool:
    """Whether a streaming copy lacks something."""
    return copy.status == "streaming" and copy.at is not None and copy.at < seen.head
