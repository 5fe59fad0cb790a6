"""What the sink tests say and how they look: orders in few words, and lakes read by plain duckdb."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from truecut.lake import LakeAddress, attach_sql, connect
from truecut.model.change import COMMITTED_AT, OP, PLACE, SEQ
from truecut.model.order import Order, Receipt, TableOrder
from truecut.model.position import Position
from truecut.model.table import Column, Mode, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import DuckLakeSink

GENERATION = 1
COMMITTED = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS = TableSchema("7", (Column(1, "id", "BIGINT"), Column(2, "value", "VARCHAR")))
ARROW = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "VARCHAR": pa.string(), "DOUBLE": pa.float64()}

Change = tuple[Any, ...]  # op, place, then the values of the table's columns


def at(place: int | None) -> Position | None:
    return None if place is None else Position(GENERATION, place)


def position(place: int) -> Position:
    return Position(GENERATION, place)


def rows(changes: Sequence[Change], schema: TableSchema = ITEMS) -> pa.Table:
    """Changes in the form of `model.change`, numbered in the order given."""
    arrays = {
        OP: pa.array([c[0] for c in changes], pa.uint8()),
        PLACE: pa.array([c[1] for c in changes], pa.uint64()),
        SEQ: pa.array(range(len(changes)), pa.int64()),
        COMMITTED_AT: pa.array([COMMITTED] * len(changes), pa.timestamp("us", "UTC")),
    }
    for i, column in enumerate(schema.columns):
        arrays[column.name] = pa.array([c[2 + i] for c in changes], ARROW[column.type])
    return pa.table(arrays)


def changes(mode: Mode = "mirror", schema: TableSchema = ITEMS, key: tuple[str, ...] = ("id",)) -> TableOrder:
    return TableOrder("changes", mode, key, schema)


def seed(mode: Mode = "mirror", schema: TableSchema = ITEMS, key: tuple[str, ...] = ("id",)) -> TableOrder:
    return TableOrder("replace", mode, key, schema)


def order(expected: int | None, upto: int, *, token: int = 1, **tables: TableOrder) -> Order:
    """Tables are named without their schema, which is `main`."""
    named = {f"main.{name}": table for name, table in tables.items()}
    return Order("acme", 1, token, at(expected), position(upto), "source-1", named)


def packets(**tables: Sequence[Change]) -> Iterator[Packet]:
    return iter([Packet(f"main.{name}", rows(found)) for name, found in tables.items() if found])


def sink(address: LakeAddress, *, pipeline: str = "tenants", existing: Any = "refuse") -> DuckLakeSink:
    return DuckLakeSink(name="acme", pipeline=pipeline, address=address, existing=existing)


def applied(receipt: Receipt) -> Receipt:
    """The receipt of an order that must have been carried out."""
    assert receipt.outcome == "applied", receipt.fault
    assert receipt.cursor is not None
    return receipt


@contextmanager
def opened(address: LakeAddress) -> Iterator[duckdb.DuckDBPyConnection]:
    """The lake as its tenant sees it: plain duckdb, the lake is the catalog `lake`."""
    connection = _client()
    connection.execute(attach_sql(address, "lake"))
    try:
        yield connection
    finally:
        connection.execute("DETACH lake")


@cache
def _client() -> duckdb.DuckDBPyConnection:
    """A DuckDB apart from the sink's own; starting one takes longer than most tests."""
    return connect()


def read(address: LakeAddress, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """All rows, sorted."""
    with opened(address) as connection:
        return connection.execute(f"SELECT {columns} FROM lake.main.{table} ORDER BY ALL").fetchall()


def tenant(address: LakeAddress, *statements: str) -> None:
    """The tenant does something of its own."""
    with opened(address) as connection:
        for statement in statements:
            connection.execute(statement)


def cursor_of(address: LakeAddress, pipeline: str = "tenants") -> tuple[str | None, int]:
    """The newest cursor row: position and token."""
    with opened(address) as connection:
        found = connection.execute(
            "SELECT position, token FROM lake._truecut.cursor WHERE pipeline = ? "
            "ORDER BY number DESC LIMIT 1",
            [pipeline],
        ).fetchone()
    assert found is not None
    return found[0], found[1]


MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
)
