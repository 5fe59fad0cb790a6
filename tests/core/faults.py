"""The machine's plausible bugs, each as one replaced leaf of the code. Production code knows none of them.

`injected(monkeypatch, name)` switches one on; the simulation and the walk along the spec's state graph
must then find a broken law. The last ones are faults of a sink or of the control store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.core import world
from truecut.core import answers, copies, delivery, starting
from truecut.core.delivery import Copy, SinkState
from truecut.core.state import Delivery, SinkOrder

_reset = answers.reset
_failed = answers.failed
_start = starting.start
_at_cursor = answers.at_cursor
_committed = answers.committed
_advance = answers.advance
_aborted = answers.aborted
_resumed = copies.resumed
_replaces = starting.replaces
_persists = starting.persists
_version_differs = world.version_differs


def _at_their_places(sink: SinkState) -> SinkState:
    """Believes that nothing is out, and every copy where it is durable."""
    stays = {
        table: replace(copy, wave=None, at=copy.durable.at if copy.at and copy.durable else copy.at)
        for table, copy in sink.copies.items()
    }
    return replace(sink, epoch=sink.epoch + 1, copies=stays)


def _ready_without_recovery(sink: SinkState, fault: Any, retry_at_ms: int) -> SinkState:
    return _at_their_places(sink) if sink.phase == "ready" else _failed(sink, fault, retry_at_ms)


def _places_kept(sink: SinkState, fault: Any, retry_at_ms: int) -> SinkState:
    """After a failure the copies stand where their waves would have ended."""
    if sink.phase != "ready":
        return _failed(sink, fault, retry_at_ms)
    stays = {table: replace(copy, wave=None) for table, copy in sink.copies.items()}
    return replace(sink, epoch=sink.epoch + 1, copies=stays)


def _started_ahead(state: Delivery, waves: Any) -> Any:
    state, effects = _start(state, waves)
    moved = {
        name: state.sinks[name].with_copies(
            {t: replace(state.sinks[name].copies[t], at=wave.upto_max) for t in order.tables}
        )
        for wave in waves
        for name, order in wave.sinks.items()
        if wave.kind == "changes"
    }
    return state.with_sinks(moved), effects


def _at_head(state: Delivery, sink: SinkState, cursor: Any) -> SinkState:
    """Believes that the sink has everything."""
    return _moved(_at_cursor(state, sink, cursor), state.head)


def _moved(sink: SinkState, place: Any) -> SinkState:
    """All streaming copies of a sink at one place."""
    ahead = {
        table: replace(copy, at=place)
        for table, copy in sink.copies.items()
        if copy.status == "streaming" and copy.at is not None and place is not None and copy.at < place
    }
    return sink.with_copies(ahead)


def _one_further(copy: Copy) -> Any:
    """Reads from one position further on than where the copy stands."""
    at = copy.at
    assert at is not None
    return delivery.CopyOrder(
        "changes", copy.durable, replace(at, place=at.place + 1), copy.edition, copy.resumed
    )


def _all_moved(state: Delivery, sink: SinkState, order: Any, cursor: Any, slowest: Any) -> SinkState:
    """A commit puts all streaming copies of the sink at its end."""
    return _moved(_committed(state, sink, order, cursor, slowest), cursor.position)


def _all_advanced(state: Delivery, sink: SinkState, wave: Any, order: Any, upto: Any) -> SinkState:
    return _moved(_advance(state, sink, wave, order, upto), upto)


def _all_told(state: Delivery, sink: SinkState, order: Any, cursor: Any, slowest: Any) -> SinkState:
    """The answer to one order is taken for the state of all copies."""
    return replace(_at_cursor(state, sink, cursor), late=False, failures=0)


def _resumed_in_memory(state: Delivery, table: str, copy: Copy, wanted: Any, *, asked: int) -> Copy:
    """A request that was taken up counts as answered."""
    taken = _resumed(state, table, copy, wanted, asked=asked)
    durable = taken.durable
    return taken if durable is None else replace(taken, durable=replace(durable, resumed=asked))


def _resumed_unshaped(state: Delivery, table: str, copy: Copy, wanted: Any, *, asked: int) -> Copy:
    return _resumed(state, table, replace(copy, shaped=True), wanted, asked=asked)


def _same_edition(copy: Copy) -> Any:
    """A seed leaves the edition that it found, unless there was none."""
    return replace(_replaces(copy), edition=max(1, copy.edition))


def _persists_without_request(copy: Copy) -> Any:
    """Places and holds become durable, requests that were taken up do not."""
    return replace(_persists(copy), resumed=0 if copy.durable is None else copy.durable.resumed)


def _only_places_differ(copy: Copy) -> bool:
    known = copy.status != "unseeded" and copy.wave is None and copy.durable is not None
    return known and copy.durable is not None and copy.at != copy.durable.at


def _seeds_unchecked(sink: Any, table: str, one: Any) -> bool:
    """Whatever a seed finds, it replaces."""
    return one.kind != "replace" and _version_differs(sink, table, one)


def _unpaused(sink: SinkState, head: Any, *, now_ms: int) -> Any:
    return copies_lacking(replace(sink, paused_tables=frozenset()), head, now_ms=now_ms)


def _advanced(state: Delivery, sink: SinkState, order: SinkOrder, *rest: Any) -> SinkState:
    """What could not be read is taken to have been read."""
    back = _aborted(state, sink, order, *rest)
    moved = {t: replace(back.copies[t], at=state.head) for t in order.tables if back.copies[t].at is not None}
    return back.with_copies(moved)


copies_lacking = copies.lacking
Leaves = dict[str, Callable[..., Any]]

# name → the law that it breaks, and the replaced leaves of truecut.core (or, with their whole name, others)
FAULTS: dict[str, tuple[str, Leaves]] = {
    "no_epoch_check": (
        "FlushStateConsistency|BufferPositionBound",
        {"answers.awaited": lambda sink, epoch, phase: sink.phase == phase},
    ),
    "epoch_not_bumped": (
        "FlushStateConsistency",
        {"answers.reset": lambda sink: replace(_reset(sink), epoch=sink.epoch)},
    ),
    "no_recovery": ("EverySinkBecomesCurrent|RequestsAnswered", {"answers.failed": _ready_without_recovery}),
    "missing_reset": (
        "BufferPositionBound",
        {"answers.failed": _places_kept, "delivery.start": _started_ahead},
    ),
    "abort_advances": ("BufferPositionBound", {"answers.aborted": _advanced}),
    "position_before_commit": ("BufferPositionBound", {"delivery.start": _started_ahead}),
    "read_across_gap": (
        "EverySinkBecomesCurrent|RequestsAnswered",
        {
            "delivery.placed": lambda state, copy, wanted: copy,
            "answers.placed": lambda state, copy, wanted: copy,
            "copies.placed": lambda state, copy, wanted: copy,
        },
    ),
    "wave_while_applying": (
        "FlushStateConsistency",
        {
            "delivery.lacking": lambda sink, head, now_ms: copies_lacking(_idle(sink), head, now_ms=now_ms),
            "delivery.may_stream": lambda state, sink: sink.phase == "ready" and not sink.paused,
            "starting.require": lambda condition, law: None,
        },
    ),
    "believes_in_the_head": ("BufferPositionBound", {"answers.at_cursor": _at_head}),
    "skips_a_position": ("TransactionNeverSplit|BufferPositionBound", {"delivery.changes": _one_further}),
    "never_recovers": (
        "EverySinkBecomesCurrent|RequestsAnswered",
        {"delivery.start_recovery": lambda state, now_ms, lane: (state, [])},
    ),
    "sink_moves_all_copies": (
        "BufferPositionBound",
        {"answers.committed": _all_moved, "answers.advance": _all_advanced},
    ),
    "answer_tells_of_all_copies": (
        "FlushStateConsistency|BufferPositionBound",
        {"answers.committed": _all_told},
    ),
    "resume_not_durable": ("RequestKept", {"wishes.resumed": _resumed_in_memory}),
    "resume_not_told": (
        "RequestsAnswered|FlushStateConsistency",
        {"delivery.persists": _persists_without_request},
    ),
    "only_places_persisted": ("RequestsAnswered", {"delivery.differs": _only_places_differ}),
    "resumed_unshaped": ("AppendExactlyOnce", {"wishes.resumed": _resumed_unshaped}),
    "accept_already": (
        "AppendExactlyOnce|CursorMonotonicity|FlushStateConsistency",
        {"delivery.replaces": _same_edition},
    ),
    "paused_is_carried": ("PausedStandsStill", {"delivery.lacking": _unpaused}),
    "seed_unchecked": (
        "CursorMonotonicity|AppendExactlyOnce|FlushStateConsistency",
        {"tests.core.world.version_differs": _seeds_unchecked},
    ),
    "stale_look_believed": (
        "CaughtUpIsTrue",
        {"copies.beyond": lambda state, copy: False},
    ),
    "generation_not_heard": (
        "EverySinkBecomesCurrent|RequestsAnswered",
        {"tests.core.simulation.least": lambda identity, shown: 1},
    ),
    "token_reused_after_loss": (
        "NoSharedToken",
        {"tests.core.simulation.next_token": lambda last, *, above, clock: max(last, above) + 1},
    ),
}


def _idle(sink: SinkState) -> SinkState:
    return sink.with_copies({table: replace(copy, wave=None) for table, copy in sink.copies.items()})


def injected(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Switch one fault on; the law that must break."""
    law, leaves = FAULTS[name]
    for leaf, broken in leaves.items():
        where = leaf if leaf.startswith("tests.") else f"truecut.core.{leaf}"
        monkeypatch.setattr(where, broken)
    return law
