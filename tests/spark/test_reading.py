"""From pieces of a window to parcels: everything arrives, in order, and what goes wrong arrives, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Order
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.spark import packet
from truecut.spark.packet import Parcel, from_batches, to_batches
from truecut.spark.reading import Reading, TooMuch
from truecut.spark.route import TableRoute

TABLE = "main.events"


@dataclass(frozen=True)
class Rows:
    """A piece of a window that holds these numbers, for the tenants in turn."""

    numbers: range
    fault: Fault | None = None

    @property
    def table(self) -> TableName:
        return TableName.parse(TABLE)

    def read(self) -> Iterator[pa.RecordBatch]:
        for number in self.numbers:
            yield pa.RecordBatch.from_pydict({"n": [number], "tenant": [f"t{number % 3}"]})
        if self.fault is not None:
            raise TruecutError(
                self.fault.code, self.fault.message, fix=self.fault.fix, retry=self.fault.retry
            )


def reading(*tasks: Rows, stop_unrouted: bool = False, commit_all: bool = False) -> Reading:
    """Two sinks take the rows of t0 and t1; nobody takes those of t2."""
    how = TableRoute("tenant", (), {"t0": (0,), "t1": (1,)}, stop_unrouted=stop_unrouted)
    order = Order("s", 1, 1, None, Position(1, 1), "source", {})
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
    work = reading(*(Rows(range(n * 10, n * 10 + 10)) for n in range(20)), commit_all=True)
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
    """What arrives is what was sent: rows, faults, counts and markers."""
    fault = Fault("TC2007", "a NULL key", "Give it a key.")
    work = reading(Rows(range(10)), Rows(range(3), fault), commit_all=True)
    sent = [one for piece in range(work.pieces) for one in work.read(piece)]
    arrived = list(from_batches(to_batches(sent, 2)))
    assert told(arrived) == told(sent)
    assert [one.place for one in arrived] == [one.place for one in sent]


def test_more_than_may_be_held_is_refused() -> None:
    """Before anything is applied."""
    work = reading(Rows(range(1000)), Rows(range(1000)))
    size = sum(batch.nbytes for batch in Rows(range(1000)).read())
    assert work.read_all(bytes_max=2 * size)
    with pytest.raises(TooMuch):
        work.read_all(bytes_max=2 * size - 1)


@pytest.mark.parametrize(
    ("retry", "kind", "table"), [(Retry.RETRYABLE, packet.ABORT, -1), (Retry.NOT_RETRYABLE, packet.FAULT, 0)]
)
def test_what_cannot_be_read_reaches_every_sink(retry: Retry, kind: int, table: int) -> None:
    """A retryable fault aborts the wave, any other one stops the table; either comes before the rows."""
    fault = Fault("TC2009", "compacted", "None needed.", retry)
    parcels = reading(Rows(range(4), fault), Rows(range(4, 8))).read_all(bytes_max=1 << 20)
    for sink in (0, 1):
        first = next(one for one in parcels if one.sink == sink)
        assert (first.kind, first.table, first.content) == (kind, table, fault)


def test_rows_of_nobody_stop_the_table_where_the_pipeline_says_so() -> None:
    """They are not delivered in part."""
    parcels = reading(Rows(range(2, 3)), stop_unrouted=True).read_all(bytes_max=1 << 20)
    assert [(one.sink, one.kind) for one in parcels] == [(0, packet.FAULT), (1, packet.FAULT)]
    assert all(isinstance(one.content, Fault) and one.content.code == "TC3003" for one in parcels)
