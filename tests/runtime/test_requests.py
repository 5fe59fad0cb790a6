"""Requests of users to a running pipeline: none is lost, none is obeyed twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.core.test_delivery import T, owned
from truecut.core import delivery
from truecut.core.delivery import Delivery
from truecut.runtime import pauses, requests
from truecut.runtime.machine import Machine
from truecut.runtime.requests import Requests
from truecut.runtime.timetable import Timetable
from truecut.runtime.trace import Trace


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOOK_MS", 0)


def obeying(folder: Path, state: Delivery) -> tuple[Requests, Machine]:
    machine = Machine(state, Trace(None))
    return Requests(folder, machine, Timetable()), machine


def held(machine: Machine) -> set[str]:
    sinks = machine.state.sinks
    return {name for name, sink in sinks.items() if T in sink.copies and sink.copies[T].hold is not None}


def test_a_resumed_table_goes_on_and_a_later_hold_stays(tmp_path: Path) -> None:
    """One request, one effect: whatever holds the table afterwards has to be resumed again."""
    asked, machine = obeying(tmp_path, delivery.pause_table(owned({"a": 1, "b": 1}, head=1), T))
    assert held(machine) == {"a", "b"}
    pauses.resume(tmp_path, table=T)
    asked.obey()
    assert (held(machine), asked.open) == (set(), False)
    assert not list((tmp_path / "resume").iterdir())
    machine.become(delivery.pause_table(machine.state, T))
    asked.obey()
    assert held(machine) == {"a", "b"}


def test_a_request_waits_for_the_other_runners_to_see_it(tmp_path: Path) -> None:
    """As long as others own sinks, the request stays for a while; ours take it up once all the same."""
    state = delivery.lose(delivery.pause_table(owned({"a": 1, "b": 1}, head=1), T), {"b"})
    asked, machine = obeying(tmp_path, state)
    pauses.resume(tmp_path, table=T)
    asked.obey()
    assert "a" not in held(machine)
    assert list((tmp_path / "resume").iterdir())
    machine.become(delivery.pause_table(machine.state, T))
    asked.obey()
    assert "a" in held(machine)
    (request,) = (tmp_path / "resume").iterdir()
    long_ago = time.time() - 60
    os.utime(request, (long_ago, long_ago))  # as if it had been asked for then: a request of its own
    asked.obey()
    assert "a" not in held(machine)
    assert not list((tmp_path / "resume").iterdir())


def test_a_second_request_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """Taking up a request removes that one, not one that came since."""
    pauses.resume(tmp_path, table=T)
    first = pauses.read_pauses(tmp_path).resumed_tables[T]
    path = next((tmp_path / "resume").iterdir())
    os.utime(path, ns=(first + 1, first + 1))
    pauses.resumed(tmp_path, table=T, asked_ns=first)
    assert pauses.read_pauses(tmp_path).resumed_tables == {T: first + 1}
