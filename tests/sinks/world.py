"""Lakes as the tests look at them, by plain duckdb; what the tests say is in `truecut.testing.orders`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import duckdb

from tests.s3_server import S3Server
from truecut.lake import LakeAddress, attach_sql, connect
from truecut.sinks.ducklake.sink import DuckLakeSink
from truecut.testing.orders import (
    ARROW,
    COMMITTED,
    GENERATION,
    ITEMS,
    Change,
    Wish,
    applied,
    at,
    changes,
    copy_of,
    held,
    order,
    order_of,
    packets,
    persisted,
    position,
    rows,
    seed,
    standing,
)

__all__ = [
    "ARROW",
    "COMMITTED",
    "GENERATION",
    "ITEMS",
    "MAINTENANCE",
    "Change",
    "Wish",
    "applied",
    "at",
    "changes",
    "copy_of",
    "cursor_of",
    "held",
    "opened",
    "order",
    "order_of",
    "packets",
    "persisted",
    "places_of",
    "position",
    "reach",
    "read",
    "rows",
    "seed",
    "sink",
    "standing",
    "tenant",
]


def sink(address: LakeAddress, *, pipeline: str = "tenants", existing: Any = "refuse") -> DuckLakeSink:
    return DuckLakeSink(name="acme", pipeline=pipeline, address=address, existing=existing)


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


def reach(server: S3Server) -> None:
    """The tenants know the way to this store."""
    server.reached_by(_client())


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


def places_of(address: LakeAddress, pipeline: str = "tenants") -> dict[str, list[Any]]:
    """The newest cursor row: place, edition, code of the hold and answered request of each table."""
    with opened(address) as connection:
        found = connection.execute(
            "SELECT state FROM lake._truecut.cursor WHERE pipeline = ? ORDER BY number DESC LIMIT 1",
            [pipeline],
        ).fetchone()
    assert found is not None
    copies = json.loads(found[0])["copies"]
    return {
        table: [copy["at"], copy["edition"], copy["hold"] and copy["hold"][0], copy["resumed"]]
        for table, copy in copies.items()
    }


MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
)
