"""What an order makes of a sink's copies, whatever the sink: who may write, and the states it leaves.

Pure: a sink reads its cursor, asks here, writes rows, and stores what comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

from truecut.certificate.chain import chained
from truecut.errors import Fault, Retry
from truecut.model.cursor import SHAPE_CODES, CopyState, Cursor, Hold, Version
from truecut.model.order import Counts, Order, Receipt, TableOrder
from truecut.model.position import Position, SourcePosition

Stop = tuple[str, str]  # code and message
_STANDING = ("replace", "repair")  # orders that do not follow the source from where a copy stood


class TableStop(Exception):
    """This table cannot go on; the others of the order can."""

    def __init__(self, table: str, code: str, message: str) -> None:
        super().__init__(message)
        self.table, self.code, self.message = table, code, message

    @property
    def stop(self) -> Stop:
        """Without its table."""
        return self.code, self.message


class Refused(Exception):
    """The order ends here without an effect; the receipt says why."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(receipt.outcome)
        self.receipt = receipt


# --- the fence ----------------------------------------------------------------------------------------


def check(cursor: Cursor | None, order: Order) -> Cursor:
    """Only the owner goes on, and only if every copy is as it believes it to be; otherwise Refused."""
    if cursor is None:
        raise Refused(failed(order, "TC4011", "its cursor is gone", "None needed; it recovers."))
    if token_differs(cursor, order):
        raise Refused(fenced(order.sink, order.epoch, token=order.token, newer=cursor.token))
    elsewhere = [table for table in order.tables if version_differs(cursor, order, table)]
    if not elsewhere:
        return cursor
    if all(wanted.is_done(_version(cursor, table)) for table, wanted in order.tables.items()):
        raise Refused(Receipt(order.sink, order.epoch, "already", cursor=cursor))
    table = elsewhere[0]
    message = (
        f"{table} stands at {_told(_version(cursor, table))}, expected {_told(order.tables[table].expected)}"
    )
    raise Refused(failed(order, "TC4012", message, "None needed; the cursor is read again."))


def token_differs(cursor: Cursor, order: Order) -> bool:
    """Whether somebody else owns the sink."""
    return cursor.token != order.token


def version_differs(cursor: Cursor, order: Order, table: str) -> bool:
    """Whether the copy is not what the order expects."""
    return _version(cursor, table) != order.tables[table].expected


def _version(cursor: Cursor, table: str) -> Version | None:
    copy = cursor.copies.get(table)
    return None if copy is None else copy.version


def _told(version: Version | None) -> str:
    if version is None:
        return "nothing"
    held = "" if version.hold is None else f", held for {version.hold}"
    return f"{version.at} of edition {version.edition}{held}"


def fenced(sink: str, epoch: int, *, token: int, newer: int) -> Receipt:
    """The answer to whoever does not own the sink."""
    fault = Fault(
        "TC4010",
        f"sink {sink}: owned by token {newer}, ours is {token}",
        "None needed; the owner goes on.",
        Retry.FATAL,
    )
    return Receipt(sink, epoch, "failed", fault=fault, fenced_by=newer)


def failed(order: Order, code: str, message: str, fix: str, retry: Retry = Retry.RETRYABLE) -> Receipt:
    """The answer to an order that has no effect now."""
    fault = Fault(code, f"sink {order.sink}: {message}", fix, retry)
    return Receipt(order.sink, order.epoch, "failed", fault=fault)


def foreign_table(sink: str, table: str) -> Fault:
    """A table stands there that this pipeline did not make."""
    return Fault(
        "TC4013",
        f"sink {sink}: table {table} exists already and was not made by this pipeline",
        "Set `existing: replace` for this sink to overwrite it, or rename or drop it there.",
    )


NO_TABLE = "no table stands in its place"  # a view shows what its maker likes


def apart(wanted: Iterable[tuple[str, str]], there: Mapping[str, str] | None) -> str | None:
    """How a table's columns (name and type, as the sink spells them) are not those that we gave it. Columns
    that somebody has added are theirs."""
    if there is None:
        return "its table is not there"
    for name, kind in wanted:
        if name not in there:
            return f"column {name} is not there"
        if there[name] != kind:
            return f"column {name} is {there[name]}, and was made {kind}"
    return None


# --- the states that an order leaves ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaving:
    """What becomes of one order's copies."""

    order: Order

    def written(self, state: CopyState, wanted: TableOrder, counts: Counts) -> CopyState:
        """Its rows are there; `state` has their shape, and the chain of what they stand beside."""
        identity = self.order.source_identity
        state = replace(state, fingerprint=wanted.fingerprint, source_identity=identity, hold=None)
        state = replace(state, evidence=_head_after(state, wanted, counts))
        return _at(state, wanted.leaves, wanted.source_position)

    def unread(self, copy: CopyState | None, wanted: TableOrder) -> CopyState:
        """No rows: the copy's place, hold and requests are told. It still has the shape that it had."""
        copy = replace(copy or self._empty(wanted), hold=wanted.hold)
        return _at(copy, wanted.leaves, wanted.source_position)

    def stopped(self, copy: CopyState | None, wanted: TableOrder, stop: Stop) -> CopyState:
        """The table does not fit: it stays where and as it was, with the shape that its rows have. A repair
        is refused: what follows the source goes on as it was."""
        if wanted.kind == "repair":
            raise Refused(failed(self.order, *stop, "Verify again.", Retry.NOT_RETRYABLE))
        copy = replace(copy or self._empty(wanted), hold=Hold(*stop))
        return _at(copy, wanted.stopped(stop[0]), copy.source_position)

    def way_out(self, stop: TableStop) -> str:
        """A seed adds to an append table: one whose columns do not fit has to make room for another."""
        if self.order.tables[stop.table].mode != "append" or stop.code not in SHAPE_CODES:
            return ""
        return " (an append table: rename or drop it at the sink first, then resume it)"

    def cursor(self, before: Cursor, copies: dict[str, CopyState]) -> Cursor:
        """The sink's cursor with these copies moved."""
        certificate = self.order.certificate or before.certificate
        position = self._position(before)
        return replace(before, position=position, copies={**before.copies, **copies}, certificate=certificate)

    def _position(self, before: Cursor) -> Position | None:
        """Where the tables without an exception stand: it follows what streams, and never moves back (D1).

        A seed's place counts as long as nothing else was ever seeded there; a repair moves nothing.
        """
        order = self.order
        alone = not any(copy.edition for name, copy in before.copies.items() if name not in order.tables)
        places = [
            wanted.leaves.at for wanted in order.tables.values() if alone or wanted.kind not in _STANDING
        ]
        return max([place for place in (before.position, *places) if place is not None], default=None)

    def _empty(self, wanted: TableOrder) -> CopyState:
        return CopyState(
            wanted.mode,
            table_id="",
            columns=(),
            fingerprint=wanted.fingerprint,
            source_identity=self.order.source_identity,
        )


class Beside(TypedDict):
    """What is known of the rows that new ones stand beside."""

    edition: int
    evidence: str


def beside(copy: CopyState) -> Beside:
    """The copy keeps its rows; one that is made anew has none, and edition 0."""
    return Beside(edition=copy.edition, evidence=copy.evidence)


def _head_after(state: CopyState, wanted: TableOrder, counts: Counts) -> str:
    """The head of the chain with this order's segment. A chain begins with a seed of an empty table and has
    no holes: rows that no segment tells end it. A repair's rows are those that it tells already."""
    if wanted.kind == "repair":
        return state.evidence
    if not wanted.evidence:
        untold = wanted.kind == "replace" or counts.puts or counts.deletes
        return "" if untold else state.evidence
    begins = wanted.kind == "replace" and state.edition == 0
    return chained(state.evidence, wanted.evidence) if begins or state.evidence else ""


def _at(copy: CopyState, version: Version, source_position: SourcePosition) -> CopyState:
    told = replace(copy, at=version.at, source_position=source_position)
    return replace(told, edition=version.edition, resumed=version.resumed)
