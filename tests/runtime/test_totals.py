"""Totals of all runs and runners: each window counts once, however often it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from truecut.config.secret import Secret
from truecut.model.position import Position
from truecut.runtime.control import ControlStore, open_control
from truecut.runtime.totals import Tally, Unrouted, Written, start_of

TABLE = "main.events"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    with closing(open_control(Secret(str(tmp_path / "control.db")), pipeline="p")) as opened:
        yield opened


def _at(place: int, generation: int = 1) -> Position:
    return Position(generation, place)


_numbers = count(1)


def _window(rows: int, after: int, upto: int) -> Tally:
    return _tally(Unrouted(TABLE, rows, _at(after), _at(upto)))


def _tally(*unrouted: Unrouted) -> Tally:
    return Tally(unrouted=unrouted, runner="r", number=next(_numbers))


def _seed(rows: int, upto: Position) -> Tally:
    return _tally(Unrouted(TABLE, rows, start_of(upto.generation), upto))


def test_a_window_that_is_read_again_counts_once(store: ControlStore) -> None:
    """By a late sink, after a crash, by another runner: the rows that no sink wanted are the same ones."""
    assert store.report_sinks({}, _window(3, 5, 10)) == {TABLE: 3}
    assert store.report_sinks({}, _window(3, 5, 10)) == {TABLE: 3}
    assert store.report_sinks({}, _window(2, 7, 9)) == {TABLE: 3}
    assert store.report_sinks({}, _window(4, 10, 12)) == {TABLE: 7}


def test_a_seed_counts_where_nothing_was_counted_before(store: ControlStore) -> None:
    """A tenant that comes later reads the same table whole: what nobody wanted was counted already. Another
    source at the same address has rows of its own."""
    assert store.report_sinks({}, _seed(3, _at(10))) == {TABLE: 3}
    assert store.report_sinks({}, _seed(3, _at(20))) == {TABLE: 3}
    assert store.report_sinks({}, _window(1, 10, 11)) == {TABLE: 4}
    assert store.report_sinks({}, _seed(5, _at(2, generation=2))) == {TABLE: 9}


def test_rows_written_add_up_over_runners(store: ControlStore) -> None:
    """Each tells what is new; the total is that of all."""
    for runner, number, rows in (("r", 1, Written(10, 10)), ("other", 1, Written(2)), ("r", 2, Written(3))):
        store.report_sinks({}, Tally({("s", TABLE): rows}, runner=runner, number=number))
    totals = store.reports().totals
    assert totals.written == {("s", TABLE): Written(15, 10)}
    assert totals.by_sink() == {"s": 15}


def test_what_is_told_again_counts_once(store: ControlStore) -> None:
    """The store's answer was lost, so nobody knows whether it has taken it: the same number is the same
    tally. Who has signed off is forgotten, so that the store does not grow; who has not is remembered."""
    for runner in ("r", "s"):
        for number in (1, 1, 2, 2):
            store.report_sinks({}, Tally({("s", TABLE): Written(5)}, runner=runner, number=number))
    assert store.reports().totals.by_sink() == {"s": 20}
    store.leave("r")
    store.report_sinks({}, Tally({("s", TABLE): Written(5)}, runner="s", number=2))
    assert store.reports().totals.by_sink() == {"s": 20}
    with store._db.transaction("p"):
        assert store._db.run("SELECT runner FROM truecut_tally WHERE pipeline = ?", ("p",)) == [("s",)]


def test_the_head_outlives_the_runner_that_saw_it(store: ControlStore) -> None:
    """The last one that has seen the source is remembered, and nobody else: the store does not grow."""
    for number in range(3):
        report = {"head": f"head {number}", "seen_at_ms": number + 1, "observed_at_ms": number + 1}
        store.heartbeat(f"run-{number}", duration_ms=60_000, report=report)
        store.leave(f"run-{number}")
    store.heartbeat("blind", duration_ms=60_000, report={"head": None, "seen_at_ms": None})
    store.leave("blind")
    reports = store.reports()
    assert (reports.running, reports.runners, reports.last["head"]) == (False, {}, "head 2")
    with store._db.transaction("p"):
        rows = store._db.run("SELECT runner FROM truecut_runner WHERE pipeline = ? ORDER BY 1", ("p",))
    assert rows == [("blind",), ("run-2",)]
