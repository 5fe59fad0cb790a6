"""A DuckLake as a sink: data, cursor and fence in one catalog transaction.

Promises the contract of `truecut.sinks.contract`. An order's packets are staged locally, then the lake is
attached, then one transaction does everything. Whoever loses a race redoes its transaction from the first
read on; what DuckDB raises becomes a classified fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import duckdb

from truecut.lake import LakeAddress, fault_of
from truecut.model.order import Order, Receipt
from truecut.runtime.failpoint import failpoint
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake.cursor import remember, take_over
from truecut.sinks.ducklake.pool import Lake, all_cores, attached, session
from truecut.sinks.ducklake.stage import stage
from truecut.sinks.ducklake.transaction import Transaction, fenced

RACES_MAX = 8  # transactions lost to others before the order is handed back
CONFLICT = "TC4006"
LARGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckLakeSink:
    """One pipeline's part of one lake."""

    name: str
    pipeline: str
    address: LakeAddress
    existing: Literal["refuse", "replace"]

    def recover(self, *, epoch: int, token: int) -> Receipt:
        """Take over: create what is missing, raise the fence to `token`, report the cursor."""

        def run() -> Receipt:
            with closing(session()) as connection, attached(connection, self.address, create=True) as lake:
                return _redo_lost_races(lake, lambda: self._take_over(lake, epoch=epoch, token=token))

        return self._answer(run, epoch=epoch)

    def apply(self, order: Order, packets: Iterator[Packet]) -> Receipt:
        """Carry out an order."""

        def run() -> Receipt:
            with closing(session()) as connection:
                staged = stage(connection, order, packets)
                work = Transaction(self.pipeline, self.existing, order, staged)
                failpoint("before_sink_transaction")
                cores = all_cores() if staged.bytes > LARGE_BYTES else nullcontext()
                with cores, attached(connection, self.address) as lake:
                    return _redo_lost_races(lake, lambda: work.run(lake))

        return self._answer(run, epoch=order.epoch)

    def _take_over(self, lake: Lake, *, epoch: int, token: int) -> Receipt:
        lake.begin()
        before, row = take_over(lake, self.pipeline, token=token)
        if row.cursor.token > token:
            lake.rollback()
            return fenced(self.name, epoch, token=token, newer=row.cursor.token)
        if row == before:  # ours already
            lake.rollback()
        else:
            lake.commit()
            remember(lake, row)
            failpoint("after_takeover")
        return Receipt(self.name, epoch, "applied", cursor=row.cursor, sink_version=str(lake.snapshot))

    def _answer(self, run: Callable[[], Receipt], *, epoch: int) -> Receipt:
        started = time.monotonic()
        try:
            receipt = run()
        except (duckdb.Error, OSError) as error:
            receipt = Receipt(self.name, epoch, "failed", fault=fault_of(error, what=f"sink {self.name}"))
        return replace(receipt, apply_ms=round((time.monotonic() - started) * 1000))


def _redo_lost_races(lake: Lake, transaction: Callable[[], Receipt]) -> Receipt:
    for _ in range(RACES_MAX - 1):
        try:
            return transaction()
        except duckdb.Error as error:
            lake.rollback()
            # Whoever commits may also clean up the files that this transaction was reading.
            if fault_of(error, what="").code != CONFLICT and not lake.has_moved():
                raise
    return transaction()
