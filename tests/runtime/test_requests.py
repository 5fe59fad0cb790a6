"""Requests of users to a running pipeline: none is lost, none is obeyed twice."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.machine import T, at, commit, copy, cursor, recovered, told, wave_of
from truecut import state_folder
from truecut.core import delivery
from truecut.core.delivery import CopySettings, Delivery
from truecut.model.cursor import Hold
from truecut.model.table import Mode
from truecut.runtime import pauses, requests
from truecut.runtime.delivery_state import Machine
from truecut.runtime.requests import Requests
from truecut.runtime.timetable import Timetable
from truecut.runtime.trace import Trace

STOPPED = Hold("TC3024", "it stopped")
MIRROR = CopySettings("mirror")
HELD = cursor(1, t=copy(1, mode="append", hold=STOPPED))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOOK_MS", 0)
    monkeypatch.setattr(requests, "TRY_AGAIN_MS", 0)


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
    (first,) = pauses.read_pauses(tmp_path).requests
    path = next((tmp_path / "resume").iterdir())
    os.utime(path, ns=(first.asked + 1, first.asked + 1))
    pauses.answered(tmp_path, first)
    assert pauses.read_pauses(tmp_path).resumed_tables == {T: first.asked + 1}


@pytest.mark.parametrize("name", ["main." + "訂" * 80, "a/b.100%", "a%2Fb.c", "..", "main.t\n"])
def test_every_name_that_a_table_may_have_can_be_asked_for(tmp_path: Path, name: str) -> None:
    """Paused, resumed and found under its own name, also one that is long in bytes."""
    pauses.pause(tmp_path, table=name)
    pauses.pause(tmp_path, sink=name)
    found = pauses.read_pauses(tmp_path)
    assert (set(found.tables), set(found.sinks)) == ({name}, {name})
    assert pauses.resume(tmp_path, table=name)
    assert list(pauses.read_pauses(tmp_path).resumed_tables) == [name]


# --- reading a table again ------------------------------------------------------------------------------


def streaming(**sinks: Mode) -> Delivery:
    """Sinks by name, each with the mode of its copy, at place 1."""
    state = recovered(
        {name: cursor(1, t=copy(1, mode=mode)) for name, mode in sinks.items()}, {T: MIRROR}, head=1
    )
    known = {n: replace(sink, settings={T: CopySettings(sinks[n])}) for n, sink in state.sinks.items()}
    return replace(state, sinks=known)


def look(asked: Requests, machine: Machine, *, head: int = 1, unready: bool = False) -> None:
    """The source is looked at."""
    asked.look_begins()
    waits = {T: "units"} if unready else {}
    machine.become(
        delivery.observe(machine.state, identity="one", oldest=at(0), head=at(head), unready=waits)
    )
    asked.looked()
    asked.obey()


def unseeded(machine: Machine) -> set[str]:
    return {name for name, sink in machine.state.sinks.items() if sink.copies[T].status == "unseeded"}


def seed(machine: Machine) -> None:
    state, effects = delivery.start_seed(machine.state, now_ms=0)
    machine.become(commit(state, wave_of(effects)))


def test_a_table_goes_on_until_the_source_can_give_it_as_it_was_read_since(tmp_path: Path) -> None:
    """The source is told first. What a look showed that began before is not believed, nor one that says that
    the table is being read: meanwhile the copy follows the log. Answered when the seed is durable."""
    told: list[tuple[str, int]] = []
    machine = Machine(streaming(a="mirror"), Trace(None))
    asked = Requests(tmp_path, machine, Timetable(), on_again=lambda *one: told.append(one))
    asked.look_begins()
    request = pauses.backfill(tmp_path, table=T)
    asked.obey()
    asked.looked()
    asked.obey()
    assert (told, unseeded(machine), set(asked.tables_again)) == ([(T, request.asked)], set(), {T})
    look(asked, machine, unready=True)
    assert unseeded(machine) == set()
    look(asked, machine)
    asked.answer()
    assert (unseeded(machine), pauses.read_pauses(tmp_path).requests) == ({"a"}, (request,))
    seed(machine)
    asked.answer()
    assert (unseeded(machine), pauses.read_pauses(tmp_path).requests) == (set(), ())
    asked.obey()
    assert (unseeded(machine), set(asked.tables_again), len(told)) == (set(), set(), 1)


def test_an_append_table_is_read_once_it_has_come_to_where_it_can_be(tmp_path: Path) -> None:
    """What was read of the source may be later than where the copy stands: it follows the log to there."""
    asked, machine = obeying(tmp_path, streaming(a="append", b="mirror"))
    pauses.backfill(tmp_path, table=T)
    asked.obey()
    look(asked, machine, head=4)
    assert unseeded(machine) == {"b"}
    state, effects = delivery.start_wave(machine.state)
    machine.become(commit(state, wave_of(effects)))
    asked.obey()
    assert unseeded(machine) == {"a", "b"}


def test_a_head_that_moves_on_does_not_keep_a_table_from_being_read(tmp_path: Path) -> None:
    """An append table has to come to where the source could give it first, and not to where it is by now."""
    asked, machine = obeying(tmp_path, streaming(a="append"))
    pauses.backfill(tmp_path, table=T)
    asked.obey()
    look(asked, machine, head=4)
    state, effects = delivery.start_wave(machine.state)
    machine.become(commit(state, wave_of(effects)))
    look(asked, machine, head=9)
    assert unseeded(machine) == {"a"}


def test_a_request_for_one_sink_leaves_the_others(tmp_path: Path) -> None:
    """And is answered by that one alone."""
    asked, machine = obeying(tmp_path, streaming(a="mirror", b="mirror"))
    request = pauses.backfill(tmp_path, table=T, sink="b")
    asked.obey()
    look(asked, machine)
    assert unseeded(machine) == {"b"}
    seed(machine)
    asked.answer()
    assert pauses.read_pauses(tmp_path).requests == ()
    durable = machine.state.sinks["b"].copies[T].durable
    assert durable is not None
    assert (durable.edition, durable.resumed) == (2, request.asked)


def test_requests_are_answered_one_after_another(tmp_path: Path) -> None:
    """One to resume, asked for while the table is read again, waits for that; none is taken for the other."""
    asked, machine = obeying(tmp_path, streaming(a="mirror"))
    first = pauses.backfill(tmp_path, table=T)
    pauses.resume(tmp_path, table=T)
    second = next(one for one in pauses.read_pauses(tmp_path).requests if not one.again)
    assert second.asked > first.asked
    asked.obey()
    look(asked, machine)
    assert machine.state.sinks["a"].copies[T].resumed == first.asked
    seed(machine)
    asked.obey()
    asked.answer()
    assert pauses.read_pauses(tmp_path).requests == (second,)
    persist(machine)
    asked.answer()
    assert pauses.read_pauses(tmp_path).requests == ()


def test_the_numbers_of_requests_grow_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that shows an earlier request does not answer a later one."""
    first = pauses.backfill(tmp_path, table=T)
    monkeypatch.setattr(time, "time_ns", lambda: first.asked - 10**12)
    assert pauses.backfill(tmp_path, table=T).asked > first.asked
    pauses.resume(tmp_path, table=T)
    assert pauses.read_pauses(tmp_path).resumed_tables[T] > first.asked + 1


def test_a_table_of_which_only_changes_are_wanted_is_not_read_again(tmp_path: Path) -> None:
    """It would lose what it has: such a request, left over from before, is answered without any effect."""
    machine = Machine(streaming(a="mirror"), Trace(None))
    asked = Requests(tmp_path, machine, Timetable(), never_again={T})
    pauses.backfill(tmp_path, table=T)
    asked.obey()
    look(asked, machine)
    asked.answer()
    assert (unseeded(machine), pauses.read_pauses(tmp_path).requests) == (set(), ())


def test_a_drop_takes_every_request_away(tmp_path: Path) -> None:
    """Also those for one sink, and the number of the last; what is somebody else's stays."""
    state = tmp_path / "state"
    state.mkdir()
    pauses.pause(state, table=T)
    pauses.resume(state, table=T)
    pauses.backfill(state, table=T)
    pauses.backfill(state, table=T, sink="a")
    assert state_folder.remove(state, control=False) == []
    assert not state.exists()
