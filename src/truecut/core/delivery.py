"""Delivery of one change log to many sinks: which wave may start, and what its receipts mean.

Owns: each sink's lease token, epoch, durable cursor, read position and the wave it is in. Promises:
  D1  a cursor never moves back
  D2  a wave covers exactly what its sinks lack: (position, upto], tables at their own place
  D3  at most one wave in flight for a sink
  D4  a receipt of an older epoch changes nothing
  D5  nothing is read across a gap: what cannot be read is seeded anew, or held
  D6  without a recovered lease a sink is not written to
Follows specs/Delivery.tla; every public function here is one of its actions. No I/O, no clock: time and
chance are passed in, effects are returned as data. Each call costs time in proportion to the sinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from truecut.core import answers
from truecut.core.copies import (
    BACKWARDS_CODE,
    CHANGED_CODE,
    GAP_CODE,
    PAUSED_CODE,
    fell_behind,
    gap,
    held,
    resumed,
    streams,
    unseeded,
)
from truecut.core.state import (
    Copy,
    CopySettings,
    Delivery,
    Effect,
    RaiseToken,
    Recover,
    RunWave,
    SinkOrder,
    SinkState,
    Wave,
    WaveKind,
)
from truecut.errors import Fault, require
from truecut.model.cursor import Hold
from truecut.model.order import Receipt
from truecut.model.position import Position

__all__ = [
    "BACKWARDS_CODE",
    "CHANGED_CODE",
    "GAP_CODE",
    "PAUSED_CODE",
    "Copy",
    "CopySettings",
    "Delivery",
    "Effect",
    "RaiseToken",
    "Recover",
    "RunWave",
    "SinkOrder",
    "SinkState",
    "Wave",
    "acquire",
    "due_to_persist",
    "lose",
    "lost_history",
    "observe",
    "pause",
    "pause_table",
    "persist_idle",
    "recovered",
    "recovery_failed",
    "resume_table",
    "start_recovery",
    "start_seed",
    "start_wave",
    "wave_done",
    "wave_failed",
]


# --- the source ---------------------------------------------------------------------------------------


def observe(state: Delivery, *, identity: str, oldest: Position, head: Position) -> Delivery:
    """Observe: the source's history is now [oldest, head]. Sinks that fell out of it lose their place.

    Another identity is another history: nothing that was read before continues in it.
    """
    replaced = state.identity not in ("", identity)
    state = replace(state, identity=identity, oldest=oldest, head=head)
    return state.with_sinks(
        {
            name: gap(sink, oldest, everything=replaced)
            for name, sink in state.sinks.items()
            if sink.phase == "idle"
            and (replaced or any(fell_behind(copy, oldest) for copy in sink.copies.values()))
        }
    )


# --- leases and recovery ------------------------------------------------------------------------------


def acquire(state: Delivery, tokens: Mapping[str, int]) -> Delivery:
    """Acquire: leases with new tokens. What we knew of these sinks is void."""
    return state.with_sinks(
        {
            name: replace(answers.reset(state.sinks[name]), phase="acquired", token=token)
            for name, token in tokens.items()
        }
    )


def lose(state: Delivery, sinks: Iterable[str]) -> Delivery:
    """Lose: a lease ran out, was released or taken. In-flight receipts will be of an older epoch."""
    return state.with_sinks(
        {name: replace(answers.reset(state.sinks[name]), phase="unowned", token=0) for name in sinks}
    )


def start_recovery(state: Delivery, *, now_ms: int) -> tuple[Delivery, list[Effect]]:
    """StartRecovery: one job takes over all sinks whose lease is new or whose last order is in doubt.

    Not before the source was observed: a cursor means something only in the history it came from.
    """
    if state.head is None:
        return state, []
    due = {
        name: sink
        for name, sink in state.sinks.items()
        if sink.phase == "acquired" and sink.retry_at_ms <= now_ms and not sink.paused
    }
    if not due:
        return state, []
    state = state.with_sinks({name: replace(sink, phase="recovering") for name, sink in due.items()})
    return state, [Recover({name: (sink.epoch, sink.token) for name, sink in due.items()})]


def recovered(
    state: Delivery, receipts: Iterable[Receipt], *, now_ms: int, jitter: float = 0.0
) -> tuple[Delivery, list[Effect]]:
    """Recovered and RecoveryFail: the sink is fenced for us and has told its cursor, or has refused."""
    changed: dict[str, SinkState] = {}
    effects: list[Effect] = []
    for receipt in receipts:
        sink = state.sinks[receipt.sink]
        if not answers.awaited(sink, receipt.epoch, "recovering"):
            continue
        if receipt.cursor is not None:
            changed[receipt.sink] = answers.at_cursor(state, sink, receipt.cursor)
        else:
            changed[receipt.sink] = answers.refused(
                sink, receipt, answers.delayed(sink, receipt.fault, now_ms, jitter)
            )
            effects += answers.raise_token(receipt)
    return state.with_sinks(changed), effects


def recovery_failed(
    state: Delivery, effect: Recover, fault: Fault, *, now_ms: int, jitter: float = 0.0
) -> tuple[Delivery, list[Effect]]:
    """RecoveryFail for all: the job itself failed."""
    receipts = [Receipt(name, epoch, "failed", fault=fault) for name, (epoch, _) in effect.sinks.items()]
    return recovered(state, receipts, now_ms=now_ms, jitter=jitter)


# --- waves --------------------------------------------------------------------------------------------


def start_wave(state: Delivery, *, late: bool = False) -> tuple[Delivery, list[Effect]]:
    """StartWave: a group of idle sinks that lack the same changes reads once.

    By turns the largest group, and the one furthest behind: nobody waits for ever. The window ends
    where the next group ahead stands, so that groups meet and merge.
    """
    if state.head is None:
        return state, []
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, sink in state.sinks.items():
        if _wants_changes(sink, state.head) and sink.late == late:
            groups.setdefault(_lack(sink), []).append(name)
    if not groups:
        return state, []
    firsts = {key: state.sinks[names[0]] for key, names in groups.items()}
    places = {key: answers.place_of(first) for key, first in firsts.items()}
    if state.turn % 2 == 0:
        chosen = max(groups, key=lambda key: (len(groups[key]), -firsts[key].broken_waves))
    else:
        chosen = min(groups, key=lambda key: (places[key], firsts[key].broken_waves, -len(groups[key])))
    after = places[chosen]
    members = _part(state, groups[chosen])
    copies = state.sinks[members[0]].copies
    tables = {table: copy.at for table, copy in copies.items() if copy.status == "streaming"}
    upto_max = min([place for place in places.values() if place > after], default=state.head)
    return _start(
        replace(state, turn=state.turn + 1), "changes", [(members, tables, after, upto_max)], late=late
    )


def start_seed(state: Delivery) -> tuple[Delivery, list[Effect]]:
    """StartSeed: sinks that lack the same tables get them whole, at one pinned position.

    A sink with nothing yet is seeded at the head; one that streams other tables, where it stands.
    """
    if state.head is None:
        return state, []
    groups: dict[tuple[Position, tuple[str, ...], bool, int], list[str]] = {}
    for name, sink in state.sinks.items():
        lacks = unseeded(sink) if sink.phase == "idle" and not sink.paused else []
        at = _seed_place(state, sink)
        if lacks and at is not None:
            groups.setdefault((at, tuple(sorted(lacks)), sink.late, sink.broken_waves), []).append(name)
    if not groups:
        return state, []
    (at, names, late, _), members = max(groups.items(), key=lambda item: (not item[0][2], len(item[1])))
    return _start(state, "seed", [(_part(state, members), dict.fromkeys(names), None, at)], late=late)


def persist_idle(state: Delivery, sinks: Iterable[str]) -> tuple[Delivery, list[Effect]]:
    """PersistIdle: sinks that had nothing to write for a while make their position durable."""
    groups: dict[Position, list[str]] = {}
    for name in sinks:
        sink = state.sinks[name]
        if sink.position is not None and _may_persist(sink):
            groups.setdefault(sink.position, []).append(name)
    jobs: list[_Job] = [(members, {}, position, position) for position, members in groups.items()]
    return _start(state, "persist", jobs, late=False)


def due_to_persist(state: Delivery, *, lag_max: int | None = None) -> list[str]:
    """Idle sinks whose durable cursor retention may reach soon: it stands in the older half of the
    retained history, or more than `lag_max` places behind the head."""
    if state.oldest is None or state.head is None:
        return []
    due_below = (state.oldest.place + state.head.place + 1) // 2
    if lag_max is not None:
        due_below = max(due_below, state.head.place - lag_max)
    return [
        name
        for name, sink in state.sinks.items()
        if _may_persist(sink)
        and sink.cursor is not None
        and (sink.cursor.generation < state.head.generation or sink.cursor.place < due_below)
    ]


def wave_done(
    state: Delivery,
    wave_id: int,
    *,
    upto: Position,
    receipts: Iterable[Receipt],
    now_ms: int,
    jitter: float = 0.0,
) -> tuple[Delivery, list[Effect]]:
    """WaveCommit, WaveFail, WaveAbort and Advance: the job has ended; each sink has its own answer.

    A sink without a receipt had nothing in a window of changes: it advances without a commit. A seed
    and a persisted cursor are always answered; without an answer nobody knows, which is a failure.
    """
    wave = state.waves[wave_id]
    require(upto <= wave.upto_max, "a window ends at or before what was asked for")
    state = replace(state, waves={key: other for key, other in state.waves.items() if key != wave_id})
    told = {receipt.sink: receipt for receipt in receipts}
    pace = answers.pace(state)
    changed: dict[str, SinkState] = {}
    effects: list[Effect] = []
    for name, order in wave.sinks.items():
        sink = state.sinks[name]
        if not answers.awaited(sink, order.epoch, "applying") or sink.wave != wave_id:
            continue
        receipt = told.get(name)
        if receipt is None and wave.kind == "changes":
            changed[name] = answers.advance(state, sink, wave, upto)
        elif receipt is not None and receipt.outcome == "aborted":
            # WaveAbort: the window could not be read, the sink was not touched.
            changed[name] = answers.known_places(state, replace(sink, phase="idle", wave=None), wave)
        elif receipt is not None and receipt.cursor is not None:
            changed[name] = answers.committed(state, sink, receipt.cursor, pace)
        else:
            answer = receipt or Receipt(name, order.epoch, "failed", fault=answers.NO_ANSWER)
            changed[name] = answers.refused(sink, answer, answers.delayed(sink, answer.fault, now_ms, jitter))
            effects += answers.raise_token(answer)
    return state.with_sinks(changed), effects


def lost_history(state: Delivery, sinks: Iterable[str], tables: Iterable[str]) -> Delivery:
    """LostHistory: these tables' place turned out to be unreadable, inside [oldest, head] though it is.

    As after an expiry: a mirror is seeded anew, other copies are held.
    """
    require(state.head is not None, "history is lost only after it was observed")
    assert state.head is not None
    lost = frozenset(tables)
    return state.with_sinks(
        {
            name: gap(state.sinks[name], state.head, everything=True, tables=lost)
            for name in sinks
            if state.sinks[name].phase == "idle"
        }
    )


def wave_failed(
    state: Delivery, wave_id: int, fault: Fault, *, now_ms: int, jitter: float = 0.0
) -> tuple[Delivery, list[Effect]]:
    """WaveFail for all: the job itself failed. Orders may have committed, so cursors are read again.

    No single sink is to blame, so none is late; but a job that fails again and again is tried in halves,
    until whatever breaks it is alone.
    """
    wave = state.waves[wave_id]
    state = replace(state, waves={key: other for key, other in state.waves.items() if key != wave_id})
    changed = {}
    for name, order in wave.sinks.items():
        sink = state.sinks[name]
        if answers.awaited(sink, order.epoch, "applying") and sink.wave == wave_id:
            failed = answers.failed(sink, fault, answers.delayed(sink, fault, now_ms, jitter))
            changed[name] = replace(failed, broken_waves=sink.broken_waves + 1)
    return state.with_sinks(changed), []


# --- what users ask for -------------------------------------------------------------------------------


def pause(state: Delivery, *, sinks: frozenset[str]) -> Delivery:
    """Pause: exactly these sinks get no new order."""
    return state.with_sinks(
        {
            name: replace(sink, paused=name in sinks)
            for name, sink in state.sinks.items()
            if sink.paused != (name in sinks)
        }
    )


def pause_table(state: Delivery, table: str) -> Delivery:
    """PauseTable: the table is held where it stands; the next wave records that."""
    changed = {}
    for name, sink in state.sinks.items():
        copy = sink.copies.get(table)
        if sink.phase == "idle" and copy is not None and copy.status == "streaming" and copy.at is not None:
            hold = Hold(copy.at, PAUSED_CODE, f"{table} is paused")
            changed[name] = replace(sink, copies={**sink.copies, table: held(hold)})
    return state.with_sinks(changed)


def resume_table(state: Delivery, table: str, *, sinks: Iterable[str]) -> Delivery:
    """ResumeTable: a held table goes on from its own place, or is seeded when that cannot be read."""
    changed = {}
    for name in sinks:
        sink = state.sinks[name]
        copy = sink.copies.get(table)
        if sink.phase == "idle" and copy is not None and copy.status == "held":
            again = resumed(state, copy, sink.settings[table])
            changed[name] = replace(sink, copies={**sink.copies, table: again})
    return state.with_sinks(changed)


# --- leaves: starting ---------------------------------------------------------------------------------

_Job = tuple[Sequence[str], Mapping[str, Position | None], Position | None, Position]


def _start(
    state: Delivery, kind: WaveKind, jobs: Sequence[_Job], *, late: bool
) -> tuple[Delivery, list[Effect]]:
    """One wave for each job: (members, tables, after, upto_max)."""
    waves: dict[int, Wave] = {}
    changed: dict[str, SinkState] = {}
    for number, (members, tables, after, upto_max) in enumerate(jobs, start=state.next_wave):
        orders = {}
        for name in members:
            sink = state.sinks[name]
            require(sink.phase == "idle" and sink.wave is None, "D3: at most one wave in flight for a sink")
            require(sink.token > 0, "D6: only a sink that is ours is written to")
            require(sink.cursor is None or sink.cursor <= upto_max, "D1: a cursor never moves back")
            holds = {table: copy.hold for table, copy in sink.copies.items() if copy.hold is not None}
            orders[name] = SinkOrder(sink.epoch, sink.token, sink.cursor, holds)
            changed[name] = replace(sink, phase="applying", wave=number)
        waves[number] = Wave(number, kind, orders, tables, after, upto_max, late, state.identity)
    state = replace(state, next_wave=state.next_wave + len(waves), waves={**state.waves, **waves})
    return state.with_sinks(changed), [RunWave(wave) for wave in waves.values()]


def _wants_changes(sink: SinkState, head: Position) -> bool:
    """Idle, seeded, and something it streams stands before the head."""
    return (
        sink.phase == "idle"
        and not sink.paused
        and not unseeded(sink)
        and any(c.status == "streaming" and c.at is not None and c.at < head for c in sink.copies.values())
    )


def _lack(sink: SinkState) -> tuple[object, ...]:
    """Sinks with equal lacks can share a wave."""
    streaming = tuple(sorted((t, c.at) for t, c in sink.copies.items() if c.status == "streaming"))
    return (sink.position, streaming, sink.broken_waves)


def _part(state: Delivery, members: list[str]) -> list[str]:
    """All of a group, or half as many after each job that failed as a whole."""
    return members[: max(1, len(members) >> state.sinks[members[0]].broken_waves)]


def _seed_place(state: Delivery, sink: SinkState) -> Position | None:
    """Where a seed is pinned. None: the last look at the source is older than the sink's cursor."""
    if streams(sink):
        return sink.position
    stale = sink.cursor is not None and state.head is not None and state.head < sink.cursor
    return None if stale else state.head


def _may_persist(sink: SinkState) -> bool:
    ahead = sink.position is not None and sink.position != sink.cursor
    return sink.phase == "idle" and not sink.paused and ahead and not unseeded(sink)
