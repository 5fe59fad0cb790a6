"""How a wave begins: who lacks the same, what each copy is asked for, and that the copies are in it.

Promises D3 (at most one wave in flight for a copy) and D6 (only a sink that is ours is written to).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from truecut.core.copies import outrun
from truecut.core.state import (
    Copy,
    CopyOrder,
    Delivery,
    Effect,
    RunWave,
    SinkOrder,
    SinkState,
    Wave,
    WaveKind,
)
from truecut.errors import require
from truecut.model.order import OrderKind
from truecut.model.position import Position


@dataclass(frozen=True, slots=True)
class Lack:
    """Sinks with equal lacks can share a wave."""

    place: Position
    tables: tuple[str, ...]
    broken_waves: int
    readings: tuple[int, ...] = ()  # of a seed: how often its append tables will have been read


def readings(sink: SinkState, tables: Sequence[str]) -> tuple[int, ...]:
    """Rows that are read again are numbered by it, so only who has read as often shares a reading."""
    return tuple(sink.copies[t].edition + 1 for t in tables if sink.settings[t].mode == "append")


def may_stream(state: Delivery, sink: SinkState) -> bool:
    """Whether it may get an order of changes, or one that persists."""
    free = sink.phase == "ready" and not sink.paused and not sink.busy_streaming
    return free and not outrun(state, sink)


def part(members: list[str], broken: int) -> list[str]:
    """All of a group, or half as many after each job that failed as a whole."""
    return members[: max(1, len(members) >> broken)]


def changes(copy: Copy) -> CopyOrder:
    """Follow the log from where it was read up to."""
    return CopyOrder("changes", copy.durable, copy.at, copy.edition, copy.resumed)


def replaces(copy: Copy) -> CopyOrder:
    """A new edition."""
    return CopyOrder("replace", copy.durable, None, copy.edition + 1, copy.resumed)


def persists(copy: Copy) -> CopyOrder:
    """What we know becomes durable."""
    kind: OrderKind = "persist" if copy.hold is None else "hold"
    return CopyOrder(kind, copy.durable, copy.at, copy.edition, copy.resumed, copy.hold)


def wave_of(
    state: Delivery,
    kind: WaveKind,
    orders: Mapping[str, Mapping[str, CopyOrder]],
    tables: tuple[str, ...],
    after: Position | None,
    upto_max: Position,
    *,
    late: bool,
) -> Wave:
    known = state.sinks
    sinks = {
        name: SinkOrder(known[name].epoch, known[name].token, of_sink) for name, of_sink in orders.items()
    }
    return Wave(state.next_wave, kind, sinks, tables, after, upto_max, late, state.identity)


def start(state: Delivery, waves: Sequence[Wave]) -> tuple[Delivery, list[Effect]]:
    changed: dict[str, SinkState] = {}
    for wave in waves:
        for name, order in wave.sinks.items():
            sink = state.sinks[name]
            require(sink.phase == "ready" and sink.token > 0, "D6: only a sink that is ours is written to")
            copies = {}
            for table, of_copy in order.tables.items():
                copy = sink.copies[table]
                require(copy.wave is None, "D3: at most one wave in flight for a copy")
                require(of_copy.at is None or of_copy.at <= wave.upto_max, "D1: no place moves back")
                copies[table] = replace(copy, wave=wave.id)
            changed[name] = sink.with_copies(copies)
    started = {wave.id: wave for wave in waves}
    state = replace(state, next_wave=state.next_wave + len(waves), waves={**state.waves, **started})
    return state.with_sinks(changed), [RunWave(wave) for wave in waves]
