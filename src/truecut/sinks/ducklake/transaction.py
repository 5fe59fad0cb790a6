"""One order inside one catalog transaction: fence, tables, cursor, commit.

A table that does not fit (TableStop) rolls everything back, and the transaction runs again with that table
held where it stands: the others of the order advance, together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import duckdb

from truecut.failpoint import failpoint
from truecut.model.cursor import CopyState
from truecut.model.order import Counts, Order, Receipt, TableOrder
from truecut.sinks import copies as states
from truecut.sinks.copies import Leaving, Refused, Stop, TableStop, foreign_table
from truecut.sinks.ducklake import write
from truecut.sinks.ducklake.cursor import CursorRow, read_cursor, remember, write_cursor
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.schema import drop_table, existing_columns
from truecut.sinks.ducklake.stage import Staged
from truecut.sinks.parts import lost


@dataclass(slots=True)
class Transaction:
    """An order with its staged rows. `stops` grows as tables turn out not to fit."""

    pipeline: str
    existing: Literal["refuse", "replace"]
    order: Order
    staged: Staged
    stops: dict[str, Stop] = field(default_factory=dict)

    def run(self, lake: Lake) -> Receipt:
        """Commit the order, or roll back and say why. May be called again after a lost race."""
        self.stops.update(self.staged.stops)
        while True:
            try:
                return self._once(lake)
            except Refused as refused:
                lake.rollback()
                return refused.receipt
            except TableStop as stop:
                lake.rollback()
                self.stops[stop.table] = (stop.code, stop.message + Leaving(self.order).way_out(stop))

    def _once(self, lake: Lake) -> Receipt:
        order = self.order
        lake.begin()
        row = self._checked_cursor(lake)
        copies: dict[str, CopyState] = {}
        counts: dict[str, Counts] = {}
        for table, wanted in order.tables.items():
            copies[table], counts[table] = self._table(lake, table, wanted, row.cursor.copies.get(table))
        failpoint("after_sink_data")
        cursor = Leaving(order).cursor(row.cursor, copies)
        row = write_cursor(lake, cursor, previous=row)
        failpoint("before_sink_commit")
        lake.commit()
        remember(lake, row)
        failpoint("after_sink_commit")
        return Receipt(order.sink, order.epoch, "applied", cursor, counts, sink_version=str(lake.snapshot))

    def _checked_cursor(self, lake: Lake) -> CursorRow:
        """The fence."""
        row = _cursor_or_none(lake, self.pipeline)
        states.check(None if row is None else row.cursor, self.order)
        assert row is not None
        return row

    def _table(
        self, lake: Lake, table: str, wanted: TableOrder, copy: CopyState | None
    ) -> tuple[CopyState, Counts]:
        leaving = Leaving(self.order)
        if wanted.kind in ("hold", "persist"):
            return leaving.unread(copy, wanted), Counts()
        if table in self.stops:
            return leaving.stopped(copy, wanted, self.stops[table]), Counts()
        if copy is None or not copy.columns:
            self._refuse_foreign(lake, table)
        elif wanted.kind == "replace" and copy.fingerprint != wanted.fingerprint:
            copy = _without_rows(lake, table, copy)
        self._refuse_lost(table)
        carry_out = {"replace": write.seed, "repair": write.repair}.get(wanted.kind, write.changes)
        state, counts = carry_out(lake, table, wanted, copy, self.staged, wanted.leaves.at)
        return leaving.written(state, wanted, counts), counts

    def _refuse_lost(self, table: str) -> None:
        """What others have staged is taken whole or not at all."""
        files = self.staged.files.get(table)
        if files is not None and files.found != files.rows:
            fault = lost(self.order, table, told=files.rows, found=files.found).fault
            raise Refused(Receipt(self.order.sink, self.order.epoch, "failed", fault=fault))

    def _refuse_foreign(self, lake: Lake, table: str) -> None:
        """A table that this pipeline did not make is replaced only where the sink's settings say so."""
        if existing_columns(lake, table) is None:
            return
        if self.existing == "refuse":
            fault = foreign_table(self.order.sink, table)
            raise Refused(Receipt(self.order.sink, self.order.epoch, "failed", fault=fault))
        drop_table(lake, table)


def _without_rows(lake: Lake, table: str, copy: CopyState) -> CopyState | None:
    """Rows of another shape, perhaps another's, do not stay beside those of the new settings."""
    if copy.mode == "mirror" or existing_columns(lake, table) is None:
        return copy
    drop_table(lake, table)
    return None


def _cursor_or_none(lake: Lake, pipeline: str) -> CursorRow | None:
    try:
        return read_cursor(lake, pipeline)
    except duckdb.CatalogException:
        return None
