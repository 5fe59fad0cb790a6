"""Faults of the machine that the walk along the spec's graph has to notice: replaced leaves of the code.

Each with the action by which it leaves the graph first. Many change no state but what an order says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.specs.walk import STALE
from truecut.core import answers, copies, starting
from truecut.core.state import Copy, CopyOrder, Delivery, SinkState

_advance, _committed, _reset = answers.advance, answers.committed, answers.reset
_lacking, _resumed, _to_seed = copies.lacking, copies.resumed, copies.to_seed
_changes, _persists, _replaces, _wave_of = (
    starting.changes,
    starting.persists,
    starting.replaces,
    starting.wave_of,
)

Leaves = dict[str, Callable[..., Any]]


def _all_moved(state: Delivery, sink: SinkState, order: Any, cursor: Any, slowest: Any) -> SinkState:
    """A commit of some copies is taken for one of the whole sink."""
    told = _committed(state, sink, order, cursor, slowest)
    return told.with_copies(
        {
            table: replace(copy, at=max(copy.at, cursor.position))
            for table, copy in told.copies.items()
            if copy.status == "streaming" and copy.wave is None and copy.at is not None
        }
    )


def _all_advanced(state: Delivery, sink: SinkState, wave: Any, order: Any, upto: Any) -> SinkState:
    """A window that passed some copies by is taken to have passed all of them."""
    passed = _advance(state, sink, wave, order, upto)
    return passed.with_copies(
        {
            table: replace(copy, at=upto)
            for table, copy in passed.copies.items()
            if copy.status == "streaming" and copy.wave is None
        }
    )


def _from_one_place(sink: SinkState, head: Any, *, now_ms: int) -> Any:
    """All tables are read from where the one furthest behind stands."""
    found = _lacking(sink, head, now_ms=now_ms)
    tables = tuple(sorted(table for _, group in found for table in group))
    return [(min(place for place, _ in found), tables)] if found else found


def _out_of_waves(sink: SinkState, head: Any, *, now_ms: int) -> Any:
    idle = {table: replace(copy, wave=None) for table, copy in sink.copies.items()}
    return _lacking(replace(sink, copies=idle), head, now_ms=now_ms)


def _unpaused(sink: SinkState, head: Any, *, now_ms: int) -> Any:
    return _lacking(replace(sink, paused_tables=frozenset()), head, now_ms=now_ms)


def _unnumbered(state: Delivery, table: str, copy: Copy, wanted: Any, *, asked: int) -> Copy:
    """The request is obeyed and forgotten."""
    return replace(_resumed(state, table, copy, wanted, asked=asked), resumed=copy.resumed)


def _as_durable(copy: Copy) -> CopyOrder:
    assert copy.durable is not None
    return replace(_persists(copy), at=copy.durable.at)


def _without_token(*args: Any, **names: Any) -> Any:
    wave = _wave_of(*args, **names)
    return replace(wave, sinks={name: replace(order, token=0) for name, order in wave.sinks.items()})


# name → the action that is noticed first, and the replaced leaves of truecut.core
FAULTS: dict[str, tuple[str, Leaves]] = {
    "no_epoch_check": (
        STALE,
        {"answers.awaited": lambda sink, epoch, phase: sink.phase == phase},
    ),
    "epoch_not_bumped": (
        "Acquire",
        {"answers.reset": lambda sink: replace(_reset(sink), epoch=sink.epoch)},
    ),
    "sink_moves_all_copies": ("WaveCommit", {"answers.committed": _all_moved}),
    "all_copies_advance": ("Advance", {"answers.advance": _all_advanced}),
    "resume_not_durable": ("ResumeTable", {"wishes.resumed": _unnumbered}),
    "again_unread": (
        "CopyAgain",
        {"wishes.again": lambda state, table, copy, wanted, asked: replace(copy, resumed=asked)},
    ),
    "pause_not_obeyed": (
        "StartWave",
        {"delivery.lacking": _unpaused},
    ),
    "places_mixed": ("StartWave", {"delivery.lacking": _from_one_place}),
    "wave_while_applying": (
        "StartWave",
        {
            "delivery.lacking": _out_of_waves,
            "delivery.may_stream": lambda state, sink: sink.phase == "ready",
            "starting.require": lambda condition, law: None,
        },
    ),
    "order_without_token": ("StartSeed", {"delivery.wave_of": _without_token}),
    "seed_expects_nothing": (
        "StartSeed",
        {"delivery.replaces": lambda copy: replace(_replaces(copy), expected=None)},
    ),
    "edition_kept": (
        "StartSeed",
        {"delivery.replaces": lambda copy: replace(_replaces(copy), edition=copy.edition)},
    ),
    "changes_expect_the_place_read": (
        "StartWave",
        {"delivery.changes": lambda copy: replace(_changes(copy), expected=copy.version)},
    ),
    "stale_seed": (
        "StartSeed",
        {
            "delivery.to_seed": lambda sink, head, now_ms, unready: _to_seed(
                sink.with_copies({t: replace(c, durable=None) for t, c in sink.copies.items()}),
                head,
                now_ms=now_ms,
                unready=unready,
            )
        },
    ),
    "persist_where_it_was": ("PersistIdle", {"delivery.persists": _as_durable}),
    "read_across_gap": (
        "Observe",
        {
            "delivery.placed": lambda state, copy, wanted: copy,
            "answers.placed": lambda state, copy, wanted: copy,
        },
    ),
}
# Those that only an append table shows: mirrors are seeded where it is held.
APPEND_FAULTS: dict[str, tuple[str, Leaves]] = {
    "hold_not_told": ("PersistIdle", {"delivery.persists": lambda copy: replace(_persists(copy), hold=None)}),
    "again_at_head": (
        "CopyAgain",
        {
            "wishes.again": lambda state, table, copy, wanted, asked: copies.unseeded(
                replace(copy, resumed=asked)
            )
        },
    ),
    "again_waits_for_ever": ("WaveAbort", {"answers.untaken": lambda copy: copy}),
    "gap_is_readable": ("WaveCommit", {"copies.readable": lambda state, copy: True}),
}
# Those that only a source that is replaced shows.
REPLACED_FAULTS: dict[str, tuple[str, Leaves]] = {
    "stale_look_believed": ("WaveCommit", {"copies.beyond": lambda state, copy: False}),
    "outrun_is_written_to": ("StartWave", {"starting.outrun": lambda state, sink: False}),
}


def injected(monkeypatch: pytest.MonkeyPatch, fault: tuple[str, Leaves]) -> str:
    """Switch one fault on; the action by which it has to be noticed."""
    action, leaves = fault
    for leaf, broken in leaves.items():
        monkeypatch.setattr(f"truecut.core.{leaf}", broken)
    return action
