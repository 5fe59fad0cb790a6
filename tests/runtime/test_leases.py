"""Answers of the control store that come late: to leases, to sinks that were retired meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from tests.runtime.quiet import pipeline_in
from truecut.core import delivery
from truecut.core.delivery import Delivery
from truecut.errors import Fault, Retry
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.runtime.delivery_state import Machine
from truecut.runtime.leases import Leases
from truecut.runtime.orders import wanted
from truecut.runtime.timetable import Clock, Timetable
from truecut.runtime.trace import Trace

DURATION_MS = 10_000


class ByHand(Clock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


class Slow:
    """A background whose answers wait until they are asked for."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], None]] = []

    def submit(
        self, call: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[Fault], None]
    ) -> None:
        answer = call()
        self.answers.append(lambda: then(answer))

    def answer(self) -> None:
        """Now."""
        answers, self.answers = self.answers, []
        for answer in answers:
            answer()


class Ours:
    """A store in which both sinks are ours."""

    def held(self, runner: str) -> set[str]:
        return {"t0", "t1"}

    def raise_token(self, runner: str, above: dict[str, int], *, duration_ms: int) -> dict[str, int]:
        return {}

    def heartbeat(self, runner: str, *, ours: set[str], **_: Any) -> tuple[set[str], int]:
        return ours, 1

    def claim(self, runner: str, sinks: list[str], **_: Any) -> dict[str, int]:
        return dict.fromkeys(sinks, 5)


def _leases(
    folder: Path, clock: ByHand, store: Ours | None = None, *, tenants: int = 2
) -> tuple[Leases, Machine, Slow]:
    state = Delivery(wanted(pipeline_in(folder, tenants=tenants)))
    machine, background = Machine(state, Trace(None)), Slow()
    leases = Leases(
        cast(Any, store or Ours()),
        machine,
        cast(Any, background),
        Timetable(clock),
        runner="r",
        duration_ms=DURATION_MS,
        chance=random.Random(1),
    )
    return leases, machine, background


def _owned(machine: Machine) -> set[str]:
    return {name for name, sink in machine.state.sinks.items() if sink.phase != "unowned"}


def test_an_answer_that_took_a_leases_whole_life_gives_nothing(tmp_path: Path) -> None:
    """What the store gave us then may be somebody else's by now; one that came in time gives it."""
    for late_by_ms, expected in ((-1, {"t0", "t1"}), (0, set[str]())):
        clock = ByHand()
        leases, machine, background = _leases(tmp_path, clock)
        leases.tend(dict)
        clock.ms += DURATION_MS + late_by_ms
        background.answer()
        assert _owned(machine) == expected


def test_a_lease_is_counted_from_when_it_was_asked_for(tmp_path: Path) -> None:
    """The store's answer was on its way for most of its life: it runs out no later for that, whether or not
    the store answers any more."""
    clock = ByHand()
    leases, machine, background = _leases(tmp_path, clock)
    leases.tend(dict)
    clock.ms += DURATION_MS - 1
    background.answer()
    leases.tend(dict)
    assert _owned(machine) == {"t0", "t1"}
    clock.ms += 1
    leases.tend(dict)
    assert _owned(machine) == set()


def test_no_more_is_claimed_than_is_missing_from_the_share(tmp_path: Path) -> None:
    """Of four sinks and two runners two are ours; who holds one asks for one more, however many are free. One
    too many would be taken from its runner, and given back at once."""
    asked: list[int] = []

    class Halves(Ours):
        def heartbeat(self, runner: str, *, ours: set[str], **_: Any) -> tuple[set[str], int]:
            return ours, 2

        def claim(self, runner: str, sinks: list[str], **how: Any) -> dict[str, int]:
            asked.append(how["count_max"])
            return dict.fromkeys(sinks[: how["count_max"]], 5)

    for held in ((), ("t0",), ("t0", "t1"), ("t0", "t1", "t2")):
        asked.clear()
        leases, machine, background = _leases(tmp_path, ByHand(), Halves(), tenants=4)
        machine.become(delivery.acquire(machine.state, dict.fromkeys(held, 5)))
        leases.tend(dict)
        background.answer()
        assert asked == ([2 - len(held)] if len(held) < 2 else [])
        assert _owned(machine) >= set(held)
        assert len(_owned(machine)) == max(2, len(held))


def test_a_sink_that_was_retired_meanwhile_is_not_given_up(tmp_path: Path) -> None:
    """Somebody with another store has taken both; the file no longer names one of them."""
    leases, machine, background = _leases(tmp_path, ByHand())
    machine.become(delivery.acquire(machine.state, {"t0": 5, "t1": 5}))
    epochs = {name: sink.epoch for name, sink in machine.state.sinks.items()}
    leases.took_over(
        Receipt(name, epoch, "applied", cursor=Cursor(None, 5)) for name, epoch in epochs.items()
    )
    leases.raise_tokens({"t0": 9, "t1": 9})
    leases.tend(dict)
    leases.retire(["t0"])
    background.answer()
    assert set(leases.given_up) == {"t1"}


def test_only_what_is_still_ours_by_its_lease_is_given_up(tmp_path: Path) -> None:
    """A sink whose lease another runner of our store has by now was taken by that one, as it should be."""
    leases, machine, background = _leases(tmp_path, ByHand())
    machine.become(delivery.acquire(machine.state, {"t0": 5, "t1": 5}))
    told = [
        Receipt(name, sink.epoch, "applied", cursor=Cursor(None, 5))
        for name, sink in machine.state.sinks.items()
    ]
    leases.took_over(told)
    leases.raise_tokens({"t0": 9, "t1": 9})
    with patch.object(Ours, "held", lambda *_: {"t1"}):
        leases.tend(dict)
    background.answer()
    assert set(leases.given_up) == {"t1"}


def test_an_answer_from_before_a_reset_takes_nothing_over(tmp_path: Path) -> None:
    """Nobody has taken from us what was not ours: a larger token is asked for, and no sink is given up."""
    leases, machine, background = _leases(tmp_path, ByHand())
    machine.become(delivery.acquire(machine.state, {"t0": 5, "t1": 5}))
    leases.took_over(
        Receipt(name, sink.epoch - 1, "applied", cursor=Cursor(None, 5))
        for name, sink in machine.state.sinks.items()
    )
    leases.raise_tokens({"t0": 9, "t1": 9})
    leases.tend(dict)
    background.answer()
    assert leases.given_up == {}


def test_larger_tokens_are_asked_for_until_the_store_answers(tmp_path: Path) -> None:
    """A store that cannot be reached forgets nothing for us: what was seen since then counts, too."""
    clock, asked = ByHand(), list[dict[str, int]]()

    class Away(Ours):
        def raise_token(self, runner: str, above: dict[str, int], *, duration_ms: int) -> dict[str, int]:
            asked.append(dict(above))
            return {}

    leases, machine, background = _leases(tmp_path, clock, Away())
    machine.become(delivery.acquire(machine.state, {"t0": 5, "t1": 5}))
    leases.raise_tokens({"t0": 9, "t1": 9})
    with patch.object(background, "submit", lambda call, then, otherwise: refused.append(otherwise)):
        refused: list[Callable[[Fault], None]] = []
        leases.tend(dict)
    leases.raise_tokens({"t1": 11})
    (otherwise,) = refused
    otherwise(Fault("TC5021", "the store is away", "None needed.", Retry.RETRYABLE))
    clock.ms += DURATION_MS // 2
    leases.tend(dict)
    background.answer()
    assert asked == [{"t0": 9, "t1": 11}]
