"""A PostgreSQL as a sink: data, cursor and fence in one transaction of the server.

Promises the contract of `truecut.sinks.contract`. An order's packets are staged in temporary tables of a
session, then one transaction of that session does everything. Whoever loses a race redoes its transaction
from the first read on; what the server refuses becomes a classified fault. A connection that is lost while
the commit is under way leaves its outcome open: the answer is a retryable fault, and the cursor tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import psycopg

from truecut.errors import Fault, TruecutError
from truecut.failpoint import failpoint
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Capabilities, Packet, Sink
from truecut.sinks.copies import fenced
from truecut.sinks.parts import Landing, Part
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.cursor import make_table, take_over
from truecut.sinks.postgres.pieces import PieceCopier, gather, sweep
from truecut.sinks.postgres.server import (
    Connection,
    begin,
    commit,
    connect,
    fault_of,
    lost_race,
    not_fit,
    rollback,
    unreachable,
)
from truecut.sinks.postgres.stage import Staged, stage
from truecut.sinks.postgres.transaction import Transaction

RACES_MAX = 8  # transactions lost to others before the order is handed back


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSink(Sink[Staged]):
    """One pipeline's part of one database."""

    capabilities: ClassVar[Capabilities] = Capabilities(stages_apart=True)

    name: str
    pipeline: str
    address: PostgresAddress
    existing: Literal["refuse", "replace"]

    def recover(self, *, epoch: int, token: int) -> Receipt:
        """Take over: create what is missing, raise the fence to `token`, report the cursor."""

        def run() -> Receipt:
            with closing(connect(self.address)) as connection:
                fault = not_fit(connection, what=f"sink {self.name}")
                if fault is not None:
                    return Receipt(self.name, epoch, "failed", fault=fault)
                return _redo_lost_races(
                    connection, lambda: self._take_over(connection, epoch=epoch, token=token)
                )

        return self._answer(run, epoch=epoch)

    def stage(self, order: Order, packets: Iterator[Packet]) -> Staged:
        """Take the packets into temporary tables of a session of its own."""
        try:
            connection = connect(self.address)
        except psycopg.Error as error:
            raise TruecutError.of(self._fault(error)) from None
        try:
            return stage(connection, order, packets)
        except psycopg.Error as error:
            connection.close()
            raise TruecutError.of(self._fault(error)) from None
        except BaseException:
            connection.close()
            raise

    def commit(self, order: Order, staged: Staged) -> Receipt:
        """One transaction, begun again after each lost race."""
        work = Transaction(self.pipeline, self.address, self.existing, order, staged)

        def transact() -> Receipt:
            failpoint("before_sink_transaction")
            return _redo_lost_races(staged.connection, work.run)

        return self._answer(transact, epoch=order.epoch)

    def landing(self, order: Order) -> Landing | None:
        """Beside the cursor, in tables that are named when they are made."""
        return Landing()

    def stage_part(self, order: Order, landing: Landing, packets: Iterator[Packet], *, piece: int) -> Part:
        """Copy into tables of this run's own."""
        try:
            with closing(connect(self.address)) as connection:
                copier = PieceCopier(connection, self.pipeline, order, piece)
                try:
                    return copier.write(packets)
                except BaseException:
                    copier.discard()
                    raise
        except psycopg.Error as error:
            raise TruecutError.of(self._fault(error)) from None

    def gather(self, order: Order, parts: Sequence[Part], stops: Mapping[str, Fault]) -> Staged:
        """The tables by name; the server compares their keys."""
        try:
            connection = connect(self.address)
        except psycopg.Error as error:
            raise TruecutError.of(self._fault(error)) from None
        try:
            return gather(connection, order, parts, stops)
        except psycopg.Error as error:
            connection.close()
            raise TruecutError.of(self._fault(error)) from None
        except BaseException:
            connection.close()
            raise

    def _take_over(self, connection: Connection, *, epoch: int, token: int) -> Receipt:
        begin(connection)
        make_table(connection)
        cursor = take_over(connection, self.pipeline, self.name, token=token)
        commit(connection)
        if cursor.token > token:
            return fenced(self.name, epoch, token=token, newer=cursor.token)
        failpoint("after_takeover")
        sweep(connection, self.pipeline, self.name, token=token)
        return Receipt(self.name, epoch, "applied", cursor=cursor)

    def _fault(self, error: psycopg.Error) -> Fault:
        return fault_of(error, self.address, what=f"sink {self.name}")

    def _answer(self, run: Callable[[], Receipt], *, epoch: int) -> Receipt:
        started = time.monotonic()
        try:
            receipt = run()
        except psycopg.Error as error:
            receipt = Receipt(self.name, epoch, "failed", fault=self._fault(error))
        except OSError:
            receipt = Receipt(self.name, epoch, "failed", fault=unreachable(f"sink {self.name}"))
        return replace(receipt, apply_ms=round((time.monotonic() - started) * 1000))


def _redo_lost_races(connection: Connection, transaction: Callable[[], Receipt]) -> Receipt:
    for _ in range(RACES_MAX - 1):
        try:
            return transaction()
        except psycopg.Error as error:
            rollback(connection)
            if not lost_race(error):
                raise
    return transaction()
