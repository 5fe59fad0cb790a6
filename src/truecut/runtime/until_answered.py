"""When a request is answered, or cannot be: what `truecut backfill` waits for. Pure: a look at the state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from truecut.core.delivery import Delivery, SinkState
from truecut.errors import Retry
from truecut.runtime.pauses import Request
from truecut.runtime.until import Outcome, is_held, is_unreadable, unread

Told = Mapping[str, Mapping[str, Any]]  # sink → what its owner told last of the table


def judge_answer(
    state: Delivery, asked: Request, told: Told, *, given_up: Collection[str] = ()
) -> tuple[Outcome, bool]:
    """Where a request stands, and whether that is final. `told`: of sinks that are not ours."""
    lacking: dict[str, str] = {}
    final = True
    for name, sink in state.wanted.items():
        if asked.table not in sink.settings or asked.sink not in (None, name):
            continue
        ours = sink.phase != "unowned"
        why = _why(state, sink, asked) if ours else _told_why(told.get(name), asked)
        if why is not None:
            lacking[name] = why
            final = final and (_hopeless(sink, asked) if ours else name in given_up or sink.paused)
    return Outcome(reached=not lacking, stragglers=lacking), final


def _why(state: Delivery, sink: SinkState, asked: Request) -> str | None:
    """Why the table was not read again yet; None when it was."""
    table, copy = asked.table, sink.copies.get(asked.table)
    if copy is not None and copy.hold is not None:
        return is_held(table, copy.hold.message)
    if copy is not None and copy.durable is not None and copy.durable.resumed >= asked.asked:
        return None
    if sink.paused or table in sink.paused_tables:
        return "paused" if sink.paused else f"{table} is paused"
    if sink.fault is not None:
        return sink.fault.message
    if copy is not None and copy.fault is not None:
        return unread(table, copy.fault)
    return state.unready.get(table, "it was not read again yet")


def _hopeless(sink: SinkState, asked: Request) -> bool:
    """Nothing that we do by ourselves will change this."""
    copy = sink.copies.get(asked.table)
    failed = sink.fault is not None and sink.fault.retry is not Retry.RETRYABLE
    stuck = copy is not None and copy.wave is None and (copy.hold is not None or is_unreadable(copy.failures))
    return sink.paused or asked.table in sink.paused_tables or failed or stuck


def _told_why(told: Mapping[str, Any] | None, asked: Request) -> str | None:
    """The same of somebody else's sink."""
    if told is None:
        return "nobody has told of it yet"
    if told.get("status") == "held":
        return is_held(asked.table, str((told.get("error") or {}).get("message", "by request")))
    return None if int(told.get("resumed", 0)) >= asked.asked else "it was not read again yet"
