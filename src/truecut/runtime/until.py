"""When a run that was asked to reach a position has done so, or cannot. Pure: a look at the state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from truecut.core.copies import outrun
from truecut.core.delivery import Copy, Delivery, SinkState
from truecut.errors import Fault, Retry
from truecut.model.position import Position


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop by itself: at a position, at the head of the first look, or never."""

    caught_up: bool = False
    position: Position | None = None
    timeout_ms: int | None = None

    @property
    def finite(self) -> bool:
        """Whether the run promises a result."""
        return self.caught_up or self.position is not None

    def bounded(self, head: Position) -> Position:
        """How far to go: a position of an earlier source bounds nothing, all of this one is beyond it."""
        if self.position is None or self.position.generation < head.generation:
            return head
        return min(head, self.position)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `stragglers`: what could not follow, sink → why."""

    reached: bool
    stragglers: Mapping[str, str] = field(default_factory=dict)


def judge(
    state: Delivery,
    target: Position,
    elsewhere: Mapping[str, Position],
    *,
    given_up: Collection[str] = (),
) -> tuple[Outcome, bool]:
    """Where a run stands, and whether that is final. `elsewhere`: sinks of other runners, as they report;
    `given_up`: those that were left to a runner of which nothing is heard."""
    if state.head is None or state.head < target:
        return Outcome(reached=False, stragglers={"source": f"its head has not reached {target}"}), False
    behind = {
        name: why
        for name, sink in state.sinks.items()
        if (why := _behind(state, sink, target)) is not None
        and not _is_there(elsewhere.get(name), target, state.head)
    }
    outcome = Outcome(reached=not behind, stragglers=behind)
    waiting = [state.sinks[name] for name in behind if name not in given_up]
    return outcome, all(_hopeless(state, sink, target) for sink in waiting)


def _behind(state: Delivery, sink: SinkState, target: Position) -> str | None:
    """Why the sink has not reached the target; None when it has, with every table."""
    if outrun(state, sink):
        return "it stands in a later history of the source than the last look has shown"
    held = [(table, copy) for table, copy in sink.copies.items() if copy.status == "held"]
    if held:
        table, copy = held[0]
        return f"{table} is held: {copy.hold.message if copy.hold else 'by request'}"
    if paused := sorted(sink.paused_tables & set(sink.settings)):
        return f"{paused[0]} is paused"
    if sink.phase == "ready" and all(_arrived(copy, target) for copy in sink.copies.values()):
        return None
    if sink.fault is not None:
        return sink.fault.message
    for table, copy in sink.copies.items():
        if copy.fault is not None:
            return unread(table, copy.fault)
    if sink.paused:
        return "paused"
    unseeded = (table for table, copy in sink.copies.items() if copy.status == "unseeded")
    waiting = next((table for table in unseeded if table in state.unready), None)
    return "not there yet" if waiting is None else f"{waiting}: {state.unready[waiting]}"


def unread(table: str, fault: Fault) -> str:
    """Why a table that nobody holds does not go on."""
    return f"{table} cannot be read now: {fault.message}"


def _hopeless(state: Delivery, sink: SinkState, target: Position) -> bool:
    """Nothing that we do by ourselves will change this: all that can move has arrived. Of a sink that is not
    ours that cannot be said: whatever we last heard of it, its owner may get there, or we may claim it."""
    if sink.phase == "unowned":
        return sink.paused
    if outrun(state, sink):
        return False
    failed = sink.fault is not None and sink.fault.retry is not Retry.RETRYABLE
    stands = {
        table: copy.status == "held" or table in sink.paused_tables or _arrived(copy, target)
        for table, copy in sink.copies.items()
    }
    return sink.paused or failed or (sink.phase == "ready" and not sink.busy and all(stands.values()))


def _arrived(copy: Copy, target: Position) -> bool:
    return copy.status == "streaming" and copy.at is not None and copy.at >= target


def _is_there(place: Position | None, target: Position, head: Position) -> bool:
    """A place of a later generation than we know of cannot be compared with our target."""
    return place is not None and place >= target and place.generation <= head.generation


def idle(state: Delivery) -> Iterable[str]:
    """Sinks that no order is out for: between two waves."""
    return [name for name, sink in state.sinks.items() if sink.phase == "ready" and not sink.busy]
