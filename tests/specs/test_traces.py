"""The spec decides on traces: those of the real machine are allowed, tampered ones are not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core.simulation import Simulation
from tests.specs.tracecheck import Case, cases_of, read, refused
from truecut.core.delivery import Delivery
from truecut.runtime.trace import Trace

Lines = list[dict[str, Any]]


def lived(folder: Path, seed: int, *, steps: int = 250) -> list[Case]:
    """The traces of a simulated life of several runners."""
    folder.mkdir()
    traces: dict[str, Trace] = {}

    def on_step(runner: Any, before: Delivery, after: Delivery) -> None:
        if runner.name not in traces:
            traces[runner.name] = Trace(folder / f"{runner.name}.jsonl", runner=runner.name)
        traces[runner.name].step(before, after)

    simulation = Simulation(seed, sinks=2, on_step=on_step)
    for _ in range(steps):
        simulation.step()
    for trace in traces.values():
        trace.close()
    return cases_of(f"seed {seed}", read(folder.glob("*.jsonl")))


def simple() -> Lines:
    """One runner, one sink: a seed, a wave, one that passes it by, a persisted cursor, a failure."""
    said: Lines = [
        {"action": "Observe", "identity": "i", "oldest": "0", "head": "1"},
        {"action": "Acquire", "sink": "a", "token": 1, "epoch": 1},
        {"action": "StartRecovery", "sink": "a", "token": 1, "epoch": 1},
        {"action": "Recovered", "sink": "a", "epoch": 1, "cursor": None, "copy": "unseeded"},
        {"action": "StartSeed", "sink": "a", "epoch": 1, "wave": 1, "expected": None, "upto": "1"},
        {"action": "WaveCommit", "sink": "a", "epoch": 1, "wave": 1, "cursor": "1", "copy": "streaming"},
        {"action": "Observe", "identity": "i", "oldest": "0", "head": "4"},
        {
            "action": "StartWave",
            "sink": "a",
            "epoch": 1,
            "wave": 2,
            "expected": "1",
            "after": "1",
            "upto": "4",
        },
        {"action": "WaveCommit", "sink": "a", "epoch": 1, "wave": 2, "cursor": "2", "copy": "streaming"},
        {
            "action": "StartWave",
            "sink": "a",
            "epoch": 1,
            "wave": 3,
            "expected": "2",
            "after": "2",
            "upto": "4",
        },
        {"action": "Advance", "sink": "a", "epoch": 1, "wave": 3, "upto": "3", "copy": "streaming"},
        {"action": "PersistIdle", "sink": "a", "epoch": 1, "wave": 4, "expected": "2", "upto": "3"},
        {"action": "WaveCommit", "sink": "a", "epoch": 1, "wave": 4, "cursor": "3", "copy": "streaming"},
        {
            "action": "StartWave",
            "sink": "a",
            "epoch": 1,
            "wave": 5,
            "expected": "3",
            "after": "3",
            "upto": "4",
        },
        {"action": "WaveFail", "sink": "a", "epoch": 2, "wave": 5},
        {"action": "StartRecovery", "sink": "a", "token": 1, "epoch": 2},
        {"action": "Recovered", "sink": "a", "epoch": 2, "cursor": "4", "copy": "streaming"},
        {"action": "Lose", "sink": "a", "epoch": 3},
    ]
    return [{"runner": "r1", **line} for line in said]


def second_runner(*, cursor: str) -> Lines:
    """Another process takes the sink over."""
    said: Lines = [
        {"action": "Observe", "identity": "i", "oldest": "0", "head": "4"},
        {"action": "Acquire", "sink": "a", "token": 2, "epoch": 1},
        {"action": "StartRecovery", "sink": "a", "token": 2, "epoch": 1},
        {"action": "Recovered", "sink": "a", "epoch": 1, "cursor": cursor, "copy": "streaming"},
        {
            "action": "StartWave",
            "sink": "a",
            "epoch": 1,
            "wave": 1,
            "expected": cursor,
            "after": cursor,
            "upto": "4",
        },
        {"action": "WaveCommit", "sink": "a", "epoch": 1, "wave": 1, "cursor": "4", "copy": "streaming"},
    ]
    return [{"runner": "r2", **line} for line in said]


def changed(action: str, nth: int, **fields: Any) -> Callable[[Lines], Lines]:
    """The n-th line of an action says something else."""

    def tamper(lines: Lines) -> Lines:
        hit = [line for line in lines if line["action"] == action][nth]
        return [{**line, **fields} if line is hit else line for line in lines]

    return tamper


def dropped(action: str, nth: int) -> Callable[[Lines], Lines]:
    """The n-th line of an action is missing."""

    def tamper(lines: Lines) -> Lines:
        hit = [line for line in lines if line["action"] == action][nth]
        return [line for line in lines if line is not hit]

    return tamper


TAMPERED: dict[str, Callable[[Lines], Lines]] = {
    "a wave that starts after what the sink lacks": changed("StartWave", 1, after="3"),
    "a wave that starts before where the sink stands": changed("StartWave", 2, after="2"),
    "a wave beyond the observed head": changed("Observe", 1, head="3"),
    "an order that expects another cursor": changed("StartWave", 0, expected="2"),
    "a commit that ends elsewhere": changed("WaveCommit", 2, cursor="4"),
    "a cursor that moved back": changed("Recovered", 1, cursor="2"),
    "a cursor that no order wrote": changed("Recovered", 0, cursor="1", copy="streaming"),
    "an epoch that a failure did not bump": changed("WaveFail", 0, epoch=1),
    "a wave without a recovery": dropped("Recovered", 0),
    "a recovery without a lease": dropped("Acquire", 0),
    "a second wave while one is in flight": dropped("WaveCommit", 1),
    "a wave across a gap": changed("Observe", 1, oldest="2"),
    "a persisted cursor that was never read": changed("PersistIdle", 0, upto="4"),
    "a seed for a sink that streams": changed("Recovered", 0, cursor="1", copy="unseeded"),
    "an answer to a wave that never started": dropped("StartWave", 1),
}


MISSED = "a takeover that missed a commit which was answered"


@pytest.fixture(scope="module")
def verdicts() -> dict[str, bool]:
    """Name → whether the spec refused it. One start of TLC decides on all of them."""
    told = {
        "as it was": simple(),
        **{name: tamper(copy.deepcopy(simple())) for name, tamper in TAMPERED.items()},
    }
    until_wave = simple()[:8]  # the first runner hangs inside its second wave, and its order may land
    told["a takeover that saw the order land"] = until_wave + second_runner(cursor="2")
    told["a takeover before the order could land"] = until_wave + second_runner(cursor="1")
    told[MISSED] = [*until_wave, simple()[8], *second_runner(cursor="1")]
    cases = [case for name, lines in told.items() for case in cases_of(name, lines)]
    out = {refusal.case.run for refusal in refused(cases)}
    return {name: name in out for name in told}


def test_an_honest_trace_is_allowed(verdicts: dict[str, bool]) -> None:
    """What the machine does is a behaviour of the spec, also when an answer was lost or a runner hangs."""
    assert not verdicts["as it was"]
    assert not verdicts["a takeover that saw the order land"]
    assert not verdicts["a takeover before the order could land"]


@pytest.mark.parametrize("name", [*TAMPERED, MISSED])
def test_a_tampered_trace_is_refused(name: str, verdicts: dict[str, bool]) -> None:
    """A trace that no behaviour of the spec explains is refused."""
    assert verdicts[name]


def test_traces_of_simulated_lives_are_allowed(tmp_path: Path) -> None:
    """Whatever several runners of the real machine did through crashes and lost leases, the spec allows."""
    cases = [case for seed in range(16) for case in lived(tmp_path / str(seed), seed)]
    assert sum(case.length for case in cases) > 500
    assert [str(refusal) for refusal in refused(cases)] == []


def test_a_trace_is_off_by_default_and_says_who_spoke(tmp_path: Path) -> None:
    """Without a path nothing is written; with one, each line is JSON with action and runner."""
    silent = Trace(None)
    silent.emit("Lose", sink="a")
    path = tmp_path / "trace.jsonl"
    trace = Trace(path, runner="r")
    trace.emit("Lose", sink="a", epoch=1)
    trace.close()
    trace.emit("Lose", sink="b")
    (line,) = [json.loads(text) for text in path.read_text().splitlines()]
    assert line.pop("at_ns") > 0
    assert line == {"action": "Lose", "runner": "r", "sink": "a", "epoch": 1}
