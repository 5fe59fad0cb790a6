"""Delivery of one change log to many sinks: which wave may start, and what its receipts mean.

Owns: each sink's lease token and epoch; for each copy (one table at one sink) its durable version, the
place it was read up to and the wave it is in. Promises:
  D1  a cursor never moves back, and no copy's place within an edition
  D2  a wave covers exactly what its copies lack: (their place, upto]
  D3  at most one wave in flight for a copy; for a sink one of changes and one seed
  D4  a receipt of an older epoch changes nothing
  D5  nothing is read across a gap: what cannot be read is seeded anew, or held
  D6  without a recovered lease a sink is not written to
  D7  what a user has asked for is kept until the sink itself shows it
  D8  a look at the source that is older than a sink changes nothing there
An order moves copies, not sinks: tables that stand elsewhere (held, paused, being seeded, catching up) are
not named by it, and stay where they are. Follows specs/Delivery.tla; every public function here is one of
its actions. No I/O, no clock: time and chance are passed in, effects are returned as data. Each call costs
time in proportion to the copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from truecut.core import answers
from truecut.core.copies import (
    CHANGED_CODE,
    GAP_CODE,
    differs,
    lacking,
    outrun,
    placed,
    to_seed,
)
from truecut.core.persisting import due_to_persist, taken_up
from truecut.core.starting import (
    Lack,
    changes,
    may_stream,
    part,
    persists,
    readings,
    replaces,
    start,
    wave_of,
)
from truecut.core.state import (
    Copy,
    CopyOrder,
    CopySettings,
    Delivery,
    Effect,
    Lane,
    RaiseToken,
    Recover,
    RunWave,
    SinkOrder,
    SinkState,
    Wave,
    WaveKind,
)
from truecut.core.wishes import copy_again, pause, pause_tables, resume_table
from truecut.errors import Fault, require
from truecut.model.order import Receipt
from truecut.model.position import Position

__all__ = [
    "CHANGED_CODE",
    "GAP_CODE",
    "Copy",
    "CopyOrder",
    "CopySettings",
    "Delivery",
    "Effect",
    "RaiseToken",
    "Recover",
    "RunWave",
    "SinkOrder",
    "SinkState",
    "Wave",
    "WaveKind",
    "acquire",
    "copy_again",
    "due_to_persist",
    "enlist",
    "lose",
    "lost_history",
    "observe",
    "pause",
    "pause_tables",
    "persist_idle",
    "recovered",
    "recovery_failed",
    "resume_table",
    "retire",
    "start_recovery",
    "start_seed",
    "start_wave",
    "taken_up",
    "wave_done",
    "wave_failed",
]


# --- the source ---------------------------------------------------------------------------------------


def observe(
    state: Delivery,
    *,
    identity: str,
    oldest: Position,
    head: Position,
    unready: Mapping[str, str] | None = None,
) -> Delivery:
    """Observe: the source's history is now [oldest, head]. Copies that fell out of it lose their place.

    Tables that are `unready` cannot be given whole yet: their seeds wait.

    Another identity is another history: nothing that was read before continues in it. Its positions are of
    a later generation: a look of an earlier one comes late, and changes nothing (D8).
    """
    if state.head is not None and head.generation < state.head.generation:
        return state
    same_past = (identity, oldest) == (state.identity, state.oldest)
    state = replace(state, identity=identity, oldest=oldest, head=head, unready=unready or {})
    if same_past:
        return state
    return state.with_sinks(
        {
            name: sink.with_copies(lost)
            for name, sink in state.sinks.items()
            if sink.phase == "ready" and (lost := _without_place(state, sink))
        }
    )


# --- the pipeline's sinks -----------------------------------------------------------------------------


def enlist(state: Delivery, sinks: Mapping[str, Mapping[str, CopySettings]]) -> Delivery:
    """The pipeline has these sinks, too, with these tables. To the spec nothing has happened: they are
    nobody's, until somebody acquires them. One that was retired keeps its epoch (D4): what was asked of it
    then is not taken for an answer now."""
    return state.with_sinks(
        {
            name: SinkState(settings, epoch=state.sinks[name].epoch if name in state.sinks else 0)
            for name, settings in sinks.items()
        }
    )


def retire(state: Delivery, sinks: Iterable[str]) -> Delivery:
    """Lose, for good: these sinks were taken out of the pipeline. What they hold stays as it is."""
    names = list(sinks)
    state = lose(state, [name for name in names if state.sinks[name].phase != "unowned"])
    return state.with_sinks({name: replace(state.sinks[name], retired=True) for name in names})


# --- leases and recovery ------------------------------------------------------------------------------


def acquire(state: Delivery, tokens: Mapping[str, int]) -> Delivery:
    """Acquire: leases with new tokens. What we knew of these sinks is void. One that was retired since we
    asked is not acquired (D6): its lease is given back."""
    return state.with_sinks(
        {
            name: replace(answers.reset(state.sinks[name]), phase="acquired", token=token)
            for name, token in tokens.items()
            if not state.sinks[name].retired
        }
    )


def lose(state: Delivery, sinks: Iterable[str]) -> Delivery:
    """Lose: a lease ran out, was released or taken. In-flight receipts will be of an older epoch."""
    return state.with_sinks(
        {name: replace(answers.reset(state.sinks[name]), phase="unowned", token=0) for name in sinks}
    )


def start_recovery(state: Delivery, *, now_ms: int, lane: Lane = "punctual") -> tuple[Delivery, list[Effect]]:
    """StartRecovery: one job takes over all sinks whose lease is new or whose last order is in doubt.

    Late sinks in a job of their own, and those of which nothing came at all in another one, so that one which
    hangs each time delays the others once, whatever these are late by. After recoveries that failed as a
    whole in halves, those with the fewest first.
    Not before the source was observed: a cursor means something only in the history it came from.
    """
    if state.head is None:
        return state, []
    due = {
        name: sink
        for name, sink in state.sinks.items()
        if sink.phase == "acquired" and sink.lane == lane
        if sink.retry_at_ms <= now_ms and not sink.paused
    }
    if not due:
        return state, []
    broken = min(sink.broken_recoveries for sink in due.values())
    members = part([name for name, sink in due.items() if sink.broken_recoveries == broken], broken)
    state = state.with_sinks({name: replace(due[name], phase="recovering") for name in members})
    return state, [Recover({name: (due[name].epoch, due[name].token) for name in members}, lane)]


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
            changed[receipt.sink] = _refused(sink, receipt, now_ms, jitter)
            effects += answers.raise_token(receipt)
    return state.with_sinks(changed), effects


def recovery_failed(
    state: Delivery, effect: Recover, fault: Fault, *, now_ms: int, jitter: float = 0.0
) -> tuple[Delivery, list[Effect]]:
    """RecoveryFail for all: the job itself failed. As with a wave, no single sink is to blame: a punctual one
    must not come to wait for the late ones' recoveries by it."""
    changed = {}
    for name, (epoch, _) in effect.sinks.items():
        sink = state.sinks[name]
        if answers.awaited(sink, epoch, "recovering"):
            failed = answers.in_broken_job(sink, fault, now_ms, jitter)
            changed[name] = replace(failed, broken_recoveries=sink.broken_recoveries + 1)
    return state.with_sinks(changed), []


# --- waves --------------------------------------------------------------------------------------------


def start_wave(state: Delivery, *, now_ms: int = 0, late: bool = False) -> tuple[Delivery, list[Effect]]:
    """StartWave: a group of sinks that lack the same changes of the same tables reads once.

    By turns the largest group (of several the front), and the one furthest behind: nobody waits for ever,
    neither a table that catches up nor the others of its sink. The window ends where the next group ahead
    stands, so that groups meet and merge.
    """
    if state.head is None:
        return state, []
    groups: dict[Lack, list[str]] = {}
    for name, sink in state.sinks.items():
        if sink.late == late and may_stream(state, sink):
            for place, tables in lacking(sink, state.head, now_ms=now_ms):
                groups.setdefault(Lack(place, tables, sink.broken_waves), []).append(name)
    if not groups:
        return state, []
    if state.turn % 2 == 0:
        chosen = max(groups, key=lambda lack: (len(groups[lack]), -lack.broken_waves, lack.place))
    else:
        chosen = min(groups, key=lambda lack: (lack.place, lack.broken_waves, -len(groups[lack])))
    members = part(groups[chosen], chosen.broken_waves)
    upto_max = min((lack.place for lack in groups if lack.place > chosen.place), default=state.head)
    orders = {
        name: {table: changes(state.sinks[name].copies[table]) for table in chosen.tables} for name in members
    }
    wave = wave_of(state, "changes", orders, chosen.tables, chosen.place, upto_max, late=late)
    return start(replace(state, turn=state.turn + 1), [wave])


def start_seed(state: Delivery, *, now_ms: int, late: bool = False) -> tuple[Delivery, list[Effect]]:
    """StartSeed: sinks that lack the same tables get them whole, pinned at the head, or where copies stand
    that go on from there; whatever else they have goes on meanwhile.

    Not behind where a copy stands: then our last look at the source is older than the sink.
    """
    if state.head is None:
        return state, []
    groups: dict[Lack, list[str]] = {}
    seeding = {name for wave in state.waves.values() if wave.kind == "seed" for name in wave.sinks}
    for name, sink in state.sinks.items():
        free = sink.phase == "ready" and not sink.paused and name not in seeding and not outrun(state, sink)
        if free and sink.late == late:
            for place, tables in to_seed(sink, state.head, now_ms=now_ms, unready=state.unready):
                lack = Lack(place, tables, sink.broken_waves, readings(sink, tables))
                groups.setdefault(lack, []).append(name)
    if not groups:
        return state, []
    lack, members = max(groups.items(), key=lambda item: len(item[1]))
    orders = {
        name: {table: replaces(state.sinks[name].copies[table]) for table in lack.tables}
        for name in part(members, lack.broken_waves)
    }
    return start(state, [wave_of(state, "seed", orders, lack.tables, None, lack.place, late=late)])


def persist_idle(state: Delivery, sinks: Iterable[str]) -> tuple[Delivery, list[Effect]]:
    """PersistIdle: what we know of these sinks' copies and they do not (places read up to without a
    commit, holds set or lifted, requests taken up) becomes durable."""
    orders: dict[bool, dict[str, dict[str, CopyOrder]]] = {}
    places: list[Position] = []
    for name in sinks:
        sink = state.sinks[name]
        if may_stream(state, sink):
            told = {table: persists(copy) for table, copy in sink.copies.items() if differs(copy)}
            places += [order.at for order in told.values() if order.at is not None]
            if told:
                orders.setdefault(sink.late, {})[name] = told
    waves: list[Wave] = []
    for late, of_sinks in sorted(orders.items()):
        wave = wave_of(state, "persist", of_sinks, (), None, max(places), late=late)
        waves.append(replace(wave, id=wave.id + len(waves)))
    return start(state, waves)


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
        if not _is_out(sink, order, wave_id):
            continue
        receipt = told.get(name)
        if receipt is None and wave.kind == "changes":
            changed[name] = answers.advance(state, sink, wave, order, upto)
        elif receipt is not None and receipt.outcome == "aborted":
            changed[name] = answers.aborted(state, sink, order, receipt.unread, now_ms, jitter)
        elif receipt is not None and receipt.cursor is not None:
            changed[name] = answers.committed(state, sink, order, receipt.cursor, pace)
        else:
            answer = receipt or Receipt(name, order.epoch, "failed", fault=answers.NO_ANSWER)
            changed[name] = _refused(sink, answer, now_ms, jitter)
            effects += answers.raise_token(answer)
    return state.with_sinks(changed), effects


def lost_history(
    state: Delivery,
    sinks: Iterable[str],
    lost: Mapping[str, Fault],
    *,
    at: Position | None,
    now_ms: int,
    jitter: float = 0.0,
) -> Delivery:
    """LostHistory: this place of the tables turned out to be unreadable, inside [oldest, head] though it is.

    As after an expiry: a mirror is seeded anew, other copies are held, with the reason. A copy that has moved
    on since then, or was seeded, is not meant.
    """
    changed = {}
    for name in sinks:
        sink = state.sinks[name]
        if sink.phase == "ready" and not outrun(state, sink):
            copies = {
                table: answers.lost(copy, sink.settings[table], lost[table], now_ms, jitter)
                for table, copy in sink.copies.items()
                if table in lost and copy.status == "streaming" and copy.wave is None and copy.at == at
            }
            changed[name] = sink.with_copies(copies)
    return state.with_sinks(changed)


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
        if _is_out(sink, order, wave_id):
            failed = answers.in_broken_job(sink, fault, now_ms, jitter)
            changed[name] = replace(failed, broken_waves=sink.broken_waves + 1)
    return state.with_sinks(changed), []


# --- leaves: judging ----------------------------------------------------------------------------------


def _without_place(state: Delivery, sink: SinkState) -> dict[str, Copy]:
    """The copies whose place is gone, as they are now."""
    judged = {table: placed(state, copy, sink.settings[table]) for table, copy in sink.copies.items()}
    return {table: copy for table, copy in judged.items() if copy is not sink.copies[table]}


def _is_out(sink: SinkState, order: SinkOrder, wave_id: int) -> bool:
    """Whether the sink still waits for this wave."""
    awaited = answers.awaited(sink, order.epoch, "ready")
    return awaited and all(sink.copies[table].wave == wave_id for table in order.tables)


def _refused(sink: SinkState, receipt: Receipt, now_ms: int, jitter: float) -> SinkState:
    retry_at_ms = answers.delayed(sink.failures, receipt.fault, now_ms, jitter)
    return answers.refused(sink, receipt, retry_at_ms)
