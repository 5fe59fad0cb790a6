"""What an answer means for one sink: committed, advanced, aborted, failed, refused, recovered.

Promises D1 (a cursor never moves back), D4 (nothing is heard of an older epoch) and D5 (nothing goes on
across a gap) for each sink alone; `delivery` applies them to the sinks of a wave. An answer to an order
concerns the copies that the order names, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from truecut.core.copies import GAP_CODE, across_gap, copy_at, placed, untaken
from truecut.core.state import Copy, CopySettings, Delivery, Effect, RaiseToken, SinkOrder, SinkState, Wave
from truecut.errors import Fault, Retry, require
from truecut.model.cursor import Cursor, Hold
from truecut.model.order import OrderKind, Receipt
from truecut.model.position import Position

BACKOFF_FIRST_MS = 500
BACKOFF_MAX_MS = 60_000
NO_ANSWER = Fault("TC3006", "the wave ended without the sink's answer", "None needed.", Retry.RETRYABLE)


def awaited(sink: SinkState, epoch: int, phase: str) -> bool:
    """D4: no reset has happened since the question was asked."""
    return sink.epoch == epoch and sink.phase == phase


def reset(sink: SinkState) -> SinkState:
    """Forget everything but the settings; what is in flight belongs to an older epoch."""
    return replace(sink, epoch=sink.epoch + 1, cursor=None, copies={}, retry_at_ms=0)


def failed(sink: SinkState, fault: Fault | None, retry_at_ms: int) -> SinkState:
    """Reset first: the order may have committed, so the cursor is read again before anything else."""
    return replace(
        reset(sink), phase="acquired", failures=sink.failures + 1, retry_at_ms=retry_at_ms, fault=fault
    )


def in_broken_job(sink: SinkState, fault: Fault, now_ms: int, jitter: float) -> SinkState:
    """It was among those of a job that failed as a whole. No single sink is to blame, so none is late."""
    return failed(sink, fault, delayed(sink.failures, fault, now_ms, jitter))


def refused(sink: SinkState, receipt: Receipt, retry_at_ms: int) -> SinkState:
    """The sink itself failed or did not answer in time: it leaves its group."""
    fault = receipt.fault
    if fault is not None and receipt.fenced_by is not None:
        # With this token never; but a larger one is asked for, or the sink is given up.
        fault = replace(fault, retry=Retry.RETRYABLE)
    return replace(failed(sink, fault, retry_at_ms), late=True, hung=receipt.outcome == "late")


def delayed(failures: int, fault: Fault | None, now_ms: int, jitter: float) -> int:
    """When to try again; `jitter` in [0, 1] adds up to that share of the delay."""
    delay = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(failures, 10))
    if fault is not None and fault.retry is not Retry.RETRYABLE:
        delay = BACKOFF_MAX_MS
    return now_ms + delay + int(delay * jitter)


def raise_token(receipt: Receipt) -> list[Effect]:
    return [] if receipt.fenced_by is None else [RaiseToken(receipt.sink, receipt.fenced_by)]


def at_cursor(state: Delivery, sink: SinkState, cursor: Cursor) -> SinkState:
    """A sink stands at its cursor; copies that it does not have yet are to be seeded."""
    copies = {
        table: copy_at(state, table, cursor.copies.get(table), wanted)
        for table, wanted in sink.settings.items()
    }
    return replace(
        sink, phase="ready", cursor=cursor.position, copies=copies, broken_recoveries=0, hung=False
    )


def committed(
    state: Delivery, sink: SinkState, order: SinkOrder, cursor: Cursor, slowest: Position | None
) -> SinkState:
    """The sink has told its cursor after a commit. What another order did is told by its own answer, which
    may have come first: then this row is older than what we know of the others."""
    places = [place for place in (sink.cursor, cursor.position) if place is not None]
    sink = replace(
        sink.with_copies({table: _told(state, sink, order, cursor, table) for table in order.tables}),
        cursor=max(places, default=None),
        failures=0,
        broken_waves=0,
        fault=None,
    )
    keeps_up = slowest is None or (sink.position is not None and sink.position >= slowest)
    return replace(sink, late=sink.late and not keeps_up)


def _told(state: Delivery, sink: SinkState, order: SinkOrder, cursor: Cursor, table: str) -> Copy:
    before = sink.copies[table].durable
    copy = copy_at(state, table, cursor.copies.get(table), sink.settings[table])
    grown = before is None or (
        copy.durable is not None and (copy.durable.edition, copy.durable.at) >= (before.edition, before.at)
    )
    require(grown, "D1: a copy never moves back")
    return _troubled(copy, sink.copies[table], order.tables[table].kind)


def _troubled(copy: Copy, was: Copy, kind: OrderKind) -> Copy:
    """Only changes that were read end its trouble: whether a seed has helped is seen by the next ones, and
    what was told without reading says nothing."""
    if kind == "changes":
        return copy
    if kind == "replace":
        return replace(copy, failures=was.failures)
    return replace(copy, failures=was.failures, retry_at_ms=was.retry_at_ms, fault=was.fault)


def pace(state: Delivery) -> Position | None:
    """Where the slowest of the punctual sinks stands: a late one that is there joins them again."""
    places = [sink.position for sink in state.sinks.values() if not sink.late]
    return min((place for place in places if place is not None), default=None)


def advance(state: Delivery, sink: SinkState, wave: Wave, order: SinkOrder, upto: Position) -> SinkState:
    """Nothing in the window was for this sink: its copies' places move, what is durable stays."""
    copies = {}
    for table in order.tables:
        copy = sink.copies[table]
        require(copy.at is not None and upto >= copy.at, "D1: a place never moves back")
        moved = replace(copy, at=upto, source_identity=wave.identity, wave=None, failures=0, fault=None)
        copies[table] = placed(state, moved, sink.settings[table])
    return replace(sink.with_copies(copies), broken_waves=0)


def aborted(
    state: Delivery,
    sink: SinkState,
    order: SinkOrder,
    unread: Mapping[str, Fault],
    now_ms: int,
    jitter: float,
) -> SinkState:
    """The window could not be read, the sink was not touched. The tables that were the reason rest for a
    while; the others may go on at once, without them."""
    copies = {}
    for table in order.tables:
        copy = replace(sink.copies[table], wave=None)
        if table in unread:
            copy = _unread(copy, unread[table], now_ms, jitter)
        copies[table] = placed(state, untaken(copy), sink.settings[table])
    return sink.with_copies(copies)


def _unread(copy: Copy, fault: Fault, now_ms: int, jitter: float) -> Copy:
    retry_at_ms = delayed(copy.failures, fault, now_ms, jitter)
    return replace(copy, failures=copy.failures + 1, retry_at_ms=retry_at_ms, fault=fault)


def lost(copy: Copy, wanted: CopySettings, fault: Fault, now_ms: int, jitter: float) -> Copy:
    """A place that turned out to be unreadable: as after an expiry. The first seed starts at once."""
    retry_at_ms = delayed(copy.failures - 1, None, now_ms, jitter) if copy.failures else now_ms
    copy = replace(copy, failures=copy.failures + 1, retry_at_ms=retry_at_ms, fault=None)
    return across_gap(copy, wanted, Hold(GAP_CODE, fault.message))
