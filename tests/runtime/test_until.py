"""When a run until caught up has got there, cannot, or has still to wait."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.machine import FAULT, NEVER, T, at, copy, owned, wave_of
from tests.runtime.quiet import FENCED, pipeline_in
from truecut.core import delivery
from truecut.core.delivery import Delivery, RaiseToken, Recover
from truecut.errors import Retry
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.runtime.control import open_control
from truecut.runtime.until import UNREAD_TRIES, Elsewhere, Until, judge


def refused(state: Delivery, receipt: Receipt) -> tuple[Delivery, list[delivery.Effect]]:
    """The sink is recovered, with this answer."""
    state, effects = delivery.start_recovery(delivery.acquire(state, {"a": 7}), now_ms=NEVER)
    (effect,) = effects
    assert isinstance(effect, Recover)
    return delivery.recovered(state, [replace(receipt, epoch=effect.sinks["a"][0])], now_ms=NEVER)


def test_a_fence_is_not_the_end() -> None:
    """A sink that has seen a larger token gets a larger one still: until that was tried, nothing is final."""
    state, effects = refused(owned({"a": 5}, head=5), Receipt("a", 0, "failed", fault=FENCED, fenced_by=9))
    assert effects == [RaiseToken("a", 9)]
    outcome, final = judge(state, at(5), {})
    assert (outcome.reached, final) == (False, False)


def test_what_retrying_cannot_mend_is_the_end() -> None:
    """Unless the sink is not ours any more: what we last heard of it says nothing about its new owner."""
    fatal = replace(FAULT, retry=Retry.FATAL)
    state, _ = refused(owned({"a": 5}, head=5), Receipt("a", 0, "failed", fault=fatal))
    assert judge(state, at(5), {})[1]
    state = delivery.lose(state, ["a"])
    assert not judge(state, at(5), {})[1]
    assert judge(state, at(5), {"a": Elsewhere({T: at(5)})})[0].reached


def test_a_table_that_another_runner_holds_has_not_arrived() -> None:
    """Its sink's other tables have: that is the end, as far as anybody can tell. Without an owner it is not:
    the sink becomes ours, or somebody else's."""
    state = delivery.lose(owned({"a": 5}, head=5), ["a"])
    held = Elsewhere({"main.u": at(5)}, {T: f"{T} is held: somebody changed it"})
    outcome, final = judge(state, at(5), {"a": held})
    assert (outcome.reached, final) == (False, True)
    assert outcome.stragglers == {"a": f"{T} is held: somebody changed it"}
    assert not judge(state, at(5), {})[1]
    behind = replace(held, places={"main.u": at(4)})
    assert not judge(state, at(5), {"a": behind})[1], "that one is still on its way"


def test_what_cannot_be_read_is_the_end_after_a_few_tries() -> None:
    """Nothing else is left to do, and the table and the reason are named; before, it is tried again."""
    state, effects = delivery.start_wave(owned({"a": 1}, head=5))
    for tried in range(1, UNREAD_TRIES + 1):
        wave = wave_of(effects)
        assert not judge(state, at(5), {})[1], "a try is under way"
        unread = Receipt("a", wave.sinks["a"].epoch, "aborted", unread={T: FAULT})
        state, _ = delivery.wave_done(state, wave.id, upto=at(5), receipts=[unread], now_ms=0)
        outcome, final = judge(state, at(5), {})
        assert (outcome.reached, final) == (False, tried == UNREAD_TRIES)
        assert outcome.stragglers == {"a": f"{T} cannot be read now: {FAULT.message}"}
        state, effects = delivery.start_wave(state, now_ms=NEVER)


def test_whoever_stands_beyond_a_position_has_not_stopped_there() -> None:
    """It cannot go back: final, and said so, ours or not."""
    state = owned({"a": 5, "b": 3}, head=3)
    outcome, final = judge(state, at(3), {}, exact=True)
    beyond = f"{T} stands at {at(5)} already, beyond {at(3)}"
    assert (outcome.reached, outcome.stragglers, final) == (False, {"a": beyond}, True)
    assert judge(state, at(3), {})[0].reached, "a run until caught up has got there"
    theirs = {"a": Elsewhere({T: at(5)})}
    assert judge(delivery.lose(state, ["a"]), at(3), theirs, exact=True) == (outcome, True)


def test_a_sink_that_was_given_up_is_not_waited_for() -> None:
    """It was left to a runner of which nothing is heard; everything else is."""
    state = delivery.lose(owned({"a": 5, "b": 5}, head=5), ["a"])
    outcome, final = judge(state, at(5), {}, given_up={"a"})
    assert (outcome.reached, list(outcome.stragglers), final) == (False, ["a"], True)
    assert not judge(delivery.lose(state, ["b"]), at(5), {}, given_up={"a"})[1]


def test_whoever_is_ahead_of_our_look_has_not_arrived() -> None:
    """D8: the store was lost, so the source was looked at under a number that the sink has left behind."""
    later = replace(copy(3, source="one"), at=at(3, 2))
    state = owned({"a": None}, head=9)
    state, _ = refused(state, Receipt("a", 0, "applied", cursor=Cursor(at(3, 2), 1, {T: later})))
    outcome, final = judge(state, at(9), {})
    assert (outcome.reached, final) == (False, False)
    assert not judge(delivery.lose(state, ["a"]), at(9), {"a": Elsewhere({T: at(3, 2)})})[0].reached
    state = delivery.observe(state, identity="one", oldest=at(0, 2), head=at(9, 2))
    assert not judge(state, at(9, 2), {})[0].reached


@pytest.mark.parametrize(("position", "bound"), [(at(3), at(3)), (at(9), at(5)), (at(9, 2), at(5))])
def test_a_run_goes_as_far_as_it_was_asked_to(position: object, bound: object) -> None:
    """But a position of an earlier source bounds nothing."""
    assert Until(position=position).bounded(at(5)) == bound  # type: ignore[arg-type]
    assert Until(position=at(9)).bounded(at(2, 2)) == at(2, 2)


ENDS_BY_AN_ERROR = """
import os, sys, threading
from pathlib import Path
from tests.runtime.quiet import StillSource
from truecut.config.load import load
from truecut.runtime.control import open_control
from truecut.runtime.until import Until
from truecut.runtime.runner import Runner
from truecut.runtime.trace import Trace

class Hanging:
    begun = threading.Event()
    def take_over(self, effect):
        self.begun.set()
        threading.Event().wait()

def show(view):
    if Hanging.begun.is_set():
        raise RuntimeError("the end")

pipeline = load(Path(sys.argv[1]), environ=os.environ)
control = open_control(pipeline.control, pipeline=pipeline.name)
Runner(pipeline, name="r", jobs=Hanging(), open_source=lambda _: StillSource(), control=control,
       trace=Trace(None), until=Until(), on_view=show).run()
"""


def test_a_run_that_ends_by_an_error_does_not_wait_for_its_jobs(tmp_path: Path) -> None:
    """The process is over, though a job of it never answers; it has signed off: its leases are free."""
    pipeline = pipeline_in(tmp_path, lease={"duration": "1h"})
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_BY_AN_ERROR, str(tmp_path / "pipeline.yaml")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=os.getcwd(),
    )
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "RuntimeError: the end")
    with closing(open_control(pipeline.control, pipeline=pipeline.name)) as control:
        assert not control.reports().running
        claimed = control.claim("s", ["t0", "t1"], duration_ms=1_000, count_max=2)
    assert set(claimed) == {"t0", "t1"}
