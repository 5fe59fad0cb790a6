"""Two runners of one pipeline without a common control store: one wins, the other says why it lost."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from tests.e2e.world import eventually
from tests.runtime.quiet import FencedSinks, StillSource, pipeline_in, running
from truecut.config.settings import Pipeline
from truecut.runtime.control import ControlStore, open_control
from truecut.runtime.run_report import View

CODE = "TC5023"


def _given_up(views: Iterable[View]) -> dict[str, object]:
    """Sink → code of the error that is shown for it."""
    lines = [view.sinks for view in views][-1:]
    return {n: line.error["code"] for sinks in lines for n, line in sinks.items() if line.error is not None}


def _store(folder: Path) -> tuple[Pipeline, ControlStore]:
    folder.mkdir()
    pipeline = pipeline_in(folder, tenants=2)
    return pipeline, open_control(pipeline.control, pipeline=pipeline.name)


def test_runners_with_separate_stores_do_not_fight_for_ever(tmp_path: Path) -> None:
    """Each sink changes hands once or twice, then it is left to the one that took it last: the other one
    shows it as failed, with what to do, and `status` does, too."""
    sinks = FencedSinks()
    first, store = _store(tmp_path / "one")
    second, other = _store(tmp_path / "two")
    seen: dict[str, list[View]] = {"one": [], "two": []}
    with closing(store), closing(other), ExitStack() as block:
        block.enter_context(running(first, store, StillSource(), sinks, seen["one"].append, name="one"))
        eventually(lambda: len(sinks.owners) == 2, what="the first one has both")
        block.enter_context(running(second, other, StillSource(), sinks, seen["two"].append, name="two"))
        lost = {"t0": CODE, "t1": CODE}
        eventually(lambda: _given_up(seen["one"]) == lost, what="the first one has lost")
        settled = {sink: list(tokens) for sink, tokens in sinks.owners.items()}
        looks = len(seen["two"]) + 4
        eventually(lambda: len(seen["two"]) > looks, what="the second one goes on")
        assert sinks.owners == settled
        assert CODE not in _given_up(seen["two"]).values()
        eventually(lambda: set(_reported(store)) == {CODE}, what="status says so")
    assert all(len(tokens) <= 3 for tokens in settled.values()), settled


def _reported(store: ControlStore) -> list[object]:
    return [(report["error"] or {}).get("code") for report in store.reports().sinks.values()]


def test_a_token_from_before_a_lost_store_is_outbid(tmp_path: Path) -> None:
    """The sinks have seen larger tokens than any clock gives, and nobody else is there: it goes on."""
    sinks = FencedSinks()
    sinks.owners = {"t0": [2**61], "t1": [2**61]}
    pipeline, store = _store(tmp_path / "one")
    views: list[View] = []
    with closing(store), running(pipeline, store, StillSource(), sinks, views.append):
        eventually(lambda: all(t[-1] > 2**61 for t in sinks.owners.values()), what="both are taken over")
        looks = len(views) + 3
        eventually(lambda: len(views) > looks, what="it goes on")
        assert CODE not in _given_up(views).values()
