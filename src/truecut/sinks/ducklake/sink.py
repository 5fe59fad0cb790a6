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
from typing import ClassVar, Literal

import duckdb

from truecut.errors import TruecutError
from truecut.failpoint import failpoint
from truecut.lake import LakeAddress, fault_of
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Capabilities, Packet, Sink
from truecut.sinks.copies import fenced
from truecut.sinks.ducklake.cursor import remember, take_over
from truecut.sinks.ducklake.pool import Lake, all_cores, attached, session
from truecut.sinks.ducklake.stage import Staged, stage
from truecut.sinks.ducklake.transaction import Transaction

RACES_MAX = 8  # transactions lost to others before the order is handed back
CONFLICT = "TC4006"
LOCKED = "TC4001"
PATIENCE_S, LOOK_S = 3.0, 0.05  # with a catalog file that another process has open
LARGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckLakeSink(Sink[Staged]):
    """One pipeline's part of one lake."""

    capabilities: ClassVar[Capabilities] = Capabilities()

    name: str
    pipeline: str
    address: LakeAddress
    existing: Literal["refuse", "replace"]

    def recover(self, *, epoch: int, token: int) -> Receipt:
        """Take over: create what is missing, raise the fence to `token`, report the cursor."""

        def run() -> Receipt:
            with closing(session()) as connection, attached(connection, self.address, create=True) as lake:
                return _redo_lost_races(lake, lambda: self._take_over(lake, epoch=epoch, token=token))

        return self._answer(lambda: _when_unlocked(run), epoch=epoch)

    def stage(self, order: Order, packets: Iterator[Packet]) -> Staged:
        """Take the packets into a DuckDB of this process."""
        connection = session()
        try:
            return stage(connection, order, packets)
        except (duckdb.Error, OSError) as error:
            connection.close()
            raise TruecutError.of(fault_of(error, what=f"sink {self.name}")) from error
        except BaseException:
            connection.close()
            raise

    def commit(self, order: Order, staged: Staged) -> Receipt:
        """One transaction, begun again after each lost race."""
        work = Transaction(self.pipeline, self.existing, order, staged)

        def transact() -> Receipt:
            cores = all_cores() if staged.bytes > LARGE_BYTES else nullcontext()
            with cores, attached(staged.connection, self.address) as lake:
                return _redo_lost_races(lake, lambda: work.run(lake))

        def run() -> Receipt:
            failpoint("before_sink_transaction")
            return _when_unlocked(transact)

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


def _when_unlocked(run: Callable[[], Receipt]) -> Receipt:
    """A DuckDB file is open for one process at a time: a seed and changes of one sink come to it together."""
    patience = time.monotonic() + PATIENCE_S
    while True:
        try:
            return run()
        except duckdb.Error as error:
            if fault_of(error, what="").code != LOCKED or time.monotonic() > patience:
                raise
        time.sleep(LOOK_S)


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
