"""A DuckLake as a sink: data, cursor and fence in one catalog transaction.

Promises the contract of `truecut.sinks.contract`. An order's packets are staged locally, then the lake is
attached, then one transaction does everything. Whoever loses a race redoes its transaction from the first
read on; what DuckDB raises becomes a classified fault.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import duckdb

from truecut.errors import Fault, TruecutError
from truecut.failpoint import failpoint
from truecut.lake import LakeAddress, fault_of, reach
from truecut.lock_holder import writer_of
from truecut.model.order import Order, Receipt
from truecut.object_store import is_remote
from truecut.sinks.contract import Capabilities, Packet, Sink
from truecut.sinks.copies import fenced
from truecut.sinks.ducklake.cursor import remember, take_over
from truecut.sinks.ducklake.landing import landing_in, takes_files
from truecut.sinks.ducklake.pieces import PieceWriter, folders_of, gather, sweep
from truecut.sinks.ducklake.pool import Lake, all_cores, attached, session
from truecut.sinks.ducklake.schema import existing_columns
from truecut.sinks.ducklake.stage import Staged, stage
from truecut.sinks.ducklake.transaction import Transaction
from truecut.sinks.parts import Landing, Part

RACES_MAX = 8  # transactions lost to others before the order is handed back
CONFLICT = "TC4006"
LOCKED = "TC4001"
PATIENCE_S, LOOK_S = 3.0, 0.05  # with a catalog file that another process has open
LARGE_BYTES = 4 << 20

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckLakeSink(Sink[Staged]):
    """One pipeline's part of one lake."""

    capabilities: ClassVar[Capabilities] = Capabilities(stages_apart=True)

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
                receipt = _redo_lost_races(lake, lambda: work.run(lake))
                if staged.files and receipt.cursor is not None:
                    with suppress(duckdb.Error):  # what is left costs room and nothing else
                        sweep(lake, self.pipeline, order, folders_of(staged), receipt.cursor)
                return receipt

        def run() -> Receipt:
            failpoint("before_sink_transaction")
            return _when_unlocked(transact)

        return self._answer(run, epoch=order.epoch)

    def landing(self, order: Order) -> Landing | None:
        """The folders of the tables, if every column may stand in a file that is registered as it is."""
        wanted = [one.schema for one in order.tables.values() if one.schema is not None]
        if not all(map(takes_files, wanted)):
            return None

        def look() -> Landing | None:
            with closing(session()) as connection, attached(connection, self.address) as lake:
                return None if self._is_refused(lake, order) else landing_in(lake, order)

        try:
            return _when_unlocked(look)
        except (duckdb.Error, OSError) as error:
            raise TruecutError.of(fault_of(error, what=f"sink {self.name}")) from error

    def _is_refused(self, lake: Lake, order: Order) -> bool:
        """Whether the order will find a table of somebody else: nothing is written for it beforehand."""
        new = [table for table, wanted in order.tables.items() if wanted.expected is None]
        return self.existing == "refuse" and any(existing_columns(lake, table) is not None for table in new)

    def stage_part(self, order: Order, landing: Landing, packets: Iterator[Packet], *, piece: int) -> Part:
        """Write files into the lake's data path, which no snapshot knows yet. The lake is not opened."""
        with closing(session()) as connection:
            writer = PieceWriter(connection, self.pipeline, order, landing, piece)
            try:
                self._reach(connection, landing)
                return writer.write(packets)
            except (duckdb.Error, OSError) as error:
                writer.discard()
                raise TruecutError.of(fault_of(error, what=f"sink {self.name}")) from error

    def gather(self, order: Order, parts: Sequence[Part], stops: Mapping[str, Fault]) -> Staged:
        """The files by name; of their content, keys alone, where it is not clear that they differ."""
        connection = session()
        try:
            for part in parts:
                for table in part.tables.values():
                    self._reach(connection, Landing({place.name: place.name for place in table.places}))
            return gather(connection, order, parts, stops)
        except (duckdb.Error, OSError) as error:
            connection.close()
            raise TruecutError.of(fault_of(error, what=f"sink {self.name}")) from error
        except BaseException:
            connection.close()
            raise

    def _reach(self, connection: duckdb.DuckDBPyConnection, landing: Landing) -> None:
        remote = next((place for place in landing.places.values() if is_remote(place)), None)
        if remote is not None:
            reach(connection, self.address.data_path or remote, self.address.storage)

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
            fault = fault_of(self._with_holder(error), what=f"sink {self.name}")
            receipt = Receipt(self.name, epoch, "failed", fault=fault)
        return replace(receipt, apply_ms=round((time.monotonic() - started) * 1000))

    def _with_holder(self, error: duckdb.Error | OSError) -> duckdb.Error | OSError:
        """DuckDB names the process that has its file open; of SQLite's the machine knows who writes."""
        if self.address.kind != "sqlite" or "database is locked" not in str(error):
            return error
        writer = writer_of(Path(self.address.target.reveal()))
        named = writer is not None and writer != os.getpid()
        return duckdb.IOException(f"database is locked (PID {writer})") if named else error


def _when_unlocked(run: Callable[[], Answer]) -> Answer:
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
