"""One order inside one transaction of the sink: its tables' locks, data, fence, cursor, commit.

Orders for one table wait for each other (a lock of its name); orders for different tables do not, and neither
does a takeover: the cursor's row is locked last, for the moment of the commit. A table that does not fit goes
back to its own savepoint and is held where it stands; the others of the order advance, together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from psycopg import errors

from truecut.failpoint import failpoint
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Counts, Order, Receipt, TableOrder
from truecut.sinks import copies as states
from truecut.sinks.copies import Leaving, Refused, Stop, TableStop, foreign_table
from truecut.sinks.parts import lost
from truecut.sinks.postgres import write
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.cursor import read_cursor, write_cursor
from truecut.sinks.postgres.rows import about_rows
from truecut.sinks.postgres.schema import Place, drop_table, exists
from truecut.sinks.postgres.server import begin, commit, rollback, run
from truecut.sinks.postgres.stage import Staged, drop_places

_LOCK = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"

# What somebody has put off to the commit would stop the whole order there, and not this table alone.
_CHECK_NOW = "SET CONSTRAINTS ALL IMMEDIATE"


@dataclass(slots=True)
class Transaction:
    """An order with its staged rows. `stops` grows as tables turn out not to fit."""

    pipeline: str
    address: PostgresAddress
    existing: Literal["refuse", "replace"]
    order: Order
    staged: Staged
    stops: dict[str, Stop] = field(default_factory=dict)

    def run(self) -> Receipt:
        """Commit the order, or roll back and say why. May be called again after a lost race."""
        self.stops = dict(self.staged.stops)
        try:
            return self._once()
        except Refused as refused:
            rollback(self.staged.connection)
            return refused.receipt

    def _once(self) -> Receipt:
        order, connection = self.order, self.staged.connection
        begin(connection)
        lock_tables(self)
        before = self._checked()
        copies: dict[str, CopyState] = {}
        counts: dict[str, Counts] = {}
        for table, wanted in order.tables.items():
            copies[table], counts[table] = self._table(table, wanted, before.copies.get(table))
        drop_places(connection, self.staged.places)
        failpoint("after_sink_data")
        cursor = Leaving(order).cursor(self._checked(locked=True), copies)
        version = write_cursor(connection, self.pipeline, order.sink, cursor)
        failpoint("before_sink_commit")
        commit(connection)
        failpoint("after_sink_commit")
        return Receipt(order.sink, order.epoch, "applied", cursor, counts, sink_version=version)

    def _checked(self, *, locked: bool = False) -> Cursor:
        """The fence, looked at before the work and, for good, after it."""
        found = read_cursor(self.staged.connection, self.pipeline, self.order.sink, locked=locked)
        return states.check(found, self.order)

    def _table(self, table: str, wanted: TableOrder, copy: CopyState | None) -> tuple[CopyState, Counts]:
        leaving = Leaving(self.order)
        if wanted.kind in ("hold", "persist"):
            return leaving.unread(copy, wanted), Counts()
        if table not in self.stops:
            run(self.staged.connection, "SAVEPOINT table_begun")
            try:
                with about_rows(table):
                    state, counts = self._write(Place(table, self.address.table(table)), wanted, copy)
                    run(self.staged.connection, _CHECK_NOW)
                return leaving.written(state, wanted, counts), counts
            except TableStop as stop:
                run(self.staged.connection, "ROLLBACK TO SAVEPOINT table_begun")
                self.stops[table] = (stop.code, stop.message + leaving.way_out(stop))
        return leaving.stopped(copy, wanted, self.stops[table]), Counts()

    def _write(self, place: Place, wanted: TableOrder, copy: CopyState | None) -> write.Written:
        if copy is None or not copy.columns:
            self._refuse_foreign(place)
        elif wanted.kind == "replace" and copy.fingerprint != wanted.fingerprint:
            copy = self._without_rows(place, copy)
        carry_out = {"replace": write.seed, "repair": write.repair}.get(wanted.kind, write.changes)
        if place.table not in self.staged.told:
            return carry_out(place, wanted, copy, self.staged)
        try:
            state, counts = carry_out(place, wanted, copy, self.staged)
        except errors.UndefinedTable:  # a place of staging, which somebody has removed
            counts = Counts()
        if counts.puts != self.staged.told[place.table]:
            raise self._lost(place.table, found=counts.puts)
        return state, counts

    def _lost(self, table: str, *, found: int) -> Refused:
        order = self.order
        fault = lost(order, table, told=self.staged.told[table], found=found).fault
        return Refused(Receipt(order.sink, order.epoch, "failed", fault=fault))

    def _refuse_foreign(self, place: Place) -> None:
        """A table that this pipeline did not make is replaced only where the sink's settings say so."""
        if not exists(self.staged.connection, place):
            return
        if self.existing == "refuse":
            fault = foreign_table(self.order.sink, place.table)
            raise Refused(Receipt(self.order.sink, self.order.epoch, "failed", fault=fault))
        drop_table(self.staged.connection, place)

    def _without_rows(self, place: Place, copy: CopyState) -> CopyState | None:
        """Rows of another shape, perhaps another's, do not stay beside those of the new settings."""
        if copy.mode == "mirror" or not exists(self.staged.connection, place):
            return copy
        drop_table(self.staged.connection, place)
        return None


def lock_tables(transaction: Transaction) -> None:
    """One order at a time for each table at the sink; always in the same sequence, so that none wait in a
    circle."""
    names = (str(transaction.address.table(table)) for table in transaction.order.tables)
    run(transaction.staged.connection, _LOCK, (sorted(map(_lock_key, names)),))


def _lock_key(name: str) -> int:
    digest = hashlib.blake2b(f"truecut table {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
