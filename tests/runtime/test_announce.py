"""A copy that has to be read again is announced: once for each table, whoever and however many lose it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from truecut.core.delivery import Copy, CopySettings, Delivery, SinkState
from truecut.errors import Fault, Retry
from truecut.model.position import Position
from truecut.runtime.delivery_state import Machine
from truecut.runtime.trace import Trace

EVENTS, OTHER = "main.events", "main.other"


def _state(sinks: int) -> Delivery:
    settings = {EVENTS: CopySettings("mirror"), OTHER: CopySettings("mirror")}
    copies = {
        EVENTS: Copy("streaming", at=Position(1, 3)),
        OTHER: Copy("streaming", at=Position(1, 3)),
    }
    return Delivery({f"t{n}": SinkState(settings, copies=copies) for n in range(sinks)})


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_lost_place_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    """One line for the table, which names a few of the sinks and counts the rest; the other one is well."""
    machine = Machine(_state(7), Trace(None))
    lost = {
        name: replace(sink, copies={**sink.copies, EVENTS: Copy("unseeded")})
        for name, sink in machine.state.sinks.items()
    }
    machine.become(machine.state.with_sinks(lost))
    (line,) = _said(caplog)
    assert line.startswith(f"{EVENTS} is read again as a whole for t0, t1, t2, t3, t4 and 2 more: ")


def test_what_was_forgotten_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    """A reset forgets copies, and a new one is to be seeded: neither lost its place."""
    machine = Machine(_state(2), Trace(None))
    forgotten = {name: replace(sink, copies={}) for name, sink in machine.state.sinks.items()}
    machine.become(machine.state.with_sinks(forgotten))
    fresh = {
        name: replace(sink, copies={EVENTS: Copy("unseeded")}) for name, sink in machine.state.sinks.items()
    }
    machine.become(machine.state.with_sinks(fresh))
    assert _said(caplog) == []


def test_a_table_that_cannot_be_read_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Which one and why, however many sinks wait for it, and not again at every try."""
    machine = Machine(_state(3), Trace(None))
    fault = Fault("TC2012", "a data file is gone", "It is tried again.", Retry.RETRYABLE)
    for failures in (1, 2):
        unread = {
            name: sink.with_copies({EVENTS: replace(sink.copies[EVENTS], failures=failures, fault=fault)})
            for name, sink in machine.state.sinks.items()
        }
        machine.become(machine.state.with_sinks(unread))
    assert _said(caplog) == [f"{EVENTS} cannot be read now: a data file is gone. It is tried again."]
