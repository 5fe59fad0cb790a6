"""Deadlines are measured by progress: who works is not late, who hangs is, and what is left behind ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from duckdb.func import PythonUDFType

from tests.e2e.world import eventually
from tests.patience import PATIENCE_S
from truecut import pulse, threads
from truecut.lake import connect
from truecut.model.change import INSERT, OP
from truecut.model.order import Order, Receipt
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sinks.contract import Packet
from truecut.sources.contract import Rows
from truecut.spark.wave import packet
from truecut.spark.wave.apply import _work
from truecut.spark.wave.reading import Reading
from truecut.spark.wave.route import TableRoute
from truecut.threads import Late, within

DEADLINE_S = 4.0
ROWS = 5_000_000  # some 2,400 vectors, in groups of 60
TABLE = "main.events"
OK = Receipt("s", 1, "applied")


def _answer(action: Callable[[Iterator[Packet]], Receipt], *, sink: str = "s", deadline_s: float) -> Receipt:
    """What comes of a sink's work that gets no packets."""
    work = _work(0, sink, 1, deadline_s, queue.SimpleQueue())
    work.start(action)
    work.offer(None)
    return work.wait()


def _slowly(rows: pa.ChunkedArray) -> pa.ChunkedArray:
    time.sleep(0.003)
    return rows


def test_a_statement_that_moves_is_not_late() -> None:
    """A huge transaction takes as long as it takes: by sleeping, longer than a deadline on any machine."""
    with connect() as connection:
        connection.execute(f"CREATE TABLE big AS SELECT i FROM range({ROWS}) r(i)")
        connection.create_function("slowly", _slowly, ["BIGINT"], "BIGINT", type=PythonUDFType.ARROW)
        connection.execute("SELECT slowly(1)").fetchall()  # the first call imports what it needs
        rows: list[object] = []
        ended = threading.Event()

        def work(_: Iterator[Packet]) -> Receipt:
            pulse.watch(connection)
            try:
                rows.extend(connection.execute("SELECT sum(slowly(i)) FROM big").fetchall())
            finally:
                ended.set()
            return OK

        receipt = _answer(work, deadline_s=DEADLINE_S)
        eventually(ended.is_set, what="it has ended, in time or not")
    assert (receipt.outcome, rows) == ("applied", [(ROWS * (ROWS - 1) // 2,)])


def test_each_statement_of_an_order_is_progress() -> None:
    """Many small ones that together take longer than a deadline."""

    def work(packets: Iterator[Packet]) -> Receipt:
        for _ in range(40):
            time.sleep(0.1)
            pulse.beat()
        return OK

    assert _answer(work, deadline_s=3.0).outcome == "applied"


def test_a_sink_that_waits_for_packets_ends_with_its_task() -> None:
    """Nobody feeds it any more: it rolls back instead of waiting for ever."""
    ended = threading.Event()

    def work(packets: Iterator[Packet]) -> Receipt:
        try:
            return Receipt("s", len(list(packets)), "applied")
        finally:
            ended.set()

    attempt = _work(0, "s", 1, 60.0, queue.SimpleQueue())
    attempt.start(work)
    attempt.abandon()
    assert ended.wait(PATIENCE_S)


def _at_work(rows: pa.ChunkedArray) -> pa.ChunkedArray:
    """Most of the time it has no processor, as on a busy machine."""
    time.sleep(0.01)
    until_s = time.thread_time() + 0.002
    while time.thread_time() < until_s:
        pass
    return rows


def test_a_statement_that_works_is_not_late_though_nobody_knows_how_far_it_is() -> None:
    """DuckDB tells nothing of a statement that takes in rows from outside, nor of a commit."""
    with connect() as connection:
        connection.create_function("at_work", _at_work, ["BIGINT"], "BIGINT", type=PythonUDFType.ARROW)
        connection.execute("SELECT at_work(1)").fetchall()

        def work(_: Iterator[Packet]) -> Receipt:
            pulse.watch(connection)
            connection.execute("SET enable_progress_bar = false")
            connection.execute("SELECT sum(at_work(i)) FROM range(600_000) r(i)").fetchall()
            return OK

        assert _answer(work, deadline_s=2.0).outcome == "applied"


def _hanging(rows: pa.ChunkedArray) -> pa.ChunkedArray:
    time.sleep(0.5)
    return rows


def test_a_statement_that_is_left_behind_is_interrupted() -> None:
    """It waits, and would for days, for nobody. And no other one is begun."""
    ended: list[str] = []
    with connect() as connection:
        connection.create_function("hanging", _hanging, ["BIGINT"], "BIGINT", type=PythonUDFType.ARROW)
        connection.execute("SELECT hanging(1)").fetchall()  # the first call imports what it needs

        def rows() -> Iterator[object]:
            pulse.watch(connection)
            connection.execute("SET enable_progress_bar = false")  # nobody knows how far it is
            try:
                yield connection.execute("SELECT sum(hanging(i)) FROM range(10_000_000_000) r(i)").fetchall()
            except duckdb.InterruptException:
                ended.append("interrupted")
            try:
                pulse.beat()
            except pulse.LeftBehind:
                ended.append("left behind")

        with pytest.raises(Late):
            list(within("s", rows, deadline_s=2.0))
        eventually(lambda: len(ended) == 2, what="its thread is free again")
    assert ended == ["interrupted", "left behind"]


# --- what hangs ---------------------------------------------------------------------------------------


def test_attempts_that_hang_are_bounded_and_told() -> None:
    """A few hang, then the sink is refused at once with the reason; others are not. When they come back, so
    does the sink."""
    free = threading.Event()

    def hang(_: Iterator[Packet]) -> Receipt:
        free.wait(PATIENCE_S)
        return OK

    outcomes = [_answer(hang, sink="hung", deadline_s=0.2).outcome for _ in range(threads.OWN_MAX)]
    refused = _answer(hang, sink="hung", deadline_s=0.2)
    well = _answer(lambda _: OK, sink="well", deadline_s=60)
    free.set()
    assert outcomes == ["late"] * threads.OWN_MAX
    assert (refused.outcome, refused.fault and refused.fault.code) == ("failed", "TC5024")
    assert well.outcome == "applied"
    eventually(
        lambda: _answer(lambda _: OK, sink="hung", deadline_s=60).outcome == "applied", what="it comes back"
    )


@dataclass(frozen=True)
class Hung:
    """A source whose server says nothing, after so many batches."""

    free: threading.Event
    batches: int

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (TableName.parse(TABLE),)

    def read(self) -> Iterator[Rows]:
        for _ in range(self.batches):
            yield Rows(self.tables[0], pa.RecordBatch.from_pydict({OP: [INSERT], "n": [1]}))
        self.free.wait(PATIENCE_S)


@pytest.mark.parametrize("batches", [0, 3])
def test_a_source_that_hangs_aborts_the_window(batches: int) -> None:
    """No sink is touched: each gets the reason, before anything else of the window."""
    free = threading.Event()
    orders = tuple(Order(f"t{n}", 1, 1, Position(1, 1), "source", {}) for n in range(2))
    reading = Reading((Hung(free, batches),), (TABLE,), (TableRoute(None, (0, 1), {}),), orders)
    try:
        parcels = reading.read_all(bytes_max=1 << 20, deadline_ms=300)
    finally:
        free.set()
    first = {parcel.sink: parcel for parcel in reversed(parcels) if parcel.kind != packet.COUNTS}
    assert [(n, one.kind, getattr(one.content, "code", None)) for n, one in sorted(first.items())] == [
        (0, packet.ABORT, "TC3041"),
        (1, packet.ABORT, "TC3041"),
    ]
