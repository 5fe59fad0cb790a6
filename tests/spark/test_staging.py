"""A reading task that stages for a sink: what the sink did not take is never taken for staged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.patience import PATIENCE_S
from truecut.config.settings import SinkSettings
from truecut.sinks.contract import Packet
from truecut.sinks.parts import KeySpan, Landing, Part, StagedPlace, StagedTable
from truecut.spark.wave import packet, staging
from truecut.spark.wave.packet import Parcel
from truecut.testing.orders import order, seed


class Stalling:
    """A sink whose storage does not answer for longer than the deadline, and then goes on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def stage_part(self, order: Any, landing: Any, packets: Iterator[Packet], *, piece: int) -> Part:
        rows = 0
        for number, one in enumerate(packets):
            if number == 0:
                assert self.goes_on.wait(PATIENCE_S)
            assert one.rows is not None
            rows += one.rows.num_rows
        return Part(piece, {"main.t": StagedTable((StagedPlace("f", rows, 0, KeySpan(True)),))})


def test_a_sink_that_was_late_once_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that it did not take while it stalled are nowhere: its part says late, also if it wakes up and
    takes all that comes afterwards."""
    sink = Stalling()
    monkeypatch.setattr(staging, "open_sink", lambda *_, **__: sink)
    settings = SinkSettings("acme", "ducklake", Any, None, "refuse", {"main.t": "mirror"})  # type: ignore[arg-type]
    apart = {0: staging.Apart(order(None, 1, t=seed()), settings, Landing())}
    offered: list[int] = []

    def read() -> Iterator[Parcel]:
        for number in range(12):
            offered.append(number)
            if number == 9:  # by now the inbox was full for longer than the deadline
                sink.goes_on.set()
            yield Parcel(0, 0, packet.ROWS, number, pa.table({"id": [number]}))

    one = staging.Staging("tenants", ("main.t",), apart, piece=3, deadline_ms=200)
    (parcel,) = list(one.parcels(read()))
    assert offered == list(range(12))
    assert isinstance(parcel.content, Part)
    assert parcel.content.late
    assert parcel.content.fault is not None
    assert not parcel.content.tables
