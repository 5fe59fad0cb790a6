"""What an answer means for one sink: committed, advanced, failed, refused, recovered.

Promises D1 (a cursor never moves back), D4 (nothing is heard of an older epoch) and D5 (nothing goes on
across a gap) for each sink alone; `delivery` applies them to the sinks of a wave.
"""

from __future__ import annotations

from dataclasses import replace

from truecut.core.copies import backwards, copy_at, gap
from truecut.core.state import Delivery, Effect, RaiseToken, SinkState, Wave
from truecut.errors import Fault, Retry, require
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position

BACKOFF_FIRST_MS = 500
BACKOFF_MAX_MS = 60_000
NO_ANSWER = Fault("TC3006", "the wave ended without the sink's answer", "None needed.", Retry.RETRYABLE)


def place_of(sink: SinkState) -> Position:
    """Where a sink that streams has been read up to."""
    if sink.position is None:
        raise AssertionError("D2: a sink that streams has a position")
    return sink.position


def awaited(sink: SinkState, epoch: int, phase: str) -> bool:
    """D4: no reset has happened since the question was asked."""
    return sink.epoch == epoch and sink.phase == phase


def reset(sink: SinkState) -> SinkState:
    """Forget everything but the settings; what is in flight belongs to an older epoch."""
    return replace(
        sink, epoch=sink.epoch + 1, wave=None, cursor=None, position=None, copies={}, retry_at_ms=0
    )


def failed(sink: SinkState, fault: Fault | None, retry_at_ms: int) -> SinkState:
    """Reset first: the order may have committed, so the cursor is read again before anything else."""
    return replace(
        reset(sink), phase="acquired", failures=sink.failures + 1, retry_at_ms=retry_at_ms, fault=fault
    )


def refused(sink: SinkState, receipt: Receipt, retry_at_ms: int) -> SinkState:
    """The sink itself failed or did not answer in time: it leaves its group."""
    return replace(failed(sink, receipt.fault, retry_at_ms), late=True)


def delayed(sink: SinkState, fault: Fault | None, now_ms: int, jitter: float) -> int:
    """When to try again; `jitter` in [0, 1] adds up to that share of the delay."""
    delay = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(sink.failures, 10))
    if fault is not None and fault.retry is not Retry.RETRYABLE:
        delay = BACKOFF_MAX_MS
    return now_ms + delay + int(delay * jitter)


def raise_token(receipt: Receipt) -> list[Effect]:
    return [] if receipt.fenced_by is None else [RaiseToken(receipt.sink, receipt.fenced_by)]


def at_cursor(state: Delivery, sink: SinkState, cursor: Cursor) -> SinkState:
    """A sink stands at its cursor; copies that it does not have yet are to be seeded."""
    copies = {table: copy_at(cursor, table, wanted) for table, wanted in sink.settings.items()}
    place = cursor.position
    sink = replace(sink, phase="idle", cursor=place, position=place, copies=copies, wave=None)
    if state.oldest is None or state.head is None or place is None:
        return sink
    if cursor.source_identity == state.identity:
        return gap(sink, state.oldest)
    return (
        backwards(sink, place, state.head) if state.head <= place else gap(sink, state.head, everything=True)
    )


def committed(state: Delivery, sink: SinkState, cursor: Cursor, pace: Position | None) -> SinkState:
    """The sink has told its cursor after a commit."""
    place = cursor.position
    moved = place is not None and (sink.cursor is None or place >= sink.cursor)
    require(moved, "D1: a cursor never moves back")
    keeps_up = place is not None and (pace is None or place >= pace)
    return replace(
        at_cursor(state, sink, cursor),
        failures=0,
        broken_waves=0,
        fault=None,
        late=sink.late and not keeps_up,
    )


def pace(state: Delivery) -> Position | None:
    """Where the slowest of the punctual sinks stands: a late one that is there joins them again."""
    places = [sink.position for sink in state.sinks.values() if not sink.late and sink.position is not None]
    return min(places, default=None)


def advance(state: Delivery, sink: SinkState, wave: Wave, upto: Position) -> SinkState:
    """Nothing in the window was for this sink: its read position moves, its cursor stays."""
    require(upto >= place_of(sink), "D1: a position never moves back")
    copies = {
        table: replace(copy, at=upto) if copy.status == "streaming" else copy
        for table, copy in sink.copies.items()
    }
    moved = replace(sink, phase="idle", wave=None, position=upto, copies=copies, broken_waves=0)
    return known_places(state, moved, wave)


def known_places(state: Delivery, sink: SinkState, wave: Wave) -> SinkState:
    """D5: while the wave ran, the source may have been replaced, or its history cut."""
    return (
        sink if state.oldest is None else gap(sink, state.oldest, everything=wave.identity != state.identity)
    )
