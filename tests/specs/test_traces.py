"""The spec decides on traces: those of the real machine are allowed, tampered ones are not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core import machine
from tests.core.machine import NEVER, T, U, at
from tests.core.simulation import Simulation
from tests.specs.tracecheck import Case, cases_of, read, refused
from truecut.core import delivery
from truecut.core.delivery import CopySettings, Delivery, Effect, SinkState, Wave
from truecut.model.cursor import CopyState, Cursor, Hold
from truecut.model.order import Receipt
from truecut.runtime.trace import Trace, actions

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


class Teller:
    """A machine whose every step is told."""

    def __init__(self, runner: str, tables: tuple[str, ...] = (T, U)) -> None:
        wanted = {table: CopySettings("mirror") for table in tables}
        self.state = Delivery({"a": SinkState(wanted)})
        self.runner = runner
        self.lines: Lines = []

    def become(self, state: Delivery) -> None:
        told = [
            {"action": action, "runner": self.runner, **fields}
            for action, fields in actions(self.state, state)
        ]
        self.lines += json.loads(json.dumps(told))
        self.state = state

    def start(self, step: tuple[Delivery, list[Effect]]) -> Wave:
        self.become(step[0])
        return machine.wave_of(step[1])

    def observe(self, head: int) -> None:
        self.become(delivery.observe(self.state, identity="one", oldest=at(0), head=at(head)))

    def recover(self, cursor: Cursor) -> None:
        self.become(delivery.start_recovery(self.state, now_ms=NEVER)[0])
        receipt = Receipt("a", self.state.sinks["a"].epoch, "applied", cursor=cursor)
        self.become(delivery.recovered(self.state, [receipt], now_ms=0)[0])

    def wave(self) -> Wave:
        return self.start(delivery.start_wave(self.state))

    def seed(self) -> Wave:
        return self.start(delivery.start_seed(self.state, now_ms=NEVER))

    def commit(self, wave: Wave, upto: int, **stopped: CopyState) -> None:
        order = wave.sinks["a"]
        cursor = machine.committed(self.state, "a", order, at(upto))
        copies = {**cursor.copies, **{f"main.{name}": copy for name, copy in stopped.items()}}
        receipt = Receipt("a", order.epoch, "applied", cursor=replace(cursor, copies=copies))
        done = delivery.wave_done(self.state, wave.id, upto=at(upto), receipts=[receipt], now_ms=0)
        self.become(done[0])


def simple() -> Lines:
    """One runner, one sink, two tables: a seed and a wave; U is paused while T is passed by and persisted; U
    stops, is resumed and seeded while T goes on; an answer is lost."""
    told = Teller("r1")
    told.observe(1)
    told.become(delivery.acquire(told.state, {"a": 1}))
    told.recover(machine.cursor(None))
    told.commit(told.seed(), 1)
    told.observe(4)
    told.commit(told.wave(), 2)
    told.become(delivery.pause_tables(told.state, tables=frozenset({U})))
    passing = told.wave()
    told.become(machine.passed_by(told.state, passing, upto=3))
    told.become(delivery.pause_tables(told.state, tables=frozenset()))
    told.commit(told.start(delivery.persist_idle(told.state, ["a"])), 3)
    told.become(replace(told.state, turn=1))
    told.commit(told.wave(), 3, u=machine.copy(2, hold=Hold("TC3099", "it stopped")))
    told.become(delivery.resume_table(told.state, U, asked=7, sinks=["a"]))
    told.seed()
    failing = told.wave()
    told.become(delivery.wave_failed(told.state, failing.id, machine.FAULT, now_ms=0)[0])
    told.recover(machine.cursor(4, t=machine.copy(4), u=machine.copy(4, edition=2, resumed=7)))
    told.become(delivery.lose(told.state, ["a"]))
    return told.lines


def second_runner(*, place: int) -> Lines:
    """Another process takes the sink over."""
    told = Teller("r2")
    told.observe(4)
    told.become(delivery.acquire(told.state, {"a": 2}))
    told.recover(machine.cursor(place, t=machine.copy(place), u=machine.copy(place)))
    told.commit(told.wave(), 4)
    return told.lines


def without_a_table(*, place: int) -> Lines:
    """U leaves the pipeline for a while; when it is back it stands at this place."""
    first, between, last = Teller("r1"), Teller("r2", (T,)), Teller("r3")
    first.observe(1)
    first.become(delivery.acquire(first.state, {"a": 1}))
    first.recover(machine.cursor(None))
    first.commit(first.seed(), 1)
    between.observe(2)
    between.become(delivery.acquire(between.state, {"a": 2}))
    between.recover(machine.cursor(1, t=machine.copy(1), u=machine.copy(1)))
    between.commit(between.wave(), 2)
    last.observe(3)
    last.become(delivery.acquire(last.state, {"a": 3}))
    last.recover(machine.cursor(2, t=machine.copy(2), u=machine.copy(place)))
    last.commit(last.wave(), 2 if place == 1 else 3)
    return [*first.lines, *between.lines, *last.lines]


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


def retold(action: str, nth: int, part: str, table: str, **fields: Any) -> Callable[[Lines], Lines]:
    """The n-th line of an action says something else of one table (`part`: copies, tables, leaves)."""

    def tamper(lines: Lines) -> Lines:
        hit = [line for line in lines if line["action"] == action][nth]
        one = {**hit[part][table], **fields}
        if part == "copies" and action in ("Recovered", "WaveCommit"):  # the sink's own word
            one["durable"] = {name: one[name] for name in ("edition", "at", "hold", "resumed")}
        told = {**hit[part], table: one}
        return [{**line, part: told} if line is hit else line for line in lines]

    return tamper


def text(place: int) -> str:
    return str(at(place))


TAMPERED: dict[str, Callable[[Lines], Lines]] = {
    "a wave that starts after what its tables lack": changed("StartWave", 1, after=text(3)),
    "a wave that starts before where its table stands": changed("StartWave", 3, after=text(2)),
    "a wave beyond the observed head": changed("Observe", 1, head=text(3)),
    "a window that passes the sink's next table": changed("StartWave", 2, upto=text(4)),
    "an order that expects another place": retold("StartWave", 0, "tables", U, at=text(2)),
    "an order that expects another edition": retold("StartWave", 0, "tables", U, edition=2),
    "a seed that expects no hold": retold("StartSeed", 1, "tables", U, hold=None),
    "an order with another token": changed("StartWave", 0, token=2),
    "an order that names a paused table": retold("PauseTable", 0, "copies", T, paused=True),
    "a persisted place that was never read": retold("PersistIdle", 0, "leaves", T, at=text(4)),
    "a persist that moves another table": retold("WaveCommit", 2, "copies", U, at=text(3)),
    "a commit that ends elsewhere": retold("WaveCommit", 1, "copies", T, at=text(4)),
    "a copy that moved back": retold("Recovered", 1, "copies", T, at=text(2)),
    "a copy that no order wrote": retold(
        "Recovered", 0, "copies", T, status="streaming", at=text(1), edition=1
    ),
    "a seed that made no new edition": retold("Recovered", 1, "copies", U, edition=1),
    "a request that was forgotten": retold("Recovered", 1, "copies", U, resumed=0),
    "an epoch that a failure did not bump": changed("WaveFail", 0, epoch=1),
    "a wave without a recovery": dropped("Recovered", 0),
    "a recovery without a lease": dropped("Acquire", 0),
    "a second wave while one is in flight": dropped("WaveCommit", 1),
    "a wave across a gap": changed("Observe", 1, oldest=text(2)),
    "a held table that streams": dropped("ResumeTable", 0),
    "an answer to a wave that never started": dropped("StartWave", 1),
}


MISSED = "a takeover that missed a commit which was answered"
LEFT = "a table that left the pipeline, and stands where it stood when it is back"
MOVED = "a table that left the pipeline, and was moved meanwhile"


@pytest.fixture(scope="module")
def verdicts() -> dict[str, bool]:
    """Name → whether the spec refused it. One start of TLC decides on all of them."""
    told = {
        "as it was": simple(),
        **{name: tamper(copy.deepcopy(simple())) for name, tamper in TAMPERED.items()},
    }
    waves = [n for n, line in enumerate(simple()) if line["action"] == "StartWave"]
    until_wave = simple()[: waves[0] + 1]  # the first runner hangs inside its wave, and its order may land
    told["a takeover that saw the order land"] = until_wave + second_runner(place=2)
    told["a takeover before the order could land"] = until_wave + second_runner(place=1)
    told[LEFT] = without_a_table(place=1)
    told[MOVED] = without_a_table(place=2)
    told[MISSED] = [*simple()[: waves[0] + 2], *second_runner(place=1)]
    cases = [case for name, lines in told.items() for case in cases_of(name, lines)]
    out = {refusal.case.run for refusal in refused(cases)}
    return {name: name in out for name in told}


def test_an_honest_trace_is_allowed(verdicts: dict[str, bool]) -> None:
    """What the machine does is a behaviour of the spec, also when an answer was lost or a runner hangs."""
    assert not verdicts["as it was"]
    assert not verdicts["a takeover that saw the order land"]
    assert not verdicts["a takeover before the order could land"]
    assert not verdicts[LEFT]


@pytest.mark.parametrize("name", [*TAMPERED, MISSED, MOVED])
def test_a_tampered_trace_is_refused(name: str, verdicts: dict[str, bool]) -> None:
    """A trace that no behaviour of the spec explains is refused."""
    assert verdicts[name]


def test_traces_of_simulated_lives_are_allowed(tmp_path: Path) -> None:
    """Whatever several runners of the real machine did through crashes and lost leases, the spec allows."""
    cases = [case for seed in range(20) for case in lived(tmp_path / str(seed), seed)]
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
