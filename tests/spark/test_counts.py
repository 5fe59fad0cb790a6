"""Rows that are lost on their way are missed before anything is committed; silence proves nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from tests.sinks.memory import MemorySink, Store
from tests.spark.test_reading import NOWHERE, Piece, two_tables
from truecut.model.change import READ
from truecut.model.order import Receipt
from truecut.sinks.passage import Passage
from truecut.spark.wave import job as wave
from truecut.spark.wave import packet
from truecut.spark.wave.job import Counted, WaveJob
from truecut.spark.wave.packet import Parcel
from truecut.testing.orders import order, packets, seed

ROWS = [(READ, 4, 1, "a"), (READ, 4, 2, "b")]


def receipt_of(routed: dict[str, int]) -> tuple[Receipt, Store]:
    """Of an order to which two rows come, where so many were routed."""
    store = Store()
    sink = MemorySink(store)
    sink.recover(epoch=1, token=1)
    wanted = order(None, 4, t=seed())
    return sink.apply(wanted, packets(t=ROWS), Passage(wanted, routed)), store


def test_an_order_commits_with_every_row_that_was_routed_to_it() -> None:
    """As many as those say who read them."""
    receipt, _ = receipt_of({"main.t": 2})
    assert receipt.outcome == "applied"


@pytest.mark.parametrize("routed", [{"main.t": 3}, {"main.t": 1}, {}, {"main.t": 2, "main.u": 1}])
def test_rows_that_are_missing_or_too_many_touch_nothing(routed: dict[str, int]) -> None:
    """A dropped or doubled packet, a report without rows: a failure that is tried again."""
    receipt, store = receipt_of(routed)
    assert receipt.outcome == "failed"
    assert receipt.fault is not None
    assert receipt.fault.code == "TC5081"
    assert store.cursor is not None
    assert store.cursor.copies == {}


def applied(change: Callable[[list[Parcel]], list[Parcel]]) -> tuple[dict[str, str], list[Counted]]:
    """The outcomes of a wave whose parcels were changed on their way: sink → outcome and code."""
    work = two_tables(Piece(range(4)), Piece(range(4)))
    parcels = change(work.read_all(bytes_max=1 << 20))
    whole = WaveJob("p", work, (NOWHERE, NOWHERE), 1, 60_000)
    results = [
        (b.column(0)[0].as_py(), b.column(1)[0].as_py()) for b in wave._apply(whole, parcels, threads=1)
    ]
    receipts = [pickle.loads(payload) for sink, payload in results if sink >= 0]
    counted = [pickle.loads(payload) for sink, payload in results if sink == wave._ROUTED]
    receipts += wave._unanswered(work, receipts, counted)
    return {one.sink: one.outcome for one in receipts}, counted


def test_a_sink_without_rows_is_proved_to_have_had_none() -> None:
    """Every piece has said so."""
    outcomes, (counted,) = applied(lambda parcels: [one for one in parcels if one.kind == packet.COUNTS])
    assert counted.pieces == {0, 1}
    assert outcomes == {"s": "failed"}  # all its parcels are lost; `t` had none


def test_where_a_piece_has_not_reported_nobody_goes_on() -> None:
    """Neither who has rows nor who seems to have none."""
    outcomes, _ = applied(lambda parcels: [p for p in parcels if (p.kind, p.part) != (packet.COUNTS, 1)])
    assert outcomes == {"s": "aborted", "t": "failed"}


def test_an_answer_without_any_report_is_no_answer() -> None:
    """The task that applies has come to nothing."""
    work = two_tables(Piece(range(4)))
    assert [one.outcome for one in wave._unanswered(work, [], [])] == ["failed", "failed"]
