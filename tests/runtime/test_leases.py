"""What the control store's answers mean to sinks that were retired while they were on their way."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tests.runtime.quiet import pipeline_in
from truecut.core import delivery
from truecut.core.delivery import Delivery
from truecut.errors import Fault
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.runtime.delivery_state import Machine
from truecut.runtime.leases import Leases
from truecut.runtime.orders import wanted
from truecut.runtime.timetable import Clock, Timetable
from truecut.runtime.trace import Trace


class Noon(Clock):
    """It stands still."""

    def now_ms(self) -> int:
        return 0


class Slow:
    """A background whose answers wait until they are asked for."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], None]] = []

    def submit(
        self, call: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[Fault], None]
    ) -> None:
        answer = call()
        self.answers.append(lambda: then(answer))


class Ours:
    """A store in which both sinks are ours."""

    def held(self, runner: str) -> set[str]:
        return {"t0", "t1"}

    def raise_token(self, runner: str, above: dict[str, int], *, duration_ms: int) -> dict[str, int]:
        return {}


def test_a_sink_that_was_retired_meanwhile_is_not_given_up(tmp_path: Path) -> None:
    """Somebody with another store has taken both; the file no longer names one of them."""
    machine = Machine(Delivery(wanted(pipeline_in(tmp_path))), Trace(None))
    background = Slow()
    leases = Leases(
        cast(Any, Ours()),
        machine,
        cast(Any, background),
        Timetable(Noon()),
        runner="r",
        duration_ms=10_000,
        chance=random.Random(1),
    )
    machine.become(delivery.acquire(machine.state, {"t0": 5, "t1": 5}))
    epochs = {name: sink.epoch for name, sink in machine.state.sinks.items()}
    leases.took_over(
        Receipt(name, epoch, "applied", cursor=Cursor(None, 5)) for name, epoch in epochs.items()
    )
    leases.raise_tokens({"t0": 9, "t1": 9})
    leases.tend(dict)
    leases.retire(["t0"])
    for answer in background.answers:
        answer()
    assert set(leases.given_up) == {"t1"}
