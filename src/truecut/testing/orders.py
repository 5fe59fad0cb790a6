"""Orders and packets in few words, for tests of sinks: one table shape, places of one generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from truecut.model.change import COMMITTED_AT, OP, PLACE, SEQ, TRANSACTION, UNCHANGED
from truecut.model.cursor import CopyState, Hold, Version
from truecut.model.order import Order, OrderKind, Receipt, TableOrder
from truecut.model.position import Position
from truecut.model.table import Column, Mode, TableSchema
from truecut.sinks.contract import Packet

GENERATION = 1
COMMITTED = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS = TableSchema("7", (Column(1, "id", "BIGINT"), Column(2, "value", "VARCHAR")))
NOTED = TableSchema("8", (*ITEMS.columns, Column(3, "note", "VARCHAR")))
ARROW = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "VARCHAR": pa.string(), "DOUBLE": pa.float64()}

Change = tuple[Any, ...]  # op, place, then the values of the table's columns; those left out are NULL
ABSENT = object()  # in place of a value that the source did not send


def at(place: int | None) -> Position | None:
    return None if place is None else Position(GENERATION, place)


def position(place: int) -> Position:
    return Position(GENERATION, place)


def rows(changes: Sequence[Change], schema: TableSchema = ITEMS) -> pa.Table:
    """Changes in the form of `model.change`, numbered in the order given."""
    width = 2 + len(schema.columns)
    changes = [(*c, *[None] * (width - len(c))) for c in changes]
    unchanged = [[n for n, v in zip(schema.names, c[2:], strict=True) if v is ABSENT] for c in changes]
    arrays = {
        OP: pa.array([c[0] for c in changes], pa.uint8()),
        PLACE: pa.array([c[1] for c in changes], pa.uint64()),
        SEQ: pa.array(range(len(changes)), pa.int64()),
        COMMITTED_AT: pa.array([COMMITTED] * len(changes), pa.timestamp("us", "UTC")),
    }
    if any(unchanged):
        arrays[UNCHANGED] = pa.array(unchanged, pa.list_(pa.string()))
    for i, column in enumerate(schema.columns):
        values = [None if c[2 + i] is ABSENT else c[2 + i] for c in changes]
        arrays[column.name] = pa.array(values, ARROW[column.type])
    return pa.table(arrays)


def in_transactions(found: pa.Table, names: Sequence[str | None]) -> pa.Table:
    """The same with the source's own name of each change's transaction."""
    return found.append_column(TRANSACTION, pa.array(names, pa.string()))


@dataclass(frozen=True)
class Wish:
    """What an order shall do with one table; `order` says from where to where."""

    kind: OrderKind
    mode: Mode
    schema: TableSchema | None
    key: tuple[str, ...]
    hold: Hold | None = None
    before: Version | None = None  # where this copy stands, if not with the others
    resumed: int = 0  # the request that it answers
    began_empty: bool = False


def changes(mode: Mode = "mirror", schema: TableSchema = ITEMS, key: tuple[str, ...] = ("id",)) -> Wish:
    return Wish("changes", mode, schema, key)


def seed(mode: Mode = "mirror", schema: TableSchema = ITEMS, key: tuple[str, ...] = ("id",)) -> Wish:
    return Wish("replace", mode, schema, key)


def repair() -> Wish:
    """Of a mirror."""
    return Wish("repair", "mirror", ITEMS, ("id",))


def persisted(mode: Mode = "mirror") -> Wish:
    return Wish("persist", mode, None, ())


def held(code: str, message: str, mode: Mode = "mirror") -> Wish:
    return Wish("hold", mode, None, (), Hold(code, message))


def standing(
    wish: Wish, place: int, *, edition: int = 1, hold: str | None = None, resumed: int = 0, answers: int = 0
) -> Wish:
    """The same for a copy that stands elsewhere than the others of its order."""
    return replace(wish, before=Version(edition, position(place), hold, resumed), resumed=answers or resumed)


def order(expected: int | None, upto: int, *, token: int = 1, edition: int = 1, **tables: Wish) -> Order:
    """Tables are named without their schema, which is `main`; they were seeded `edition` times."""
    return order_of(tables, expected, upto, token=token, edition=edition)


def order_of(
    tables: Mapping[str, Wish], expected: int | None, upto: int, *, token: int = 1, edition: int = 1
) -> Order:
    """The same for tables that are not known by name."""
    before = None if expected is None else Version(edition, position(expected))
    named = {f"main.{name}": _table(wish, before, upto) for name, wish in tables.items()}
    return Order("acme", 1, token, position(upto), "source-1", named)


def _table(wish: Wish, before: Version | None, upto: int) -> TableOrder:
    before = wish.before or before
    edition = (0 if before is None else before.edition) + (wish.kind == "replace")
    place = position(upto) if wish.kind != "hold" or before is None else before.at
    leaves = Version(edition, place, None if wish.hold is None else wish.hold.code, wish.resumed)
    return TableOrder(
        wish.kind,
        wish.mode,
        wish.key,
        wish.schema,
        before,
        leaves,
        wish.hold,
        began_empty=wish.began_empty,
    )


def packets(**tables: Sequence[Change]) -> Iterator[Packet]:
    return iter([Packet(f"main.{name}", rows(found)) for name, found in tables.items() if found])


def applied(receipt: Receipt) -> Receipt:
    """The receipt of an order that must have been carried out."""
    assert receipt.outcome == "applied", receipt.fault
    assert receipt.cursor is not None
    return receipt


def copy_of(receipt: Receipt, table: str = "t") -> CopyState:
    """What the sink told of one table."""
    assert receipt.cursor is not None
    return receipt.cursor.copies[f"main.{table}"]
