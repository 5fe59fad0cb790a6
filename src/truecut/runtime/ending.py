"""When a run that was asked to reach a position has done so, or cannot. Pure: a look at the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from truecut.core.delivery import Copy, Delivery, SinkState
from truecut.errors import Retry
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `stragglers`: what could not follow, sink → why."""

    reached: bool
    stragglers: Mapping[str, str] = field(default_factory=dict)


def judge(state: Delivery, target: Position, elsewhere: Mapping[str, Position]) -> tuple[Outcome, bool]:
    """Where a run stands, and whether that is final. `elsewhere`: sinks of other runners, as they report."""
    if state.head is None or state.head < target:
        return Outcome(reached=False, stragglers={"source": f"its head has not reached {target}"}), False
    behind = {
        name: why
        for name, sink in state.sinks.items()
        if (why := _behind(sink, target)) is not None and not _is_there(elsewhere.get(name), target)
    }
    outcome = Outcome(reached=not behind, stragglers=behind)
    return outcome, all(_hopeless(state.sinks[name], target) for name in behind)


def _behind(sink: SinkState, target: Position) -> str | None:
    """Why the sink has not reached the target; None when it has, with every table."""
    held = [(table, copy) for table, copy in sink.copies.items() if copy.status == "held"]
    if held:
        table, copy = held[0]
        return f"{table} is held: {copy.hold.message if copy.hold else 'by request'}"
    if sink.phase == "idle" and all(_arrived(copy, target) for copy in sink.copies.values()):
        return None
    return sink.fault.message if sink.fault else "paused" if sink.paused else "not there yet"


def _hopeless(sink: SinkState, target: Position) -> bool:
    """Nothing that we do by ourselves will change this: all that can move has arrived."""
    given_up = sink.fault is not None and sink.fault.retry is not Retry.RETRYABLE
    settled = all(copy.status == "held" or _arrived(copy, target) for copy in sink.copies.values())
    return sink.paused or given_up or (sink.phase == "idle" and settled)


def _arrived(copy: Copy, target: Position) -> bool:
    return copy.status == "streaming" and copy.at is not None and copy.at >= target


def _is_there(place: Position | None, target: Position) -> bool:
    return place is not None and place >= target


def idle(state: Delivery) -> Iterable[str]:
    """Sinks that may make their position durable before the run ends."""
    return [name for name, sink in state.sinks.items() if sink.phase == "idle"]
