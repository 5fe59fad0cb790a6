"""Which sinks are to be told what we know of their copies, and why now: `persist_idle` tells them.

Pure, and no action of the spec: there any sink may be told at any time.
"""

from __future__ import annotations

from truecut.core.copies import differs
from truecut.core.starting import may_stream
from truecut.core.state import Copy, Delivery
from truecut.model.position import Position


def due_to_persist(state: Delivery, *, lag_max: int | None = None) -> list[str]:
    """Sinks with a copy whose durable place retention may reach soon, though it was read up to a later
    one: it stands in the older half of the retained history, or more than `lag_max` places behind."""
    if state.oldest is None or state.head is None:
        return []
    due_below = (state.oldest.place + state.head.place + 1) // 2
    if lag_max is not None:
        due_below = max(due_below, state.head.place - lag_max)
    due = Position(state.head.generation, max(0, due_below))
    return [
        name
        for name, sink in state.sinks.items()
        if may_stream(state, sink) and any(_lags(copy, due) for copy in sink.copies.values())
    ]


def taken_up(state: Delivery) -> list[str]:
    """Sinks with a copy for which a request was taken up, and that do not show it yet."""
    return [
        name
        for name, sink in state.sinks.items()
        if any(_is_resuming(copy) and differs(copy) for copy in sink.copies.values())
        if may_stream(state, sink)
    ]


def _lags(copy: Copy, due: Position) -> bool:
    return copy.status == "streaming" and differs(copy) and copy.durable is not None and copy.durable.at < due


def _is_resuming(copy: Copy) -> bool:
    return copy.durable is None or copy.resumed != copy.durable.resumed
