"""A copy that has to be read again is announced: once for each table, whoever and however many lose it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from truecut.config.kinds import SOURCES, SourceWords
from truecut.core.delivery import Copy, CopySettings, Delivery, SinkState
from truecut.core.state import Wave
from truecut.errors import Fault, Retry
from truecut.events import Facts
from truecut.model.cursor import Hold
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.runtime import announce
from truecut.runtime.delivery_state import Machine
from truecut.runtime.trace import Trace
from truecut.sources.contract import Window

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


def test_what_prevents_a_gap_is_said_in_the_words_of_the_source(caplog: pytest.LogCaptureFixture) -> None:
    """Snapshots are kept by a lake; who runs a PostgreSQL has none to keep, and other settings to turn."""
    for name in SOURCES.names:
        words = SOURCES[name].words
        machine = Machine(_state(1), Trace(None), words)
        lost = {"t0": machine.state.sinks["t0"].with_copies({EVENTS: Copy("unseeded")})}
        caplog.clear()
        machine.become(machine.state.with_sinks(lost))
        (line,) = _said(caplog)
        assert [other for other in SOURCES.names if SOURCES[other].words.keep in line] == [name]


def test_what_was_asked_for_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    """A table that somebody wants read again is told as that."""
    caplog.set_level(logging.INFO)
    machine = Machine(_state(2), Trace(None))
    again = {
        name: replace(sink, copies={**sink.copies, EVENTS: Copy("unseeded", resumed=7)})
        for name, sink in machine.state.sinks.items()
    }
    machine.become(machine.state.with_sinks(again))
    assert _said(caplog) == []
    assert f"{EVENTS} is read again for t0, t1, as was asked" in caplog.messages


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


def test_columns_that_only_may_have_changed_are_not_said_to_have(caplog: pytest.LogCaptureFixture) -> None:
    """After a start a source may not know which columns a table had: sinks get the order, nobody is told."""
    caplog.set_level(logging.INFO)
    events, other = TableName.parse(EVENTS), TableName.parse(OTHER)
    place = Position(1, 4)
    window = Window(place, 0, (), {}, 0, altered=frozenset({events, other}), alike=frozenset({other}))
    announce.wave_done(Wave(1, "changes", {}, (EVENTS, OTHER), Position(1, 3), place), window, [])
    assert caplog.messages == [f"the columns of {EVENTS} have changed at the source"]


# --- what each line says beside its sentence -----------------------------------------------------------


def _lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, Facts]]:
    return [(record.levelno, record.message, record.__dict__["facts"]) for record in caplog.records]


def _step(caplog: pytest.LogCaptureFixture, before: Delivery, **sinks: SinkState) -> Delivery:
    """One step of the machine, after which only its own lines are there."""
    caplog.clear()
    after = before.with_sinks(sinks)
    announce.step(before, after, SourceWords())
    return after


def test_a_lost_lease_is_a_warning_that_names_the_sinks(caplog: pytest.LogCaptureFixture) -> None:
    """Whose they are now, or why they are ours no longer."""
    caplog.set_level(logging.INFO)
    announce.lost(["t1", "t0"], "their leases ran out")
    message = "no longer ours: t0, t1; their leases ran out"
    assert _lines(caplog) == [(logging.WARNING, message, Facts(sink="t0, t1"))]


def test_a_retry_and_its_end_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each fault, with its code, when a sink fails, and one when it works again; what can be
    tried again soon is told as that, and nothing is said between."""
    caplog.set_level(logging.INFO)
    soon = Fault("TC4002", "t: the disk is full", "Free space.", Retry.RETRYABLE)
    late = Fault("TC4007", "t: no permission", "Grant it.", Retry.NOT_RETRYABLE)
    state = _state(3)
    well = state.sinks["t0"]
    failed = _step(
        caplog,
        state,
        t0=replace(well, failures=1, fault=soon),
        t1=replace(well, failures=1, fault=soon),
        t2=replace(well, failures=1, fault=late),
    )
    assert sorted(_lines(caplog), key=lambda line: line[1]) == [
        (
            logging.WARNING,
            "t: no permission; t2 is tried again every minute or two",
            Facts("TC4007", "t2"),
        ),
        (logging.WARNING, "t: the disk is full; t0, t1 are tried again", Facts("TC4002", "t0, t1")),
    ]
    between = _step(caplog, failed, t0=replace(failed.sinks["t0"], cursor=Position(1, 4)))
    assert _lines(caplog) == []
    _step(caplog, between, t0=well, t1=well)
    assert _lines(caplog) == [(logging.INFO, "t0, t1 work again", Facts(sink="t0, t1"))]


def test_a_hold_and_its_end_say_the_table_and_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each table and reason, a warning with code, sinks, table and position; `goes on` later."""
    caplog.set_level(logging.INFO)
    state = _state(3)
    well = state.sinks["t0"]
    twice = Hold("TC3003", "a key is there twice")
    null = Hold("TC3004", "a key is NULL")
    held = {
        name: well.with_copies({EVENTS: replace(well.copies[EVENTS], status="held", hold=hold)})
        for name, hold in (("t0", twice), ("t1", twice), ("t2", null))
    }
    after = _step(caplog, state, **held)
    where = str(Position(1, 3))
    assert _lines(caplog) == [
        (
            logging.WARNING,
            f"{EVENTS} is held at t0, t1: a key is there twice",
            Facts("TC3003", "t0, t1", EVENTS, where),
        ),
        (logging.WARNING, f"{EVENTS} is held at t2: a key is NULL", Facts("TC3004", "t2", EVENTS, where)),
    ]
    _step(caplog, after, t0=well, t2=well)
    assert _lines(caplog) == [
        (logging.INFO, f"{EVENTS} goes on at t0, t2", Facts(sink="t0, t2", table=EVENTS))
    ]
