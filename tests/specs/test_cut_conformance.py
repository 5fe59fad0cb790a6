"""The code's backfill is walked along every edge of TLC's state graphs.

From every state of the spec, the functions named after an action must lead to exactly the states to which the
spec's action leads: to no other, and to each of them, rows of the sink included.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from specs import tlc
from tests.core import cut_faults
from tests.specs import cut_mirror as mirror
from tests.specs.cut_mirror import Bounds, Change
from tests.specs.tlavalue import Graph, read_graph
from truecut.core import cut

MODELS = tlc.walked("cut")
SOURCE = {"WriteRow", "Commit", "End", "CreateSlot", "Publish"}  # nothing of the code takes part
# A bug of the machine, the graph that shows it, and where code and spec part.
BUGS = {
    "watermark_only": ("cut-walk-beside", "Wave"),
    "absent_is_null": ("cut-walk", "Wave"),
    "truncate_ignored": ("cut-walk", "Wave"),
    "subtransactions_forgotten": ("cut-walk-beside", "Wave"),
    "hi_ignored": ("cut-walk", "Wave"),
    "replayed_from_cursor": ("cut-walk", "Wave"),
    "applied_again": ("cut-walk", "Wave"),
    "start_unchecked": ("cut-walk", "OpenUnit"),
    "torn_kept": ("cut-walk", "Wave"),
    "writers_unawaited": ("cut-walk-published", "OpenUnit"),
}
PLANNED = {"end_is_last_key"}  # wrong from the first state on


@dataclass(frozen=True, slots=True)
class Walk:
    """A model's graph, by state and action."""

    bounds: Bounds
    graph: Graph
    targets: dict[str, dict[str, list[Change]]]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walk]:
    folder = tmp_path_factory.mktemp("graphs")

    def walked(model: str) -> Walk:
        path = folder / f"{model}.dot"
        options = ("-dump", "dot,actionlabels", str(path))
        verdict = tlc.check(tlc.config(model), module=tlc.module_of(model), brief=True, options=options)
        assert verdict.violated is None, verdict.output[-3000:]
        graph = read_graph(path)
        assert len(graph.states) == verdict.distinct
        targets: dict[str, dict[str, list[Change]]] = {name: defaultdict(list) for name in graph.states}
        for source, action, target in graph.edges:
            if action in mirror.STEPS:
                targets[source][action].append(mirror.compared(graph.states[target]))
        return Walk(mirror.bounds_of(tlc.config(model)), graph, targets)

    return {model: walked(model) for model in MODELS}


def differences(walk: Walk) -> Iterator[tuple[str, str]]:
    """Actions by which code and spec part, and where."""
    for name, state in walk.graph.states.items():
        if state["slot"] == mirror.NONE:
            continue  # there is no log yet, and nothing to begin with
        before = mirror.compared(state)
        for action, step in mirror.STEPS.items():
            moved = [one for one in step(state, walk.bounds) if one != before]
            allowed = [one for one in walk.targets[name][action] if one != before]
            for one in allowed:
                if one not in moved:
                    yield action, f"{action} does not lead the code from {state} to {one}"
            for one in moved:
                if one not in allowed:
                    yield action, f"{action} leads the code alone from {state} to {one}"


def test_the_machine_goes_where_the_spec_goes_and_nowhere_else(walks: dict[str, Walk]) -> None:
    """From each state, by each action, the code leads to what the spec leads to; every action occurs."""
    seen: Counter[str] = Counter()
    for walk in walks.values():
        assert [text for _, text in differences(walk)][:3] == []
        seen.update(action for _, action, _ in walk.graph.edges)
    assert set(seen) == SOURCE | set(mirror.STEPS)
    assert sum(seen[action] for action in mirror.STEPS) > 3_000


def test_the_plan_is_the_specs(walks: dict[str, Walk]) -> None:
    """C1: the first units are those with which the spec begins."""
    for walk in walks.values():
        state = next(one for one in walk.graph.states.values() if one["slot"] != mirror.NONE)
        (unit,) = mirror.backfill_of(state, walk.bounds).units
        assert (unit.range,) == cut.ranges([])


@pytest.mark.parametrize("bug", BUGS)
def test_the_walk_notices(bug: str, walks: dict[str, Walk], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug that lies in the machine leads it off the spec's graph, by the action that it spoils."""
    model, action = BUGS[bug]
    cut_faults.injected(monkeypatch, bug)
    assert next((where for where, _ in differences(walks[model])), None) == action


def test_every_bug_in_the_machine_is_walked() -> None:
    """A bug without its walk would prove nothing."""
    assert set(BUGS) | PLANNED == set(cut_faults.MACHINE)
