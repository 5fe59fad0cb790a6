"""When a run that was asked to reach a position has done so, or cannot. Pure: a look at the state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from truecut.core.copies import outrun
from truecut.core.delivery import Copy, Delivery, SinkState
from truecut.errors import Fault, Retry
from truecut.model.position import Position
from truecut.runtime.pauses import Request

UNREAD_TRIES = 6  # the rests between them: 0.5, 1, 2, 4 and 8 seconds, or up to twice as long


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop by itself: at a position, at the head of the first look, with an answer, or never."""

    caught_up: bool = False
    position: Position | None = None
    timeout_ms: int | None = None
    answer: Request | None = None  # once every sink shows this request

    @property
    def finite(self) -> bool:
        """Whether the run promises a result."""
        return self.caught_up or self.position is not None or self.answer is not None

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


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A sink of another runner that is alive and sees to it, as it has told."""

    places: Mapping[str, Position | None]  # of tables that go on; None: it has none
    stuck: Mapping[str, str] = field(default_factory=dict)  # tables that do not, and why


def judge(
    state: Delivery,
    target: Position,
    elsewhere: Mapping[str, Elsewhere],
    *,
    given_up: Collection[str] = (),
    exact: bool = False,
) -> tuple[Outcome, bool]:
    """Where a run stands, and whether that is final. `elsewhere`: sinks of other runners;
    `given_up`: those that were left to a runner of which nothing is heard;
    `exact`: whoever stands beyond the target has not reached it, and never will."""
    if state.head is None or state.head < target:
        return Outcome(reached=False, stragglers={"source": f"its head has not reached {target}"}), False
    here = {name: _behind(state, sink, target, exact=exact) for name, sink in state.wanted.items()}
    behind: dict[str, str] = {}
    final = True
    for name, why in here.items():
        sink = state.sinks[name]
        told = elsewhere.get(name) if sink.phase == "unowned" else None
        if why is None or (told is not None and _is_there(told, target, state.head, exact=exact)):
            continue
        behind[name] = why if told is None else _told_why(told, target, exact=exact) or why
        passed = exact and beyond(places(sink), target) is not None
        stays = _hopeless(state, sink, target) if sink.phase != "unowned" else _left_there(sink, target, told)
        final = final and (passed or stays or name in given_up)
    return Outcome(reached=not behind, stragglers=behind), final


def _behind(state: Delivery, sink: SinkState, target: Position, *, exact: bool) -> str | None:
    """Why the sink has not reached the target; None when it has, with every table."""
    if outrun(state, sink):
        return "it stands in a later history of the source than the last look has shown"
    if exact and (passed := beyond(places(sink), target)):
        return passed
    held = [(table, copy) for table, copy in sink.copies.items() if copy.status == "held"]
    if held:
        table, copy = held[0]
        return is_held(table, copy.hold.message if copy.hold else "by request")
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


def places(sink: SinkState) -> dict[str, Position | None]:
    """Where its tables stand; one that is to be seeded where it stood: no place moves back."""
    return {
        table: copy.at if copy.at is not None or copy.durable is None else copy.durable.at
        for table, copy in sink.copies.items()
    }


def beyond(places: Mapping[str, Position | None], target: Position) -> str | None:
    """Which table has passed the target."""
    for table, at in sorted(places.items()):
        if at is not None and at > target:
            return f"{table} stands at {at} already, beyond {target}"
    return None


def is_held(table: str, why: str) -> str:
    """Why a table that somebody has to resume does not go on."""
    return f"{table} is held: {why}"


def unread(table: str, fault: Fault) -> str:
    """Why a table that nobody holds does not go on."""
    return f"{table} cannot be read now: {fault.message}"


def _left_there(sink: SinkState, target: Position, told: Elsewhere | None) -> bool:
    """Of a sink that is not ours its owner has to say that nothing will change: otherwise it may get there,
    or we may claim it."""
    if sink.paused or told is None:
        return sink.paused
    moving = [at for table, at in told.places.items() if table not in sink.paused_tables]
    return all(at is not None and at >= target for at in moving)


def _hopeless(state: Delivery, sink: SinkState, target: Position) -> bool:
    """Nothing that we do by ourselves will change this: all that can move has arrived."""
    if outrun(state, sink):
        return False
    failed = sink.fault is not None and sink.fault.retry is not Retry.RETRYABLE
    stands = {
        table: copy.status == "held"
        or table in sink.paused_tables
        or _arrived(copy, target)
        or is_unreadable(copy.failures)
        for table, copy in sink.copies.items()
    }
    return sink.paused or failed or (sink.phase == "ready" and not sink.busy and all(stands.values()))


def is_unreadable(tries: int) -> bool:
    """It rests longer after each try in vain. After so many, a quarter of a minute has passed at least:
    whoever waits for the table is better told than kept waiting."""
    return tries >= UNREAD_TRIES


def _arrived(copy: Copy, target: Position) -> bool:
    return copy.status == "streaming" and copy.at is not None and copy.at >= target


def _is_there(told: Elsewhere, target: Position, head: Position, *, exact: bool) -> bool:
    """Every table, and nothing holds one. A place of a later generation than we know of cannot be compared
    with our target."""
    if told.stuck or not told.places or (exact and beyond(told.places, target)):
        return False
    return all(
        at is not None and at >= target and at.generation <= head.generation for at in told.places.values()
    )


def _told_why(told: Elsewhere, target: Position, *, exact: bool) -> str | None:
    passed = beyond(told.places, target) if exact else None
    return passed or next(iter(told.stuck.values()), None)


def idle(state: Delivery) -> Iterable[str]:
    """Sinks that no order is out for: between two waves."""
    return [name for name, sink in state.sinks.items() if sink.phase == "ready" and not sink.busy]
