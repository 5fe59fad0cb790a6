"""From pieces of a window to parcels: everything arrives, in order, and what goes wrong arrives, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from truecut.config.settings import SinkSettings
from truecut.errors import Fault, Retry, TruecutError
from truecut.lake import parse_address
from truecut.model.change import INSERT, OP, TRANSACTION, TRUNCATE, UNCHANGED
from truecut.model.order import Order
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import Rows
from truecut.spark.wave import packet
from truecut.spark.wave.apply import Attempt, run_attempts
from truecut.spark.wave.packet import Parcel, from_batches, to_batches
from truecut.spark.wave.reading import Reading, TooMuch
from truecut.spark.wave.route import TableRoute

TABLE = "main.events"
OTHER = "main.other"
NOWHERE = SinkSettings(
    "s", "ducklake", parse_address("nowhere.ducklake", None, base=Path("/")), None, "refuse", {}
)


@dataclass(frozen=True)
class Piece:
    """A piece of a window that holds these numbers, for the tenants in turn."""

    numbers: range
    fault: Fault | None = None
    name: str = TABLE

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (TableName.parse(self.name),)

    def read(self) -> Iterator[Rows]:
        for number in self.numbers:
            batch = pa.RecordBatch.from_pydict({OP: [INSERT], "n": [number], "tenant": [f"t{number % 3}"]})
            yield Rows(self.tables[0], batch)
        if self.fault is not None:
            raise TruecutError(
                self.fault.code, self.fault.message, fix=self.fault.fix, retry=self.fault.retry
            )


def reading(*tasks: Piece, stop_unrouted: bool = False, commit_all: bool = False) -> Reading:
    """Two sinks take the rows of t0 and t1; nobody takes those of t2."""
    how = TableRoute("tenant", (), {"t0": (0,), "t1": (1,)}, stop_unrouted=stop_unrouted)
    order = Order("s", 1, 1, Position(1, 1), "source", {})
    return Reading(tasks, (TABLE,), (how,), (order, order), commit_all)


def told(parcels: list[Parcel]) -> list[tuple[int, int, object]]:
    """Sink, kind and content, with rows as their numbers."""
    return [
        (
            one.sink,
            one.kind,
            one.content.column("n").to_pylist() if isinstance(one.content, pa.Table) else one.content,
        )
        for one in parcels
    ]


def test_everything_at_once_is_the_pieces_in_order() -> None:
    """By sink, then in the order of the window, whichever thread was first."""
    work = reading(*(Piece(range(n * 10, n * 10 + 10)) for n in range(20)), commit_all=True)
    expected = sorted(
        (one for piece in range(work.pieces) for one in work.read(piece)), key=lambda one: one.place
    )
    at_once = work.read_all(bytes_max=1 << 20)
    assert told(at_once) == told(expected)
    for sink in (0, 1):
        mine = [one.content for one in at_once if one.sink == sink and one.kind == packet.ROWS]
        numbers = [n for rows in mine if isinstance(rows, pa.Table) for n in rows.column("n").to_pylist()]
        assert numbers == [n for n in range(200) if n % 3 == sink]
    assert sum(one.content for one in at_once if isinstance(one.content, int)) == 66
    assert [one.sink for one in at_once if one.kind == packet.MARKER] == [0, 1]


def test_parcels_survive_the_journey_through_spark() -> None:
    """What arrives is what was sent: rows, faults, counts and markers; what every piece has counted arrives
    at each task that applies."""
    fault = Fault("TC2007", "a NULL key", "Give it a key.")
    work = reading(Piece(range(10)), Piece(range(3), fault), commit_all=True)
    sent = [one for piece in range(work.pieces) for one in work.read(piece)]
    arrived = list(from_batches(to_batches(sent, 2)))
    twice = [one for one in sent for _ in range(2 if one.kind == packet.COUNTS else 1)]
    assert told(arrived) == told(twice)
    assert [one.place for one in arrived] == [one.place for one in twice]


def test_more_than_may_be_held_is_refused() -> None:
    """Before anything is applied."""
    work = reading(Piece(range(1000)), Piece(range(1000)))
    size = sum(batch.nbytes for _, batch in Piece(range(1000)).read())
    assert work.read_all(bytes_max=2 * size)
    with pytest.raises(TooMuch):
        work.read_all(bytes_max=2 * size - 1)


@pytest.mark.parametrize(
    ("retry", "kind", "table"), [(Retry.RETRYABLE, packet.ABORT, -1), (Retry.NOT_RETRYABLE, packet.FAULT, 0)]
)
def test_what_cannot_be_read_reaches_every_sink(retry: Retry, kind: int, table: int) -> None:
    """A retryable fault aborts the wave, any other one stops the table; either comes before the rows."""
    fault = Fault("TC2009", "compacted", "None needed.", retry)
    parcels = reading(Piece(range(4), fault), Piece(range(4, 8))).read_all(bytes_max=1 << 20)
    for sink in (0, 1):
        first = next(one for one in parcels if one.sink == sink)
        assert (first.kind, first.table, first.content) == (kind, table, fault)


def two_tables(*tasks: Piece) -> Reading:
    """One sink for each of two tables."""
    everything = [TableRoute(None, (sink,), {}, all_wanted=True) for sink in (0, 1)]
    orders = tuple(Order(name, 1, 1, Position(1, 1), "source", {}) for name in ("s", "t"))
    return Reading(tasks, (TABLE, OTHER), tuple(everything), orders)


def test_a_window_that_cannot_be_read_is_nobodys_and_names_its_tables() -> None:
    """Also a sink that lacks only what could be read gets none of it; each table that could not is told."""
    fault = Fault("TC2012", "gone", "None needed.", Retry.RETRYABLE)
    parts = two_tables(Piece(range(4)), Piece(range(4), fault, OTHER)).read_all(bytes_max=1 << 20)
    attempts = (
        Attempt(sink, order, NOWHERE, "p", (TABLE, OTHER), iter([p for p in parts if p.sink == sink]))
        for sink, order in enumerate(two_tables().orders)
    )
    receipts = dict(run_attempts(attempts, threads=2, deadline_ms=60_000))
    assert [receipts[sink].outcome for sink in (0, 1)] == ["aborted", "aborted"]
    assert [receipts[sink].unread for sink in (0, 1)] == [{OTHER: fault}] * 2


def test_every_table_that_cannot_be_read_is_told() -> None:
    """Two of them: the receipt has both."""
    fault = Fault("TC2012", "gone", "None needed.", Retry.RETRYABLE)
    work = two_tables(Piece(range(4), fault), Piece(range(4), fault, OTHER))
    mine = [one for one in work.read_all(bytes_max=1 << 20) if one.sink == 0]
    attempt = Attempt(0, work.orders[0], NOWHERE, "p", (TABLE, OTHER), iter(mine))
    ((_, receipt),) = run_attempts([attempt], threads=1, deadline_ms=60_000)
    assert receipt.unread == {TABLE: fault, OTHER: fault}


def test_what_holds_one_table_is_no_reason_to_leave_another_unread() -> None:
    """A window that is aborted for one table and would hold another: the first table had no trouble."""
    passing = Fault("TC2012", "gone", "None needed.", Retry.RETRYABLE)
    lasting = Fault("TC2007", "a NULL key", "Give it a key.")
    third = "main.third"
    tasks = (Piece(range(4)), Piece(range(4), passing, OTHER), Piece(range(4), lasting, third))
    everything = TableRoute(None, (0,), {}, all_wanted=True)
    order = Order("s", 1, 1, Position(1, 1), "source", {})
    work = Reading(tasks, (TABLE, OTHER, third), (everything,) * 3, (order,))
    mine = [one for one in work.read_all(bytes_max=1 << 20) if one.sink == 0]
    attempt = Attempt(0, order, NOWHERE, "p", work.tables, iter(mine))
    ((_, receipt),) = run_attempts([attempt], threads=1, deadline_ms=60_000)
    assert (receipt.outcome, receipt.unread) == ("aborted", {OTHER: passing})


def test_a_gap_that_a_reader_finds_is_no_hold() -> None:
    """The machine decides what a table does that cannot be read from where it stands."""
    fault = Fault("TC2010", "gone", "None needed.", Retry.GAP)
    parcels = reading(Piece(range(4), fault)).read_all(bytes_max=1 << 20)
    assert [one.kind for one in parcels if one.content == fault] == [packet.ABORT] * 2


def test_rows_of_nobody_stop_the_table_where_the_pipeline_says_so() -> None:
    """They are not delivered in part."""
    found = reading(Piece(range(2, 3)), stop_unrouted=True).read_all(bytes_max=1 << 20)
    parcels = [one for one in found if one.kind != packet.COUNTS]
    assert [(one.sink, one.kind) for one in parcels] == [(0, packet.FAULT), (1, packet.FAULT)]
    assert all(isinstance(one.content, Fault) and one.content.code == "TC3003" for one in parcels)


@dataclass(frozen=True)
class Events(Piece):
    """A row, one with a value that was not sent, a truncate, one whose transaction has a name."""

    def read(self) -> Iterator[Rows]:
        row = {OP: [INSERT], "n": [0], "tenant": ["t0"]}
        absent = {**row, "n": pa.array([None], pa.int64()), UNCHANGED: [["n"]]}
        truncate = {
            OP: [TRUNCATE],
            "n": pa.array([None], pa.int64()),
            "tenant": pa.array([None], pa.string()),
        }
        for found in (row, absent, truncate, {**row, TRANSACTION: ["501"]}):
            yield Rows(self.tables[0], pa.RecordBatch.from_pydict(found))


def test_events_travel_with_what_they_have_beside_their_rows() -> None:
    """Batches that have an optional column and some that have not, in one packet; a truncate reaches the sink
    that has no rows, too, and is nobody's unrouted row."""
    sent = list(reading(Events(range(0)), stop_unrouted=True).read(0))
    arrived = list(from_batches(to_batches(sent, 2)))
    found = {
        sink: [row for one in arrived if one.sink == sink for row in one.content.to_pylist()]  # type: ignore[union-attr]
        for sink in (0, 1)
    }
    truncate = {OP: TRUNCATE, "n": None, "tenant": None, UNCHANGED: None, TRANSACTION: None}
    row = {OP: INSERT, "n": 0, "tenant": "t0", UNCHANGED: None, TRANSACTION: None}
    assert found == {
        0: [truncate, row, {**row, "n": None, UNCHANGED: ["n"]}, {**row, TRANSACTION: "501"}],
        1: [truncate],
    }


@dataclass(frozen=True)
class Transaction:
    """A piece that gives rows of two tables in turn, as a journal does."""

    fault: Fault | None = None

    @property
    def tables(self) -> tuple[TableName, ...]:
        return TableName.parse(TABLE), TableName.parse("main.other")

    def read(self) -> Iterator[Rows]:
        for number in range(6):
            batch = pa.RecordBatch.from_pydict({OP: [INSERT], "n": [number], "tenant": ["t0"]})
            yield Rows(self.tables[number % 2], batch)
        if self.fault is not None:
            raise TruecutError.of(self.fault)


def of_two_tables(task: Transaction) -> list[Parcel]:
    """What it gives to one sink that takes everything."""
    everything = TableRoute(None, (0,), {}, all_wanted=True)
    order = Order("s", 1, 1, Position(1, 1), "source", {})
    work = Reading((task,), (TABLE, "main.other"), (everything, everything), (order,))
    return [one for one in work.read_all(bytes_max=1 << 20) if one.kind != packet.COUNTS]


def test_a_piece_may_hold_rows_of_several_tables() -> None:
    """Each batch goes with its own table, in its order; packets come table by table."""
    parcels = of_two_tables(Transaction())
    assert [one.table for one in parcels] == [0, 1]
    assert [content for _, _, content in told(parcels)] == [[0, 2, 4], [1, 3, 5]]


def test_a_piece_that_cannot_be_read_stops_all_its_tables() -> None:
    """Nobody knows whose rows are missing: a fault of each table comes before its rows."""
    fault = Fault("TC2007", "a NULL key", "Give it a key.")
    parcels = of_two_tables(Transaction(fault))
    firsts = {one.table: one.content for one in reversed(parcels)}
    assert firsts == {0: fault, 1: fault}
