"""Coordinator, node and producer of the segment log are walked along every edge of TLC's state graphs.

From every state of the spec, the functions named after an action must lead to exactly the states to which
the spec's action leads: to no other, and to each of them. Where the coordinator chooses, its choice must be
one of the spec's, and it must choose as soon as the spec can.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from specs import tlc
from tests.journal import bugs
from tests.specs import segment_log_mirror as mirror
from tests.specs.segment_log_mirror import Bounds, Change, State
from tests.specs.tlavalue import Graph, read_graph
from truecut.core import segment_log as core

WIDE = ("log-walk-entries", "log-walk-late")  # half of all states, for long runs
MODELS = sorted(set(tlc.walked_logs()) - set(WIDE))
ENVIRONMENT = {"CrashProducer", "LoseDisk", "Hurt"}  # nothing of the code takes part
OUTSIDE = {"sure", "faults"}  # the ghost, and the environment's budget
# A bug of the machine, the graph that shows it, and where code and spec part.
BUGS = {
    "last_entry_served": ("log-walk", "Consume"),
    "fenced_served": ("log-walk", "Consume"),
    "told_before_fsync": ("log-walk", "TakeFence"),
    "missing_is_empty": ("log-walk-hurt", "TakeFence"),
    "begun_anew": ("log-walk-hurt", "TakeAppend"),
    "unfenced_reply_counted": ("log-walk", "TakeFence"),
    "suspend_after_seal": ("log-walk", "TakeFence"),
    "close_decided_twice": ("log-walk", "DecideByProducer"),
    "acks_kept": ("log-walk-next", "NewSegment"),
    "decided_alone": ("log-walk", "DecideByFence"),
}
NOT_WALKED = {"copied_anew"}  # it takes three faults, and graphs with three are too large to be walked


@dataclass(frozen=True, slots=True)
class Walk:
    """A model's graph, by state and action."""

    bounds: Bounds
    graph: Graph
    targets: dict[str, dict[str, list[State]]]

    def __iter__(self) -> Iterator[tuple[State, dict[str, list[State]]]]:
        """Each state, and where the spec leads from there by each action."""
        return ((state, self.targets[name]) for name, state in self.graph.states.items())


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walk]:
    return walked(MODELS, tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="module")
def wide_walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walk]:
    return walked(WIDE, tmp_path_factory.mktemp("graphs"))


def walked(models: Sequence[str], folder: Path) -> dict[str, Walk]:
    """The graphs of these models, in which TLC has found everything to hold."""

    def walk_of(model: str) -> Walk:
        path = folder / f"{model}.dot"
        options = ("-dump", "dot,actionlabels", str(path))
        verdict = tlc.check(tlc.config(model), module=tlc.module_of(model), brief=True, options=options)
        assert verdict.violated is None, verdict.output[-3000:]
        graph = read_graph(path)
        assert len(graph.states) == verdict.distinct
        targets: dict[str, dict[str, list[State]]] = {name: defaultdict(list) for name in graph.states}
        for source, action, target in graph.edges:
            targets[source][action].append(graph.states[target])
        return Walk(mirror.bounds_of(tlc.config(model)), graph, targets)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(models, pool.map(walk_of, models), strict=True))


def after(state: State, change: Change) -> State:
    """The state with what has changed."""
    return {**state, **change}


def same(one: State, other: State) -> bool:
    """Whether coordinator, nodes, producers, messages, consumer and disks are alike."""
    return all(one[name] == other[name] for name in one if name not in OUTSIDE)


def among(one: State, others: list[State]) -> bool:
    """Whether it is one of them."""
    return any(same(one, other) for other in others)


def one_of_many(state: State, action: str) -> bool:
    """Whether the model keeps one of several steps here, as they differ in names only (`Named`)."""
    coord = state["coord"]
    return (action == "Grant" and not coord["token"]) or (action == "NewSegment" and not coord["segs"])


def differences(walk: Walk) -> Iterator[tuple[str, str]]:
    """Actions by which code and spec part, and where."""
    for state, targets in walk:
        for action, step in mirror.STEPS.items():
            stepped = [after(state, change) for change in step(state, walk.bounds)]
            moved = [one for one in stepped if not same(one, state)]
            allowed = targets.get(action, [])
            for one in allowed:
                if not among(one, moved):
                    yield action, f"{action} does not lead the code from {state} to {one}"
            for one in moved if not one_of_many(state, action) else ():
                if not among(one, allowed):
                    yield action, f"{action} leads the code alone from {state} to {one}"


def followed(walks: dict[str, Walk]) -> Counter[str]:
    """How often each action occurs where code and spec never part."""
    seen: Counter[str] = Counter()
    for walk in walks.values():
        assert [text for _, text in differences(walk)][:3] == []
        seen.update(action for _, action, _ in walk.graph.edges)
    return seen


def test_the_machine_goes_where_the_spec_goes_and_nowhere_else(walks: dict[str, Walk]) -> None:
    """From each state, by each action, the code leads to what the spec leads to; every action occurs."""
    seen = followed(walks)
    assert set(seen) == ENVIRONMENT | set(mirror.STEPS)
    assert sum(seen[action] for action in mirror.STEPS) > 50_000


def chosen(state: State, bounds: Bounds) -> dict[str, list[State]]:
    """What a coordinator starts that knows all that it was told, and prefers the first of the nodes."""
    log = mirror.log_of(state["coord"])
    alive = mirror.alive(state)
    good = mirror.sound(state, log.last) if log.last else alive
    changes = {
        "AskCopy": list(mirror.copies_asked(log, state, good, spare=sorted(good))),
        "DecideByFence": [mirror.coord_of(core.decide_by_fence(log, replicas=bounds.replicas), state)],
        "Replace": list(mirror.replacements(state, alive, spare=sorted(alive))),
    }
    return {action: [after(state, change) for change in found] for action, found in changes.items()}


def tried(walks: dict[str, Walk]) -> Counter[str]:
    """How often the coordinator starts something, which must be what the spec allows."""
    tried: Counter[str] = Counter()
    for walk in walks.values():
        for state, targets in walk:
            for action, starts in chosen(state, walk.bounds).items():
                moved = [one for one in starts if not same(one, state)]
                allowed = targets.get(action, [])
                assert all(among(one, allowed) for one in moved), (action, state)
                if action == "DecideByFence" or not walk.bounds.mistrust:
                    assert moved or not allowed or (action == "AskCopy" and starts), (action, state)
                tried[action] += len(moved)
    return tried


def test_the_coordinator_chooses_what_the_spec_allows(walks: dict[str, Walk]) -> None:
    """What it starts is one of the spec's steps, or was started before; where the spec can decide, it does,
    and where the spec can copy or replace, too, unless nobody is lost."""
    assert min(tried(walks).values()) >= 50


@pytest.mark.soak
def test_the_wider_graphs_are_followed_too(wide_walks: dict[str, Walk]) -> None:
    """The same where replicas have several entries, and where living nodes are taken for lost."""
    assert followed(wide_walks).total() > 100_000
    assert tried(wide_walks)["AskCopy"] >= 50


@pytest.mark.parametrize("bug", BUGS)
def test_the_walk_notices(bug: str, walks: dict[str, Walk]) -> None:
    """Each bug that lies in the machine leads it off the spec's graph, by the action that it spoils."""
    model, action = BUGS[bug]
    with bugs.switched_on(bug):
        assert next((where for where, _ in differences(walks[model])), None) == action


def test_every_bug_in_the_machine_is_walked() -> None:
    """A bug without its walk would prove nothing."""
    assert set(BUGS) | NOT_WALKED == set(bugs.IN_THE_MACHINE)
