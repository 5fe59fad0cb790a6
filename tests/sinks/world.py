"""Lakes as the tests look at them, by plain duckdb; what the tests say is in `truecut.testing.orders`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import duckdb

from tests.s3_server import S3Server
from tests.sinks.database import Seen, places_in
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
    "seen",
    "sink",
    "standing",
    "tenant",
    "watched",
]


def sink(address: LakeAddress, *, pipeline: str = "tenants", existing: Any = "refuse") -> DuckLakeSink:
    return DuckLakeSink(name="acme", pipeline=pipeline, address=address, existing=existing)


_watched: list[LakeAddress] = []


@contextmanager
def opened(address: LakeAddress) -> Iterator[duckdb.DuckDBPyConnection]:
    """The lake as its tenant sees it: plain duckdb, the lake is the catalog `lake`."""
    with nullcontext() if _watched == [address] else watched(address):
        yield _client()


@contextmanager
def watched(address: LakeAddress) -> Iterator[None]:
    """The tenant stays attached meanwhile, as attaching costs more than most looks. Each is a transaction
    of its own. A catalog in a DuckDB file is looked at only: attached, it is locked for everyone else."""
    connection = _client()
    connection.execute(attach_sql(address, "lake"))
    _watched.append(address)
    try:
        yield
    finally:
        _watched.pop()
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


def seen(address: LakeAddress, pipeline: str = "tenants") -> Seen:
    """The newest cursor row: position, token, and of each table place, edition, code of the hold, answered
    request."""
    with opened(address) as connection:
        found = connection.execute(
            "SELECT position, token, state FROM lake._truecut.cursor WHERE pipeline = ? "
            "ORDER BY number DESC LIMIT 1",
            [pipeline],
        ).fetchone()
    assert found is not None
    return found[0], found[1], places_in(found[2])


def cursor_of(address: LakeAddress, pipeline: str = "tenants") -> tuple[str | None, int]:
    """Its position and token."""
    return seen(address, pipeline)[:2]


def places_of(address: LakeAddress, pipeline: str = "tenants") -> dict[str, list[Any]]:
    """Its tables."""
    return seen(address, pipeline)[2]


MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
)
