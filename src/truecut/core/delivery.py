"""Delivery of one change log to many sinks: which wave may start, and what its receipts mean.

Owns: each sink's lease token, epoch, durable cursor, read position and the wave it is in. Promises:
  D1  a cursor never moves back
  D2  a wave covers exactly what its sinks lack: (position, upto], tables at their own place
  D3  at most one wave in flight for a sink
  D4  a receipt of an older epoch changes nothing
  D5  nothing is read across a gap: what cannot be read is seeded anew, or held
  D6  without a recovered lease a sink is not written to
Follows specs/Delivery.tla; every public function here is one of its actions. No I/O, no clock: time is
passed in, effects are returned as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from truecut.errors import Fault, Retry, require
from truecut.model.cursor import Cursor, Hold
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.model.table import Mode

BACKOFF_FIRST_MS = 500
BACKOFF_MAX_MS = 60_000
GAP_CODE = "TC3001"
PAUSED_CODE = "TC3002"
CHANGED_CODE = "TC3004"


@dataclass(frozen=True, slots=True)
class CopySettings:
    """What the pipeline wants of one table at one sink."""

    mode: Mode
    on_gap: Literal["backfill", "stop"] = "backfill"
    fingerprint: str = ""  # of what shapes the copy's rows
    accept: bool = False  # a copy of another shape may be replaced


@dataclass(frozen=True, slots=True)
class Copy:
    """One table at one sink: streaming from `at`, held at `at`, or to be seeded."""

    status: Literal["streaming", "held", "unseeded"]
    at: Position | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class SinkState:
    """One sink as this runner knows it."""

    settings: Mapping[str, CopySettings]
    phase: Literal["unowned", "acquired", "recovering", "idle", "applying"] = "unowned"
    token: int = 0
    epoch: int = 0  # bumped by every reset
    cursor: Position | None = None  # durable, in the sink itself
    position: Position | None = None  # read up to here; nothing in (cursor, position] was for this sink
    copies: Mapping[str, Copy] = field(default_factory=dict)
    wave: int | None = None
    failures: int = 0
    retry_at_ms: int = 0
    fault: Fault | None = None
    late: bool = False  # left its group; gets small waves of its own until it has caught up once
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Wave:
    """One Spark job: `sinks` all stand at `after` and have the same tables at the same places."""

    id: int
    kind: Literal["changes", "seed", "persist"]
    sinks: Mapping[str, SinkOrder]
    tables: Mapping[str, Position | None]  # the tables that are read, each from its own place
    after: Position | None
    upto_max: Position
    late: bool = False


@dataclass(frozen=True, slots=True)
class SinkOrder:
    """What a wave knows of one of its sinks."""

    epoch: int
    token: int
    expected: Position | None
    holds: Mapping[str, Hold] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recover:
    """Effect: take these sinks over and read their cursors. sink → (epoch, token)."""

    sinks: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RunWave:
    """Effect: run this wave and report it by `wave_done` or `wave_failed`."""

    wave: Wave


@dataclass(frozen=True, slots=True)
class RaiseToken:
    """Effect: the sink has seen a newer token than our lease's; get one above `above`, or give it up."""

    sink: str
    above: int


Effect = Recover | RunWave | RaiseToken


@dataclass(frozen=True, slots=True)
class Delivery:
    """Everything this runner knows about delivery."""

    sinks: Mapping[str, SinkState]
    identity: str = ""
    oldest: Position | None = None
    head: Position | None = None
    next_wave: int = 1
    waves: Mapping[int, Wave] = field(default_factory=dict)

    def with_sinks(self, changed: Mapping[str, SinkState]) -> Delivery:
        """The same with some sinks replaced."""
        return replace(self, sinks={**self.sinks, **changed})


# --- the source ---------------------------------------------------------------------------------------


def observe(state: Delivery, *, identity: str, oldest: Position, head: Position) -> Delivery:
    """Observe: the source's history is now [oldest, head]. Sinks that fell out of it lose their place."""
    state = replace(state, identity=identity, oldest=oldest, head=head)
    fallen = {
        name: _gap(sink, oldest)
        for name, sink in state.sinks.items()
        if sink.phase == "idle" and any(_fell_behind(copy, oldest) for copy in sink.copies.values())
    }
    return state.with_sinks(fallen) if fallen else state


# --- leases and recovery ------------------------------------------------------------------------------


def acquire(state: Delivery, tokens: Mapping[str, int]) -> Delivery:
    """Acquire: leases with new tokens. What we knew of these sinks is void."""
    return state.with_sinks(
        {
            name: replace(_reset(state.sinks[name]), phase="acquired", token=token)
            for name, token in tokens.items()
        }
    )


def lose(state: Delivery, sinks: Iterable[str]) -> Delivery:
    """Lose: a lease ran out, was released or taken. In-flight receipts will be of an older epoch."""
    return state.with_sinks(
        {name: replace(_reset(state.sinks[name]), phase="unowned", token=0) for name in sinks}
    )


def start_recovery(state: Delivery, *, now_ms: int) -> tuple[Delivery, list[Effect]]:
    """StartRecovery: one job takes over all sinks whose lease is new or whose last order is in doubt."""
    due = {
        name: sink
        for name, sink in state.sinks.items()
        if sink.phase == "acquired" and sink.retry_at_ms <= now_ms and not sink.paused
    }
    if not due:
        return state, []
    state = state.with_sinks({name: replace(sink, phase="recovering") for name, sink in due.items()})
    return state, [Recover({name: (sink.epoch, sink.token) for name, sink in due.items()})]


def recovered(state: Delivery, receipts: Iterable[Receipt], *, now_ms: int) -> tuple[Delivery, list[Effect]]:
    """Recovered: the sink is fenced for us and has told its cursor (or has refused)."""
    changed: dict[str, SinkState] = {}
    effects: list[Effect] = []
    for receipt in receipts:
        sink = state.sinks[receipt.sink]
        if receipt.epoch != sink.epoch or sink.phase != "recovering":  # D4
            continue
        if receipt.cursor is not None:
            changed[receipt.sink] = _at_cursor(state, sink, receipt.cursor)
        else:
            changed[receipt.sink] = _fail(sink, receipt, now_ms)
            if receipt.fenced_by is not None:
                effects.append(RaiseToken(receipt.sink, receipt.fenced_by))
    return state.with_sinks(changed), effects


# --- waves --------------------------------------------------------------------------------------------


def start_wave(state: Delivery, *, late: bool = False) -> tuple[Delivery, list[Effect]]:
    """StartWave: the largest group of idle sinks that lack the same changes reads once.

    The window ends where the next group ahead stands, so that groups meet and merge.
    """
    if state.head is None:
        return state, []
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, sink in state.sinks.items():
        if _wants_changes(sink, state.head) and sink.late == late:
            groups.setdefault(_lack(sink), []).append(name)
    if not groups:
        return state, []
    members = max(groups.values(), key=lambda names: (len(names), names))
    first = state.sinks[members[0]]
    require(first.position is not None, "an idle sink without a seed has no position")
    tables = {t: copy.at for t, copy in first.copies.items() if copy.status == "streaming"}
    upto_max = _next_ahead(state, first.position) if first.position else state.head
    return _start(state, "changes", members, tables, first.position, upto_max, late)


def start_seed(state: Delivery) -> tuple[Delivery, list[Effect]]:
    """StartSeed: sinks that lack the same tables get them whole, at one pinned position.

    A sink with nothing yet is seeded at the head; one that streams other tables, where it stands.
    """
    if state.head is None:
        return state, []
    groups: dict[tuple[Position, tuple[str, ...], bool], list[str]] = {}
    for name, sink in state.sinks.items():
        if sink.phase == "idle" and not sink.paused and _unseeded(sink):
            at = sink.position if sink.position is not None and _streams(sink) else state.head
            groups.setdefault((at, tuple(sorted(_unseeded(sink))), sink.late), []).append(name)
    if not groups:
        return state, []
    (at, names, late), members = max(groups.items(), key=lambda item: len(item[1]))
    return _start(state, "seed", members, dict.fromkeys(names), None, at, late)


def persist_idle(state: Delivery, sinks: Iterable[str]) -> tuple[Delivery, list[Effect]]:
    """PersistIdle: sinks that had nothing to write for a while make their position durable."""
    groups: dict[Position, list[str]] = {}
    for name in sinks:
        sink = state.sinks[name]
        if sink.phase == "idle" and sink.position is not None and sink.position != sink.cursor:
            groups.setdefault(sink.position, []).append(name)
    effects: list[Effect] = []
    for position, members in groups.items():
        state, started = _start(state, "persist", members, {}, position, position, False)
        effects += started
    return state, effects


def due_to_persist(state: Delivery) -> list[str]:
    """Idle sinks whose cursor stands in the older half of the retained history: retention comes nearer."""
    if state.oldest is None or state.head is None:
        return []
    middle = (state.oldest.place + state.head.place) // 2
    return [
        name
        for name, sink in state.sinks.items()
        if sink.phase == "idle"
        and sink.cursor is not None
        and sink.cursor != sink.position
        and (sink.cursor.generation < state.head.generation or sink.cursor.place <= middle)
    ]


def wave_done(
    state: Delivery, wave_id: int, *, upto: Position, receipts: Iterable[Receipt], now_ms: int
) -> tuple[Delivery, list[Effect]]:
    """WaveCommit, WaveFail and Advance: the job has ended; each sink has its own answer.

    A sink without a receipt had nothing in the window: it advances without a commit.
    """
    wave = state.waves[wave_id]
    require(upto <= wave.upto_max, "a window ends at or before what was asked for")
    state = replace(state, waves={key: w for key, w in state.waves.items() if key != wave_id})
    answers = {receipt.sink: receipt for receipt in receipts}
    changed: dict[str, SinkState] = {}
    for name, order in wave.sinks.items():
        sink = state.sinks[name]
        if sink.epoch != order.epoch or sink.wave != wave_id:  # D4: a reset happened while it ran
            continue
        receipt = answers.get(name)
        if receipt is None:
            changed[name] = _advance(sink, wave, upto)
        elif receipt.outcome == "aborted":  # the window could not be read: the sink was not touched
            changed[name] = replace(sink, phase="idle", wave=None)
        elif receipt.cursor is not None:
            changed[name] = _committed(state, sink, receipt.cursor)
        else:
            changed[name] = _fail(sink, receipt, now_ms)
    return state.with_sinks(changed), []


def wave_failed(state: Delivery, wave_id: int, fault: Fault, *, now_ms: int) -> tuple[Delivery, list[Effect]]:
    """WaveFail for all: the job itself failed. Orders may have committed, so cursors are read again."""
    receipts = [
        Receipt(sink=name, epoch=order.epoch, outcome="failed", fault=fault)
        for name, order in state.waves[wave_id].sinks.items()
    ]
    return wave_done(state, wave_id, upto=state.waves[wave_id].upto_max, receipts=receipts, now_ms=now_ms)


# --- what users ask for -------------------------------------------------------------------------------


def pause(state: Delivery, *, sinks: frozenset[str]) -> Delivery:
    """Pause: exactly these sinks get no new order."""
    changed = {
        name: replace(sink, paused=name in sinks)
        for name, sink in state.sinks.items()
        if sink.paused != (name in sinks)
    }
    return state.with_sinks(changed) if changed else state


def pause_table(state: Delivery, table: str) -> Delivery:
    """PauseTable: the table is held where it stands; the next wave records that."""
    changed = {}
    for name, sink in state.sinks.items():
        copy = sink.copies.get(table)
        if sink.phase == "idle" and copy is not None and copy.status == "streaming" and copy.at is not None:
            hold = Hold(copy.at, PAUSED_CODE, f"{table} is paused")
            changed[name] = _with_copy(sink, table, _held(hold))
    return state.with_sinks(changed) if changed else state


def resume_table(state: Delivery, table: str) -> Delivery:
    """ResumeTable: a held table goes on from its own place, or is seeded when that cannot be read."""
    changed = {}
    for name, sink in state.sinks.items():
        copy = sink.copies.get(table)
        if sink.phase != "idle" or copy is None or copy.status != "held":
            continue
        paused = copy.hold is not None and copy.hold.code == PAUSED_CODE
        readable = copy.at is not None and state.oldest is not None and copy.at >= state.oldest
        mirror = sink.settings[table].mode == "mirror"
        # A mirror that stopped with an error is seeded anew: whatever went wrong, it is repaired.
        goes_on = readable and (paused or not mirror)
        changed[name] = _with_copy(sink, table, Copy("streaming", copy.at) if goes_on else Copy("unseeded"))
    return state.with_sinks(changed) if changed else state


# --- leaves -------------------------------------------------------------------------------------------


def _start(
    state: Delivery,
    kind: Literal["changes", "seed", "persist"],
    members: list[str],
    tables: Mapping[str, Position | None],
    after: Position | None,
    upto_max: Position,
    late: bool,
) -> tuple[Delivery, list[Effect]]:
    orders = {}
    changed = {}
    for name in members:
        sink = state.sinks[name]
        require(sink.phase == "idle" and sink.wave is None, "D3: at most one wave in flight for a sink")
        require(sink.token > 0, "D6: only a sink that is ours is written to")
        holds = {t: copy.hold for t, copy in sink.copies.items() if copy.hold is not None}
        orders[name] = SinkOrder(sink.epoch, sink.token, sink.cursor, holds)
        changed[name] = replace(sink, phase="applying", wave=state.next_wave)
    wave = Wave(state.next_wave, kind, orders, tables, after, upto_max, late)
    state = replace(state, next_wave=wave.id + 1, waves={**state.waves, wave.id: wave})
    return state.with_sinks(changed), [RunWave(wave)]


def _reset(sink: SinkState) -> SinkState:
    """Forget everything but the settings; what is in flight belongs to an older epoch."""
    return replace(
        sink, epoch=sink.epoch + 1, wave=None, cursor=None, position=None, copies={}, retry_at_ms=0
    )


def _fail(sink: SinkState, receipt: Receipt, now_ms: int) -> SinkState:
    """Reset first: the order may have committed, so the cursor is read again before anything else."""
    failures = sink.failures + 1
    delay = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(failures - 1, 10))
    if receipt.fault is not None and receipt.fault.retry is Retry.NOT_RETRYABLE:
        delay = BACKOFF_MAX_MS
    return replace(
        _reset(sink),
        phase="acquired",
        failures=failures,
        retry_at_ms=now_ms + delay,
        fault=receipt.fault,
        late=True,
    )


def _at_cursor(state: Delivery, sink: SinkState, cursor: Cursor) -> SinkState:
    """A recovered sink stands at its cursor; copies that it does not have yet are to be seeded."""
    copies = {table: _copy_at(cursor, table, wanted) for table, wanted in sink.settings.items()}
    sink = replace(
        sink, phase="idle", cursor=cursor.position, position=cursor.position, copies=copies, wave=None
    )
    other_source = cursor.position is not None and cursor.source_identity != state.identity
    oldest = state.head if other_source else state.oldest
    return sink if oldest is None else _gap(sink, oldest, everything=other_source)


def _copy_at(cursor: Cursor, table: str, wanted: CopySettings) -> Copy:
    known = cursor.copies.get(table)
    place = cursor.position
    if known is None or place is None or not known.columns:
        return Copy("unseeded") if known is None or known.hold is None else _held(known.hold)
    if known.fingerprint != wanted.fingerprint:
        message = f"the key, route or mode of {table} was changed; its copy would be replaced"
        return Copy("unseeded") if wanted.accept else _held(Hold(place, CHANGED_CODE, message))
    if known.hold is None:
        return Copy("streaming", place)
    # The settings were changed and changed back: it goes on from where it stood.
    return Copy("streaming", known.hold.at) if known.hold.code == CHANGED_CODE else _held(known.hold)


def _held(hold: Hold) -> Copy:
    return Copy("held", hold.at, hold)


def _committed(state: Delivery, sink: SinkState, cursor: Cursor) -> SinkState:
    """The sink has told its cursor after a commit."""
    moved = cursor.position is not None and (sink.cursor is None or cursor.position >= sink.cursor)
    require(moved, "D1: a cursor never moves back")
    caught_up = cursor.position == state.head
    return replace(
        _at_cursor(state, sink, cursor),
        failures=0,
        fault=None,
        late=sink.late and not caught_up,
    )


def _advance(sink: SinkState, wave: Wave, upto: Position) -> SinkState:
    """Nothing in the window was for this sink: its read position moves, its cursor stays."""
    if wave.kind != "changes":
        return replace(sink, phase="idle", wave=None)
    require(sink.position is not None and upto >= sink.position, "D1: a position never moves back")
    copies = {
        table: replace(copy, at=upto) if copy.status == "streaming" else copy
        for table, copy in sink.copies.items()
    }
    return replace(sink, phase="idle", wave=None, position=upto, copies=copies)


def _fell_behind(copy: Copy, oldest: Position) -> bool:
    return copy.status == "streaming" and copy.at is not None and copy.at < oldest


def _gap(sink: SinkState, oldest: Position, *, everything: bool = False) -> SinkState:
    """D5: a streaming copy whose place is gone is seeded anew (mirror) or held (append, on_gap: stop)."""
    copies = dict(sink.copies)
    for table, copy in sink.copies.items():
        if copy.status != "streaming" or not (everything or _fell_behind(copy, oldest)):
            continue
        wanted = sink.settings[table]
        if wanted.mode == "mirror" and wanted.on_gap == "backfill":
            copies[table] = Copy("unseeded")
        else:
            place = copy.at or oldest
            message = f"the source no longer has its history after {place}; the oldest position is {oldest}"
            copies[table] = _held(Hold(place, GAP_CODE, message))
    return replace(sink, copies=copies)


def _wants_changes(sink: SinkState, head: Position) -> bool:
    """Idle, seeded, and something it streams stands before the head."""
    return (
        sink.phase == "idle"
        and not sink.paused
        and not _unseeded(sink)
        and any(c.status == "streaming" and c.at is not None and c.at < head for c in sink.copies.values())
    )


def _lack(sink: SinkState) -> tuple[object, ...]:
    """Sinks with equal lacks can share a wave."""
    streaming = tuple(sorted((t, c.at) for t, c in sink.copies.items() if c.status == "streaming"))
    return (sink.position, streaming)


def _unseeded(sink: SinkState) -> list[str]:
    return [table for table, copy in sink.copies.items() if copy.status == "unseeded"]


def _streams(sink: SinkState) -> bool:
    return any(copy.status == "streaming" for copy in sink.copies.values())


def _next_ahead(state: Delivery, position: Position) -> Position:
    """The nearest place ahead where another sink stands, or the head."""
    require(state.head is not None, "a wave starts only after the source was observed")
    ahead = [s.position for s in state.sinks.values() if s.position is not None and s.position > position]
    assert state.head is not None
    return min([*ahead, state.head])


def _with_copy(sink: SinkState, table: str, copy: Copy) -> SinkState:
    return replace(sink, copies={**sink.copies, table: copy})
