"""Where everything stands, as `run` would find it: the delivery machine fed with a look at the world.

The machine that decides in production decides here, too, so a plan cannot differ from what a run does.
Nothing is written: sinks are only looked at, so tokens are made up and no fence is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from truecut.config.settings import Pipeline
from truecut.core import delivery
from truecut.core.copies import recorded
from truecut.core.delivery import Copy, Delivery, SinkState
from truecut.errors import ExitCode, TruecutError
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.control_readonly import Known, peek
from truecut.runtime.generations import least, shown_by
from truecut.runtime.orders import wanted
from truecut.runtime.pauses import Pauses, read_pauses
from truecut.runtime.until import beyond, places
from truecut.sinks.contract import SinkLook
from truecut.sinks.registry import look_at_sinks
from truecut.sources.contract import Observation
from truecut.sources.registry import survey_source

NAMED_MAX = 20
Reason = Literal["new", "gap", "source replaced", "settings changed", "resumed", "asked for"]


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
        known = cursor.copies.get(table)
        before = recorded(table, known, self.state.sinks[sink].settings[table])
        if any(one.again and one.table == table for one in self.pauses.requests):
            return "asked for"
        if before.status == "held":
            return "resumed"
        if before.status == "unseeded":
            return "new"
        return "gap" if before.source_identity == self.seen.identity else "source replaced"


def look_ahead(pipeline: Pipeline) -> Outlook:
    """Look at source, sinks and control store; TruecutError when source or store cannot be read."""
    known = peek(pipeline.control, pipeline=pipeline.name)
    seen = survey_source(pipeline.source).observe()
    return foresee(pipeline, seen, known, look_at_sinks(pipeline.sinks, pipeline=pipeline.name))


def nothing_lacks(
    outlook: Outlook, target: Position | None, lacks: Callable[[str, Position], bool] = lambda *_: True
) -> bool:
    """Whether a run that shall reach the target (None: the head) would find everything there already.
    `lacks`: whether there is anything of a table behind a place, where somebody knows.

    Where the control store does not know the sinks, or somebody asks for something, a run has to see to it.
    """
    seen = outlook.seen
    known, goal = outlook.known, target or head_of(seen)
    told = known.sinks >= outlook.state.sinks.keys() and outlook.seen.identity in known.generations
    asked = outlook.pauses.requests or outlook.pauses.tables
    return (
        told
        and not asked
        and goal <= outlook.seen.head
        and all(_is_there(sink, goal, lacks) for sink in outlook.state.sinks.values())
    )


def head_of(seen: Observation) -> Position:
    """Where the source itself is, also where less of it can be read by now."""
    return max(seen.head, seen.ahead or seen.head)


def passed_by(outlook: Outlook, target: Position) -> TruecutError | None:
    """Why no run could stop every sink exactly there: some stand beyond it, or it is of an earlier source."""
    head = outlook.seen.head
    if target.generation < head.generation:
        why = f"  it is of an earlier source than the one that is there now, whose head is {head}"
        return _cannot_stop_at(target, [why])
    found = {name: beyond(places(sink), target) for name, sink in sorted(outlook.state.sinks.items())}
    lines = [f"  {name}: {why}" for name, why in found.items() if why is not None]
    return _cannot_stop_at(target, lines) if lines else None


def _cannot_stop_at(target: Position, why: Sequence[str]) -> TruecutError:
    more = [f"  and {len(why) - NAMED_MAX} more"] if len(why) > NAMED_MAX else []
    told = "\n".join([*why[:NAMED_MAX], *more])
    return TruecutError(
        "TC3019",
        f"a run cannot stop at {target}:\n{told}",
        fix="Sinks do not go back. Give a position at or beyond where they stand (`truecut status FILE`), or "
        "run `--until-caught-up`.",
        exit_code=ExitCode.FAILED,
    )


def _is_there(sink: SinkState, goal: Position, lacks: Callable[[str, Position], bool]) -> bool:
    there = all(
        copy.status == "streaming" and copy.at is not None and (copy.at >= goal or not lacks(table, copy.at))
        for table, copy in sink.copies.items()
    )
    return sink.phase == "ready" and not sink.paused and there


def foresee(pipeline: Pipeline, first: Observation, known: Known, looks: Mapping[str, SinkLook]) -> Outlook:
    """What the machine makes of what was seen."""
    generation = known.generation(first.identity, at_least=_at_least(looks, first.identity))
    seen = first if generation == 1 else survey_source(pipeline.source, generation=generation).observe()
    pauses = read_pauses(pipeline.state)
    return Outlook(seen, known, looks, _state(pipeline, seen, looks, pauses), pauses)


def _at_least(looks: Mapping[str, SinkLook], identity: str) -> int:
    """The sinks may know a later generation than the store: it may have been lost."""
    return least(identity, shown_by(look.cursor for look in looks.values() if look.cursor is not None))


def _state(pipeline: Pipeline, seen: Observation, looks: Mapping[str, SinkLook], pauses: Pauses) -> Delivery:
    state = Delivery(wanted(pipeline))
    state = delivery.observe(state, identity=seen.identity, oldest=seen.oldest, head=seen.head)
    state = delivery.acquire(state, dict.fromkeys(state.sinks, 1))
    state, _ = delivery.start_recovery(state, now_ms=0)
    receipts = [_receipt(name, state.sinks[name].epoch, look) for name, look in looks.items()]
    state, _ = delivery.recovered(state, receipts, now_ms=0)
    state = delivery.pause_tables(state, tables=pauses.tables)
    for one in pauses.requests:
        take_up = delivery.copy_again if one.again else delivery.resume_table
        sinks = [name for name in state.sinks if one.sink in (None, name)]
        state = take_up(state, one.table, asked=one.asked, sinks=sinks)
    paused = frozenset(state.sinks) if pauses.everything else pauses.sinks
    return delivery.pause(state, sinks=paused)


def _receipt(name: str, epoch: int, look: SinkLook) -> Receipt:
    if look.fault is not None:
        return Receipt(name, epoch, "failed", fault=look.fault)
    return Receipt(name, epoch, "applied", cursor=look.cursor or Cursor(position=None, token=1))


def is_outstanding(copy: Copy, seen: Observation) -> bool:
    """Whether a streaming copy lacks something."""
    return copy.status == "streaming" and copy.at is not None and copy.at < seen.head
