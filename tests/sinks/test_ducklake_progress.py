"""A large order of a DuckLake sink is not late while it works, whatever DuckDB tells of its statements."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.sinks.world import applied, changes, opened, order, rows, seed, sink
from truecut import threads
from truecut.lake import parse_address
from truecut.model.change import DELETE, INSERT, READ
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import stage
from truecut.sinks.ducklake.sink import DuckLakeSink
from truecut.spark.wave.apply import _work

ROWS = 250_000
DEADLINE_S = 0.04  # of work


@dataclass
class Worked:
    """How long the thread has worked that has begun last."""

    clock: int | None = None
    began_s: float = 0.0

    def begin(self) -> None:
        """By the thread itself."""
        self.began_s = time.thread_time()
        self.clock = time.pthread_getcpuclockid(threading.get_ident())

    def now_s(self) -> float:
        return 0.0 if self.clock is None else time.clock_gettime(self.clock) - self.began_s


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Worked:
    """Deadlines go by the processor time of the thread that works: however busy the machine is, a deadline is
    so much work."""
    worked = Worked()
    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=worked.now_s))
    return worked


def test_a_large_order_is_not_late_while_it_works(
    tmp_path: Path, worked: Worked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while its rows are spilled, of which DuckDB tells nothing before it is done; not while rows are
    deleted by keys, nor in the commit."""
    monkeypatch.setattr(stage, "MEMORY_BYTES_MAX", 16 << 20)
    address = parse_address("sqlite:lake.db", "data", base=tmp_path)
    applied(sink(address).recover(epoch=1, token=1))
    applied(_carried_out(sink(address), order(None, 1, t=seed()), _many(READ, 0, ROWS), worked))
    more = [_many(DELETE, 0, ROWS // 2), _many(INSERT, ROWS, 2 * ROWS)]
    applied(_carried_out(sink(address), order(1, 2, t=changes()), pa.concat_tables(more), worked))
    with opened(address) as lake:
        found = lake.execute("SELECT count(*), min(id), max(id) FROM lake.main.t").fetchone()
    assert found == (ROWS // 2 + ROWS, ROWS // 2, 2 * ROWS - 1)


def _many(op: int, first: int, end: int) -> pa.Table:
    one = rows([(op, 2, 0, "")])
    ids = pa.array(range(first, end), pa.int64())
    values = pa.array([f"{n:0150}" for n in range(first, end)])
    table = one.take(pa.array([0] * len(ids)))
    for name, column in (("id", ids), ("value", values)):
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _carried_out(into: DuckLakeSink, wanted: Order, found: pa.Table, worked: Worked) -> Receipt:
    """As an apply task does it."""
    worked.clock = None
    work = _work(0, "acme", 1, DEADLINE_S, queue.SimpleQueue())

    def carry_out(packets: Iterator[Packet]) -> Receipt:
        worked.begin()
        return into.apply(wanted, packets)

    work.start(carry_out)
    work.offer(Packet("main.t", rows=found))
    work.offer(None)
    return work.wait()
