"""The pure machine is walked along every edge of TLC's graphs of three models; the walk notices faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specs import tlc
from tests.specs.tlavalue import Graph, read_graph
from tests.specs.walk import ENVIRONMENT, REPLACING, REQUESTS, RUNNER_ACTIONS, walk
from tests.specs.walk_faults import APPEND_FAULTS, FAULTS, REPLACED_FAULTS, injected
from truecut.core import answers
from truecut.core.delivery import Delivery, SinkOrder, SinkState


def graph_of(model: str, folder: Path) -> Graph:
    path = folder / "walk.dot"
    options = ("-dump", "dot,actionlabels", str(path))
    verdict = tlc.check(tlc.config(model), module=tlc.module_of(model), brief=True, options=options)
    assert verdict.violated is None
    graph = read_graph(path)
    assert len(graph.states) == verdict.distinct
    return graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Two mirrored tables."""
    return graph_of("tables", tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def append_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """One append table, which is held where a mirror is seeded."""
    return graph_of("append-walk", tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def replaced_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """One table of a source that is replaced, and a store that forgets it."""
    return graph_of("replaced-walk", tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def unread_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Two mirrored tables, one of which cannot be read for a while."""
    return graph_of("unread", tmp_path_factory.mktemp("graph"))


def test_the_machine_follows_every_edge(graph: Graph) -> None:
    """From each state of the spec the code goes exactly where the spec goes, and sends the spec's orders:
    token, expected versions, places, kinds, holds. Every action occurs."""
    walked = walk(graph)
    assert walked.wrong == []
    assert set(walked.seen) == ENVIRONMENT | REQUESTS | RUNNER_ACTIONS
    assert sum(walked.seen[action] for action in RUNNER_ACTIONS) > 5_000


def test_the_machine_follows_every_edge_of_an_append_table(append_graph: Graph) -> None:
    """The same where nothing is idempotent: what has lost its place is held until somebody decides."""
    walked = walk(append_graph, mode="append")
    assert walked.wrong == []
    assert walked.seen["ResumeTable"] > 50
    assert walked.seen["PersistIdle"] > 50


def test_the_machine_follows_every_edge_of_a_source_that_is_replaced(replaced_graph: Graph) -> None:
    """The same where looks come late, or under a wrong number: whoever is ahead of a look stands still."""
    walked = walk(replaced_graph)
    assert walked.wrong == []
    assert all(walked.seen[action] > 50 for action in REPLACING)


@pytest.mark.parametrize("fault", REPLACED_FAULTS)
def test_the_walk_of_a_source_that_is_replaced_notices(
    fault: str, replaced_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does one that needs another source to be seen."""
    action = injected(monkeypatch, REPLACED_FAULTS[fault])
    wrong = walk(replaced_graph, wrong_max=1, only=action).wrong
    assert [problem[: len(action)] for problem in wrong] == [action]


def test_the_machine_follows_every_edge_where_a_table_rests(unread_graph: Graph) -> None:
    """A window is aborted, whichever of its tables was the reason: all copies are where they were. Whoever
    rests is left out, and the others go on, each with the orders of the spec."""
    walked = walk(unread_graph, resting=True)
    assert walked.wrong == []
    assert walked.seen["WaveAbort"] > 50


def test_the_walk_notices_who_moves_on_after_an_abort(
    unread_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of an aborted window that advance lead off the graph."""
    aborted = answers.aborted

    def advanced(state: Delivery, sink: SinkState, order: SinkOrder, *rest: Any) -> SinkState:
        back = aborted(state, sink, order, *rest)
        moved = {t: replace(back.copies[t], at=state.head) for t in order.tables if back.copies[t].at}
        return back.with_copies(moved)

    monkeypatch.setattr(answers, "aborted", advanced)
    wrong = walk(unread_graph, resting=True, wrong_max=1, only="WaveAbort").wrong
    assert [problem[:9] for problem in wrong] == ["WaveAbort"]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_walk_notices(fault: str, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is put into the machine leads it off the graph."""
    action = injected(monkeypatch, FAULTS[fault])
    wrong = walk(graph, wrong_max=1, only=action).wrong
    assert [problem[: len(action)] for problem in wrong] == [action]


@pytest.mark.parametrize("fault", APPEND_FAULTS)
def test_the_walk_of_an_append_table_notices(
    fault: str, append_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does one that a mirror would hide."""
    action = injected(monkeypatch, APPEND_FAULTS[fault])
    wrong = walk(append_graph, mode="append", wrong_max=1, only=action).wrong
    assert [problem[: len(action)] for problem in wrong] == [action]
