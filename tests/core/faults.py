"""The machine's plausible bugs, each as one replaced leaf of the code. Production code knows none of them.

`injected(monkeypatch, name)` switches one on; the simulation and the walk along the spec's state graph
must then find a broken law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from truecut.core import answers, delivery
from truecut.core.delivery import SinkState
from truecut.core.state import Delivery

_reset = answers.reset
_failed = answers.failed
_start = delivery._start
_at_cursor = answers.at_cursor


def _idle_without_recovery(sink: SinkState, fault: Any, retry_at_ms: int) -> SinkState:
    if sink.phase != "applying":
        return _failed(sink, fault, retry_at_ms)
    return replace(sink, phase="idle", wave=None, epoch=sink.epoch + 1, position=sink.cursor, fault=fault)


def _position_kept(sink: SinkState) -> SinkState:
    """After a failure the sink stands where its wave would have ended."""
    return replace(sink, phase="idle", wave=None, epoch=sink.epoch + 1)


def _started_ahead(state: Delivery, kind: Any, jobs: Any, *, late: bool) -> Any:
    state, effects = _start(state, kind, jobs, late=late)
    moved = {
        name: replace(state.sinks[name], position=upto_max)
        for members, _, _, upto_max in jobs
        for name in members
        if kind == "changes"
    }
    return state.with_sinks(moved), effects


def _wants_while_applying(sink: SinkState, head: Any) -> bool:
    copies = sink.copies.values()
    return sink.phase in ("idle", "applying") and any(c.status == "streaming" and c.at < head for c in copies)


def _at_head(state: Delivery, sink: SinkState, cursor: Any) -> SinkState:
    """Believes that the sink has everything."""
    known = _at_cursor(state, sink, cursor)
    if known.position is None or state.head is None or known.position > state.head:
        return known
    copies = {t: replace(c, at=state.head) if c.status == "streaming" else c for t, c in known.copies.items()}
    return replace(known, position=state.head, copies=copies)


def _one_further(sink: SinkState) -> Any:
    """Reads from one position further on than where the sink stands."""
    place = sink.position
    assert place is not None
    return replace(place, place=place.place + 1)


def _kept(sink: SinkState, oldest: Any, everything: bool = False) -> SinkState:
    return sink


# name → the law that it breaks, and the replaced leaves of truecut.core
FAULTS: dict[str, tuple[str, dict[str, Callable[..., Any]]]] = {
    "no_epoch_check": (
        "FlushStateConsistency",
        {"answers.awaited": lambda sink, epoch, phase: sink.phase == phase},
    ),
    "epoch_not_bumped": (
        "FlushStateConsistency",
        {"answers.reset": lambda sink: replace(_reset(sink), epoch=sink.epoch)},
    ),
    "no_recovery": ("EverySinkBecomesCurrent", {"answers.failed": _idle_without_recovery}),
    "missing_reset": (
        "BufferPositionBound",
        {
            "answers.failed": lambda sink, fault, retry_at_ms: _position_kept(sink),
            "delivery._start": _started_ahead,
        },
    ),
    "position_before_commit": ("BufferPositionBound", {"delivery._start": _started_ahead}),
    "read_across_gap": (
        "EverySinkBecomesCurrent",
        {"delivery.gap": _kept, "answers.gap": _kept},
    ),
    "wave_while_applying": (
        "FlushStateConsistency",
        {"delivery._wants_changes": _wants_while_applying, "delivery.require": lambda condition, law: None},
    ),
    "believes_in_the_head": ("BufferPositionBound", {"answers.at_cursor": _at_head}),
    "skips_a_position": ("BufferPositionBound", {"answers.place_of": _one_further}),
    "never_recovers": (
        "EverySinkBecomesCurrent",
        {"delivery.start_recovery": lambda state, now_ms: (state, [])},
    ),
}


def injected(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Switch one fault on; the law that must break."""
    law, leaves = FAULTS[name]
    for leaf, broken in leaves.items():
        monkeypatch.setattr(f"truecut.core.{leaf}", broken)
    return law
