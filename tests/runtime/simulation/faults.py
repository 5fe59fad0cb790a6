"""Plausible bugs of the loop and what is around it, each as one replaced leaf. Production code knows none.

`injected(monkeypatch, name)` switches one on; the lives must then break the law that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.runtime.simulation.jobs import SimulatedJobs
from tests.runtime.simulation.sink import Sink
from truecut.core import answers, delivery
from truecut.core.state import LANES
from truecut.runtime import bulletin, pauses, runner, totals, until
from truecut.runtime.bulletin import Bulletin
from truecut.runtime.control import ControlStore
from truecut.runtime.generations import Generations
from truecut.runtime.leases import Leases
from truecut.runtime.orders import Planner
from truecut.runtime.requests import Requests
from truecut.runtime.run_report import View
from truecut.runtime.runner import Runner

Kind = Literal["storm", "hang", "limp", "edit", "unread", "stop", "relay", "gone", "again"]

_recovered = Runner._recovered
_recovery_failed = Runner._recovery_failed
_recover = Runner._recover
_carry_out = Runner._carry_out
_wave_done = Runner._wave_done
_refresh = View.refresh
_drain = Runner._drain
_obey = Requests.obey
_ask = Leases._ask
_window = Planner.window
_job = Planner.job
_told = bulletin._told
_elsewhere = Bulletin.elsewhere
_apply = Sink.apply


def _always(*_: Any, **__: Any) -> bool:
    return True


def _never(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _failure_not_told(runner: Runner, wave: Any, fault: Any) -> None:
    del runner._running[wave.id]


def _all_are_blamed(runner: Runner, wave: Any, window: Any, result: Any) -> None:
    """An abort that names no table makes all of them wait."""
    blamed = {fault.code: fault for receipt in result.receipts for fault in receipt.unread.values()}
    receipts = [
        replace(receipt, unread=dict.fromkeys(wave.tables, next(iter(blamed.values()))))
        if receipt.unread
        else receipt
        for receipt in result.receipts
    ]
    _wave_done(runner, wave, window, replace(result, receipts=receipts))


def _trouble_not_shown(view: View, state: Any, *rest: Any) -> None:
    """Only holds are shown."""
    _refresh(view, state.with_sinks({name: _untroubled(sink) for name, sink in state.sinks.items()}), *rest)


def _untroubled(sink: Any) -> Any:
    return sink.with_copies({table: replace(copy, fault=None) for table, copy in sink.copies.items()})


def _held_is_there(report: Any, sink: Any) -> Any:
    """A sink's place is believed, though a table of it is held."""
    return replace(_told(report, sink), stuck={})


def _dead_are_believed(told: Bulletin, *, but: str) -> Any:
    """As long as their leases last."""
    told._living.update(told.reports.runners)
    return _elsewhere(told, but=but)


def _slot_not_freed(runner: Runner, wave: Any, fault: Any) -> None:
    runner._carry_out(delivery.wave_failed(runner._state, wave.id, fault, **runner._time_and_chance()))


def _one_recovery_at_a_time(runner: Runner, effect: Any) -> None:
    _recover(runner, effect)
    runner._recovering.update(set(LANES))


def _all_recovered(end: Callable[..., None]) -> Callable[..., None]:
    def ended(runner: Runner, *answer: Any) -> None:
        runner._recovering.clear()
        end(runner, *answer)

    return ended


def _asked_once(leases: Leases, call: Any, then: Any, undo: Any = _nothing) -> None:
    """After a fault of the store the question stays open."""

    def failing() -> Any:
        leases._background.submit(call, answered, _nothing)

    def answered(answer: Any) -> None:
        leases._asking = False
        then(answer)

    leases._asking = True
    failing()


def _removed_when_seen(requests: Requests) -> None:
    """Accepted is taken for durable."""
    _obey(requests)
    for one in requests._waiting:
        pauses.answered(requests._folder, one)


def _seen_once(requests: Requests) -> None:
    requests._times.not_within("requests", 0 if not requests._pauses.tables else 1 << 40)
    _obey(requests)


def _pauses_taken_back(requests: Requests) -> None:
    _obey(requests)
    machine = requests._machine
    machine.become(delivery.pause(machine.state, sinks=frozenset()))
    machine.become(delivery.pause_tables(machine.state, tables=frozenset()))


def _nothing_persisted(runner: Runner, decision: Any) -> bool:
    _, effects = decision
    waves = [effect for effect in effects if isinstance(effect, delivery.RunWave)]
    if any(effect.wave.kind == "persist" for effect in waves):
        return False
    return _carry_out(runner, decision)


def _one_patience(runner: Runner, patience_ms: int) -> None:
    """What hangs uses up the time of everything that comes after it."""
    began_ms = runner.__dict__.setdefault("_leaving_ms", runner._clock.now_ms())
    _drain(runner, began_ms + 2 * runner._pipeline.batch.deadline_ms - runner._clock.now_ms())


def _ends_where_asked(planner: Planner, source: Any, wave: Any, *, parallelism: int) -> Any:
    """The window is said to reach further than it was read."""
    window = _window(planner, source, wave, parallelism=parallelism)
    return replace(window, upto=wave.upto_max)


def _of_any_source(planner: Planner, source: Any, wave: Any, *, parallelism: int) -> Any:
    """Whatever stands at the address when the window is planned is taken for what was looked at."""
    if wave.kind == "persist":
        return _window(planner, source, wave, parallelism=parallelism)
    return planner._read_window(source, wave, parallelism)


def _only_rows_commit(planner: Planner, wave: Any, window: Any, **limits: int) -> Any:
    job = _job(planner, wave, window, **limits)
    return replace(job, reading=replace(job.reading, commit_all=False))


def _tokens_of_the_store_alone(
    store: ControlStore, runner: str, sinks: Iterable[str], *, duration_ms: int, count_max: int
) -> dict[str, int]:
    with store._db.transaction(store._pipeline):
        now = store._now_ms()
        rows = store._db.run(
            "SELECT sink, token, owner, expires_ms FROM truecut_lease WHERE pipeline = ?", ("p",)
        )
        known = {row[0]: row[1:] for row in rows}
        free = [s for s in sinks if s not in known or known[s][1] is None or known[s][2] <= now]
        tokens = {s: known[s][0] + 1 if s in known else 1 for s in free[:count_max]}
        store._write_leases(runner, tokens, now + duration_ms)
    return tokens


def _acquires_whatever_comes(state: Any, tokens: Any) -> Any:
    """Also a sink that was retired while the claim was on its way."""
    return state.with_sinks(
        {
            name: replace(answers.reset(state.sinks[name]), phase="acquired", token=token)
            for name, token in tokens.items()
        }
    )


def _any_token(sink: Sink, order: Any, *rest: Any) -> Any:
    """Whoever knows where the copies stand may write."""
    return _apply(sink, replace(order, token=sink.cursor.token), *rest)


def _any_place(sink: Sink, order: Any, *rest: Any) -> Any:
    """The owner's orders are carried out wherever the copies stand."""
    tables = {table: replace(one, expected=sink._version(table)) for table, one in order.tables.items()}
    return _apply(sink, replace(order, tables=tables), *rest)


def _unread_does_not_rest(copy: Any, fault: Any, now_ms: int, _: float) -> Any:
    """A table that could not be read is tried again at once."""
    return replace(copy, failures=copy.failures + 1, retry_at_ms=now_ms, fault=fault)


def _patience_without_end(runner: Runner, _: int) -> None:
    _drain(runner, 1 << 40)


def _jobs_as_before(jobs: Any, _: Any) -> Any:
    return jobs


def _wanted_as_before(state: Any) -> Any:
    """Sinks that were taken out of the file are claimed all the same."""
    return state.sinks


# name → the law that it breaks, in which lives, and the replaced leaves
FAULTS: dict[str, tuple[str, Kind, list[tuple[Any, str, Any]]]] = {
    "observes_once": (
        "EveryCopyBecomesCurrent",
        "storm",
        [(Runner, "_observe_failed", _nothing)],
    ),
    "recovers_once": ("EveryCopyBecomesCurrent", "storm", [(Runner, "_recovery_failed", _nothing)]),
    "failure_not_told": ("EveryCopyBecomesCurrent", "storm", [(Runner, "_wave_failed", _failure_not_told)]),
    "slot_not_freed": ("OneDeadlineOnce", "hang", [(Runner, "_wave_failed", _slot_not_freed)]),
    "one_recovery_at_a_time": (
        "OneDeadlineOnce",
        "hang",
        [
            (Runner, "_recover", _one_recovery_at_a_time),
            (Runner, "_recovered", _all_recovered(_recovered)),
            (Runner, "_recovery_failed", _all_recovered(_recovery_failed)),
        ],
    ),
    "held_is_there": ("CaughtUpIsReached", "relay", [(bulletin, "_told", _held_is_there)]),
    "dead_are_believed": ("CaughtUpIsReached", "relay", [(Bulletin, "elsewhere", _dead_are_believed)]),
    "requests_not_waited_for": ("RequestsAreAnswered", "relay", [(Requests, "pending", _never)]),
    "what_is_gone_is_waited_for": ("WhatIsGoneIsNamed", "gone", [(until, "is_unreadable", _never)]),
    "told_again_counts_again": ("CountedOnce", "storm", [(totals, "_is_new", _always)]),
    "gap_of_a_reader_not_told": (
        "EveryCopyBecomesCurrent",
        "storm",
        [
            (
                runner,
                "lost_tables",
                lambda window, receipts: {str(name): window.faults[name] for name in window.lost},
            )
        ],
    ),
    "all_are_blamed": ("OthersGoOn", "unread", [(Runner, "_wave_done", _all_are_blamed)]),
    "trouble_not_shown": ("TroubleIsTold", "unread", [(View, "refresh", _trouble_not_shown)]),
    "store_asked_once": ("EveryCopyBecomesCurrent", "storm", [(Leases, "_ask", _asked_once)]),
    "request_removed_when_seen": (
        "EveryCopyBecomesCurrent",
        "storm",
        [(Requests, "obey", _removed_when_seen)],
    ),
    "pauses_seen_once": ("EveryCopyBecomesCurrent", "storm", [(Requests, "obey", _seen_once)]),
    "pauses_not_seen": ("PausedStandsStill", "storm", [(Requests, "obey", _pauses_taken_back)]),
    "nothing_persisted": ("AStopIsDurable", "storm", [(Runner, "_carry_out", _nothing_persisted)]),
    "one_patience_for_all": ("AStopIsDurable", "stop", [(Runner, "_drain", _one_patience)]),
    "window_ends_where_asked": ("Content", "storm", [(Planner, "window", _ends_where_asked)]),
    "only_rows_commit": (
        "EveryCopyBecomesCurrent|CaughtUpIsReached|Content",
        "storm",
        [(Planner, "job", _only_rows_commit)],
    ),
    "generation_not_heard": (
        "EveryCopyBecomesCurrent|CaughtUpIsReached",
        "storm",
        [(Generations, "heard", _nothing)],
    ),
    "any_token_writes": ("Fence", "storm", [(Sink, "apply", _any_token)]),
    "any_place_is_written": ("Monotone", "storm", [(Sink, "apply", _any_place)]),
    "unread_does_not_rest": ("AbortedWaits", "unread", [(answers, "_unread", _unread_does_not_rest)]),
    "patience_without_end": ("AStopEnds", "stop", [(Runner, "_drain", _patience_without_end)]),
    "everything_is_gone": ("OthersAreThere", "gone", [(until, "is_unreadable", _always)]),
    "any_source_is_read": ("Content", "storm", [(Planner, "window", _of_any_source)]),
    "retired_is_claimed": (
        "OrdersAreOfThePipeline|RetiredStandsStill",
        "edit",
        [
            (delivery.Delivery, "wanted", property(_wanted_as_before)),
            (delivery, "acquire", _acquires_whatever_comes),
        ],
    ),
    "retired_is_acquired": (
        "OrdersAreOfThePipeline|RetiredStandsStill",
        "edit",
        [(delivery, "acquire", _acquires_whatever_comes)],
    ),
    "added_not_taken_up": ("EveryCopyBecomesCurrent", "edit", [(delivery, "enlist", lambda state, _: state)]),
    "jobs_of_another_file": ("OrdersAreOfThePipeline", "edit", [(SimulatedJobs, "of", _jobs_as_before)]),
    "tokens_of_the_store_alone": (
        "TokenIsOnes|EveryCopyBecomesCurrent",
        "storm",
        [(ControlStore, "claim", _tokens_of_the_store_alone)],
    ),
}


def injected(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[str, Kind]:
    """Switch one fault on; the law that must break, and in which lives."""
    law, kind, leaves = FAULTS[name]
    for owner, leaf, broken in leaves:
        monkeypatch.setattr(owner, leaf, broken)
    return law, kind
