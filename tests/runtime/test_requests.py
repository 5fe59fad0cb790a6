"""Requests of users to a running pipeline: none is lost, none is obeyed twice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.core.machine import T, commit, copy, cursor, recovered, told, wave_of
from truecut.core import delivery
from truecut.core.delivery import CopySettings, Delivery
from truecut.model.cursor import Hold
from truecut.runtime import pauses, requests
from truecut.runtime.delivery_state import Machine
from truecut.runtime.requests import Requests
from truecut.runtime.timetable import Timetable
from truecut.runtime.trace import Trace

STOPPED = Hold("TC3024", "it stopped")
HELD = cursor(1, t=copy(1, mode="append", hold=STOPPED))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOOK_MS", 0)


def stopped(*sinks: str) -> Delivery:
    """A runner whose sinks hold an append table that has stopped."""
    return recovered(dict.fromkeys(sinks, HELD), {T: CopySettings("append")}, head=1)


def obeying(
    folder: Path, state: Delivery, *, elsewhere: Mapping[str, int] | None = None
) -> tuple[Requests, Machine]:
    machine = Machine(state, Trace(None))
    return Requests(folder, machine, Timetable(), answered_elsewhere=lambda _: elsewhere or {}), machine


def held(machine: Machine) -> set[str]:
    sinks = machine.state.sinks
    return {name for name, sink in sinks.items() if T in sink.copies and sink.copies[T].hold is not None}


def persist(machine: Machine) -> None:
    """What was taken up becomes durable."""
    state, effects = delivery.persist_idle(machine.state, delivery.taken_up(machine.state))
    machine.become(commit(state, wave_of(effects)))


def asked_for(folder: Path) -> bool:
    return bool(list((folder / "resume").iterdir()))


def test_a_request_is_kept_until_the_sinks_show_it(tmp_path: Path) -> None:
    """D7: taken up at once, answered when it is durable: only then the file goes."""
    asked, machine = obeying(tmp_path, stopped("a", "b"))
    pauses.resume(tmp_path, table=T)
    asked.obey()
    asked.answer()
    assert (held(machine), asked.pending(of_others=False), asked_for(tmp_path)) == (set(), True, True)
    persist(machine)
    asked.obey()
    assert (asked.pending(of_others=False), asked_for(tmp_path)) == (False, True)
    asked.answer()
    assert not asked_for(tmp_path)


def test_a_request_outlives_whoever_took_it_up(tmp_path: Path) -> None:
    """Killed, or its sink reset, before anything was durable: the table is resumed again."""
    asked, machine = obeying(tmp_path, stopped("a"))
    pauses.resume(tmp_path, table=T)
    asked.obey()
    machine.become(told(delivery.acquire(machine.state, {"a": 2}), {"a": HELD}))
    assert held(machine) == {"a"}
    asked.obey()
    asked.answer()
    assert (held(machine), asked_for(tmp_path)) == (set(), True)
    asked, machine = obeying(tmp_path, stopped("a"))  # another process
    asked.obey()
    asked.answer()
    assert (held(machine), asked_for(tmp_path)) == (set(), True)


def test_a_request_that_the_sink_shows_is_not_obeyed_again(tmp_path: Path) -> None:
    """Killed between the commit and the removal of the file: whatever holds the table since has to be resumed
    by a request of its own."""
    pauses.resume(tmp_path, table=T)
    number = pauses.read_pauses(tmp_path).resumed_tables[T]
    since = cursor(1, t=copy(1, mode="append", hold=STOPPED, resumed=number))
    asked, machine = obeying(tmp_path, recovered({"a": since}, {T: CopySettings("append")}, head=1))
    asked.obey()
    asked.answer()
    assert (held(machine), asked_for(tmp_path)) == ({"a"}, False)


def test_a_table_that_is_not_held_answers_too(tmp_path: Path) -> None:
    """Taking back a pause: that we see no hold may be out of date, so the sink has to show the request."""
    free = recovered({"a": cursor(1)}, {T: CopySettings("mirror")}, head=1)
    asked, machine = obeying(tmp_path, free)
    pauses.pause(tmp_path, table=T)
    asked.obey()
    assert machine.state.sinks["a"].paused_tables == {T}
    pauses.resume(tmp_path, table=T)
    asked.obey()
    asked.answer()
    assert (machine.state.sinks["a"].paused_tables, asked_for(tmp_path)) == (frozenset(), True)
    persist(machine)
    asked.answer()
    assert not asked_for(tmp_path)


def test_a_request_waits_for_the_sinks_of_other_runners(tmp_path: Path) -> None:
    """A sink that is not ours has answered when its owner tells that it shows the request; one that nobody
    owns, or whose owner tells of an older request, has not."""
    pauses.resume(tmp_path, table=T)
    number = pauses.read_pauses(tmp_path).resumed_tables[T]
    state = delivery.lose(stopped("a", "b"), {"b"})
    for told_of, kept in (
        ({}, True),
        ({"b": number - 1}, True),
        ({"a": number}, True),
        ({"b": number}, False),
    ):
        asked, machine = obeying(tmp_path, state, elsewhere=told_of)
        asked.obey()
        asked.answer()
        assert asked_for(tmp_path), "ours has not answered yet"
        persist(machine)
        asked.answer()
        assert asked_for(tmp_path) == kept, told_of


def test_a_second_request_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """Answering a request removes that one, not one that came since."""
    pauses.resume(tmp_path, table=T)
    first = pauses.read_pauses(tmp_path).resumed_tables[T]
    path = next((tmp_path / "resume").iterdir())
    os.utime(path, ns=(first + 1, first + 1))
    pauses.resumed(tmp_path, table=T, asked_ns=first)
    assert pauses.read_pauses(tmp_path).resumed_tables == {T: first + 1}


@pytest.mark.parametrize("name", ["main." + "訂" * 80, "a/b.100%", "a%2Fb.c", "..", "main.t\n"])
def test_every_name_that_a_table_may_have_can_be_asked_for(tmp_path: Path, name: str) -> None:
    """Paused, resumed and found under its own name, also one that is long in bytes."""
    pauses.pause(tmp_path, table=name)
    pauses.pause(tmp_path, sink=name)
    found = pauses.read_pauses(tmp_path)
    assert (set(found.tables), set(found.sinks)) == ({name}, {name})
    assert pauses.resume(tmp_path, table=name)
    assert list(pauses.read_pauses(tmp_path).resumed_tables) == [name]
