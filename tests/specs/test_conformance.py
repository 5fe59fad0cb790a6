"""The pure machine is walked along every edge of TLC's state graph of a small model.

From every state of the spec, the function named after the action must lead to exactly the spec's next
state; where the spec allows no such step, the machine must not take it; a stale answer changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from specs import tlc
from tests.specs import mirror
from tests.specs.tlavalue import Graph, Record, read_graph
from truecut.core import delivery
from truecut.core.delivery import Delivery, SinkOrder, Wave
from truecut.model.order import Receipt

RUNNER = "r1"
ENVIRONMENT = {"SrcCommit", "Expire", "LeaseOut", "SinkTakeover", "SinkCommit", "Crash"}
RUNNER_ACTIONS = {"Observe", "Acquire", "Recovered", "WaveCommit", *mirror.STEPS}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("graph") / "walk.dot"
    verdict = tlc.check(tlc.config("walk"), workers=1, options=("-dump", "dot,actionlabels", str(path)))
    assert verdict.violated is None
    graph = read_graph(path)
    assert len(graph.states) == verdict.distinct
    return graph


def outcomes(state: dict[str, Any], action: str, after: dict[str, Any]) -> list[dict[str, Any]]:
    """Where the code goes by this action from this state; several when several answers wait."""
    machine = mirror.concrete(state["run"][RUNNER])
    known = state["run"][RUNNER]["sinks"][mirror.SINK]
    mine = [o for o in state["net"] if o.run == RUNNER and o.answered and o.epoch == known["epoch"]]
    if action == "Observe":
        oldest, head = mirror.place(state["oldest"]), mirror.place(state["head"])
        assert oldest is not None
        assert head is not None
        stepped = [delivery.observe(machine, identity=mirror.SOURCE, oldest=oldest, head=head)]
    elif action == "Acquire":
        stepped = [delivery.acquire(machine, {mirror.SINK: after["lease"][mirror.SINK]["token"]})]
    elif action == "Recovered":
        stepped = [_told(machine, o) for o in mine if o.kind == "takeover"]
    elif action == "WaveCommit":
        stepped = [
            mirror.answered(machine, wave=1, epoch=o.epoch, upto=o.upto, token=o.token)
            for o in mine
            if o.kind != "takeover" and o.upto == known["wave"]["upto"]
        ]
    else:
        stepped = [mirror.STEPS[action](machine)]
    return [_windowed(mirror.abstract(one), action, after) for one in stepped]


def _told(machine: Delivery, o: Record) -> Delivery:
    cursor = mirror.cursor_at(o.cursor, o.token)
    receipt = Receipt(mirror.SINK, o.epoch, "applied", cursor=cursor)
    return delivery.recovered(machine, [receipt], now_ms=0)[0]


def _windowed(runner: dict[str, Any], action: str, after: dict[str, Any]) -> dict[str, Any]:
    """A window may end before what was asked for: the spec's end must lie within the code's bound."""
    wave = runner["sinks"][mirror.SINK]["wave"]
    end = after["run"][RUNNER]["sinks"][mirror.SINK]["wave"]["upto"]
    if action == "StartWave" and wave["kind"] == "changes" and end <= wave["upto"]:
        wave["upto"] = end
    return runner


def walk(graph: Graph) -> tuple[Counter[str], list[str]]:
    """Every edge: how often each action was seen, and where the code went elsewhere."""
    seen: Counter[str] = Counter()
    wrong = []
    for source, action, target in graph.edges:
        seen[action] += 1
        if action in ENVIRONMENT:
            continue
        before, after = graph.states[source], graph.states[target]
        if after["run"][RUNNER] not in outcomes(before, action, after):
            wrong.append(f"{action}: {before['run']} -> {after['run']}")
    return seen, wrong


def enabled(graph: Graph) -> dict[str, set[str]]:
    """The actions that the spec allows in each state."""
    allowed: dict[str, set[str]] = {name: set() for name in graph.states}
    for source, action, _ in graph.edges:
        allowed[source].add(action)
    return allowed


def test_the_machine_follows_every_edge(graph: Graph) -> None:
    """From each state of the spec, the code's step ends in the spec's next state; every action occurs."""
    seen, wrong = walk(graph)
    assert wrong[:3] == []
    assert set(seen) == ENVIRONMENT | RUNNER_ACTIONS
    assert sum(seen[action] for action in RUNNER_ACTIONS) > 5_000


def test_the_machine_starts_nothing_the_spec_forbids(graph: Graph) -> None:
    """The machine starts a recovery, a wave or a seed, or persists, exactly where the spec allows it."""
    starts = ("StartRecovery", "StartWave", "StartSeed", "PersistIdle")
    wrong = []
    for name, allowed in enabled(graph).items():
        machine = mirror.concrete(graph.states[name]["run"][RUNNER])
        for action in starts:
            started = mirror.STEPS[action](machine) != machine
            if started != (action in allowed):
                wrong.append(f"{action} {'started' if started else 'refused'}: {graph.states[name]['run']}")
    assert wrong[:3] == []


def test_an_older_epochs_answer_changes_nothing(graph: Graph) -> None:
    """D4: whatever is still in the network from before a reset leaves the machine as it is."""
    tried = 0
    for state in graph.states.values():
        machine = mirror.concrete(state["run"][RUNNER])
        epoch = machine.sinks[mirror.SINK].epoch
        for o in state["net"]:
            if o.run == RUNNER and o.answered and o.epoch < epoch:
                tried += 1
                if o.kind == "takeover":
                    assert _told(machine, o) == machine
                else:
                    assert _late_answer(machine, o).sinks == machine.sinks
    assert tried > 100


def _late_answer(machine: Delivery, o: Record) -> Delivery:
    upto = mirror.place(o.upto)
    assert upto is not None
    order = SinkOrder(o.epoch, o.token, mirror.place(o.expected))
    wave = Wave(99, "changes", {mirror.SINK: order}, {}, None, upto)
    running = replace(machine, waves={**machine.waves, 99: wave})
    return mirror.answered(running, wave=99, epoch=o.epoch, upto=o.upto, token=o.token)
