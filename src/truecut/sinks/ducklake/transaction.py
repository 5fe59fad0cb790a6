"""One order inside one catalog transaction: fence, tables, cursor, commit.

A table that does not fit (TableStop) rolls everything back, and the transaction runs again with that table
held where it stands: the others of the order advance, together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import duckdb

from truecut.errors import Fault, Retry
from truecut.model.cursor import NOT_CARRIED_CODE, CopyState, Cursor, Hold
from truecut.model.order import Counts, Order, Receipt, TableOrder
from truecut.model.position import Position
from truecut.runtime.failpoint import failpoint
from truecut.sinks.ducklake import write
from truecut.sinks.ducklake.cursor import CursorRow, read_cursor, remember, write_cursor
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.schema import TableStop, drop_table, existing_columns
from truecut.sinks.ducklake.stage import Staged


class _Refused(Exception):
    """The order ends here without an effect; the receipt says why."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(receipt.outcome)
        self.receipt = receipt


@dataclass(slots=True)
class Transaction:
    """An order with its staged rows. `stops` grows as tables turn out not to fit: table → code, message."""

    pipeline: str
    existing: Literal["refuse", "replace"]
    order: Order
    staged: Staged
    stops: dict[str, tuple[str, str]] = field(default_factory=dict)

    def run(self, lake: Lake) -> Receipt:
        """Commit the order, or roll back and say why. May be called again after a lost race."""
        self.stops.update(self.staged.stops)
        while True:
            try:
                return self._once(lake)
            except _Refused as refused:
                lake.rollback()
                return refused.receipt
            except TableStop as stop:
                lake.rollback()
                self.stops[stop.table] = (stop.code, stop.message)

    def _once(self, lake: Lake) -> Receipt:
        order = self.order
        lake.begin()
        row = self._checked_cursor(lake)
        copies = {name: self._carried(name, copy, row.cursor) for name, copy in row.cursor.copies.items()}
        counts: dict[str, Counts] = {}
        for table, wanted in order.tables.items():
            copy, counts[table] = self._table(lake, table, wanted, row.cursor)
            # A held copy still has the shape of the settings that it was written with.
            copies[table] = copy if copy.hold else replace(copy, fingerprint=wanted.fingerprint)
        failpoint("after_sink_data")
        cursor = replace(
            row.cursor,
            position=order.upto,
            source_identity=order.source_identity,
            copies=copies,
        )
        row = write_cursor(lake, cursor, previous=row)
        failpoint("before_sink_commit")
        lake.commit()
        remember(lake, row)
        failpoint("after_sink_commit")
        return Receipt(order.sink, order.epoch, "applied", cursor, counts, sink_version=str(lake.snapshot))

    def _carried(self, table: str, copy: CopyState, cursor: Cursor) -> CopyState:
        """A table that was taken out of the pipeline does not move on with the others."""
        carried = self.order.carried
        if carried is None or table in carried or copy.hold is not None or cursor.position is None:
            return copy
        return replace(copy, hold=Hold(cursor.position, NOT_CARRIED_CODE, f"{table} left the pipeline"))

    def _checked_cursor(self, lake: Lake) -> CursorRow:
        """The fence: only the owner goes on, and only from where it believes the sink to be."""
        order = self.order
        row = _cursor_or_none(lake, self.pipeline)
        if row is None:
            raise _Refused(_failed(order, "TC4011", "its cursor is gone", "None needed; it recovers."))
        if token_differs(row, order):
            raise _Refused(fenced(order.sink, order.epoch, token=order.token, newer=row.cursor.token))
        if not position_differs(row, order):
            return row
        if row.cursor.position == order.upto:
            raise _Refused(Receipt(order.sink, order.epoch, "already", cursor=row.cursor))
        message = f"its cursor stands at {row.cursor.position}, expected {order.expected}"
        raise _Refused(_failed(order, "TC4012", message, "None needed; the cursor is read again."))

    def _table(self, lake: Lake, table: str, wanted: TableOrder, cursor: Cursor) -> tuple[CopyState, Counts]:
        copy = cursor.copies.get(table)
        if wanted.kind == "hold":
            return _held(copy, wanted, wanted.hold), Counts()
        if table in self.stops:
            hold = Hold(self._place(copy, cursor), *self.stops[table])
            return _held(copy, wanted, hold), Counts()
        if copy is not None and self._is_there(copy, wanted, cursor):
            return replace(copy, hold=None, fingerprint=wanted.fingerprint), Counts()
        if copy is None or not copy.columns:
            self._refuse_foreign(lake, table)
        carry_out = write.seed if wanted.kind == "replace" else write.changes
        state, counts = carry_out(lake, table, wanted, copy, self.staged, self.order.upto)
        return replace(state, fingerprint=wanted.fingerprint), counts

    def _is_there(self, copy: CopyState, wanted: TableOrder, cursor: Cursor) -> bool:
        """Whether the table stands at the order's end already (an order that ran twice).

        A mirror's seed is carried out again all the same: it replaces, so nothing doubles.
        """
        doubles = wanted.kind == "changes" or wanted.mode == "append"
        return doubles and copy.mode == wanted.mode and self._place(copy, cursor) == self.order.upto

    def _place(self, copy: CopyState | None, cursor: Cursor) -> Position:
        """Where the table stands: its own hold's place, or the cursor's; before everything if nowhere."""
        if copy is not None and copy.hold is not None:
            return copy.hold.at
        if copy is not None and cursor.position is not None:
            return cursor.position
        return Position(self.order.upto.generation, 0)

    def _refuse_foreign(self, lake: Lake, table: str) -> None:
        """A table that this pipeline did not make is replaced only where the sink's settings say so."""
        if existing_columns(lake, table) is None:
            return
        if self.existing == "refuse":
            fault = foreign_table(self.order.sink, table)
            raise _Refused(Receipt(self.order.sink, self.order.epoch, "failed", fault=fault))
        drop_table(lake, table)


def foreign_table(sink: str, table: str) -> Fault:
    """A table stands there that this pipeline did not make."""
    return Fault(
        "TC4013",
        f"sink {sink}: table {table} exists already and was not made by this pipeline",
        "Set `existing: replace` for this sink to overwrite it, or rename or drop it there.",
    )


def token_differs(row: CursorRow, order: Order) -> bool:
    """Whether somebody else owns the sink."""
    return row.cursor.token != order.token


def position_differs(row: CursorRow, order: Order) -> bool:
    """Whether the sink stands elsewhere than the order expects."""
    return row.cursor.position != order.expected


def fenced(sink: str, epoch: int, *, token: int, newer: int) -> Receipt:
    """The answer to whoever does not own the sink."""
    fault = Fault(
        "TC4010",
        f"sink {sink}: owned by token {newer}, ours is {token}",
        "None needed; the owner goes on.",
        Retry.FATAL,
    )
    return Receipt(sink, epoch, "failed", fault=fault, fenced_by=newer)


def _failed(order: Order, code: str, message: str, fix: str, retry: Retry = Retry.RETRYABLE) -> Receipt:
    fault = Fault(code, f"sink {order.sink}: {message}", fix, retry)
    return Receipt(order.sink, order.epoch, "failed", fault=fault)


def _held(copy: CopyState | None, wanted: TableOrder, hold: Hold | None) -> CopyState:
    if copy is None:
        return CopyState(wanted.mode, table_id="", columns=(), hold=hold, fingerprint=wanted.fingerprint)
    if wanted.kind == "replace":  # it is under these settings that the table had to stop
        return replace(copy, hold=hold, mode=wanted.mode, fingerprint=wanted.fingerprint)
    return replace(copy, hold=hold)


def _cursor_or_none(lake: Lake, pipeline: str) -> CursorRow | None:
    try:
        return read_cursor(lake, pipeline)
    except duckdb.CatalogException:
        return None
