"""A look at the sinks that leaves no trace: their cursors and tables, read-only.

Promises: nothing is created or changed, no fence is raised, and a lake is attached only for the moment.
Thousands of sinks are looked at by a few threads. What cannot be read comes back as a fault.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import duckdb

from truecut.config.settings import Pipeline, SinkSettings
from truecut.errors import Fault, Retry, TruecutError
from truecut.lake import LakeAddress, attach_sql, connect, fault_of, identifier
from truecut.model.cursor import Cursor
from truecut.model.table import TableName
from truecut.sinks.ducklake.cursor import find_cursor
from truecut.sinks.ducklake.transaction import foreign_table

THREADS = 8
PATIENCE_S = 3.0  # a runner or a tenant may hold a DuckDB file for a moment

Answer = TypeVar("Answer")
_aliases = itertools.count(1)


@dataclass(frozen=True, slots=True)
class SinkLook:
    """What stands at one sink. `exists`: whether there is a lake at all; a fault means nobody knows."""

    exists: bool = False
    cursor: Cursor | None = None
    tables: frozenset[str] = frozenset()  # of those that the pipeline wants there
    fault: Fault | None = None

    def foreign(self, sink: SinkSettings) -> list[str]:
        """Tables that stand where ours shall, and that this pipeline did not make."""
        ours = {} if self.cursor is None else self.cursor.copies
        return [table for table in sorted(self.tables) if table not in ours or not ours[table].columns]

    def refusals(self, sink: SinkSettings) -> dict[str, Fault]:
        """Table → why it will not be written."""
        if sink.existing == "replace":
            return {}
        return {table: foreign_table(sink.name, table) for table in self.foreign(sink)}


def look_at_sinks(pipeline: Pipeline) -> dict[str, SinkLook]:
    """Every sink of the pipeline, by name."""
    with (
        closing(connect()) as root,
        ThreadPoolExecutor(THREADS, thread_name_prefix="look") as pool,
    ):
        looks = pool.map(lambda sink: _look(root, pipeline.name, sink), pipeline.sinks)
        return {sink.name: look for sink, look in zip(pipeline.sinks, looks, strict=True)}


def patiently(call: Callable[[], Answer]) -> Answer:
    """Try again for a moment where a retry can help."""
    deadline = time.monotonic() + PATIENCE_S
    for attempt in itertools.count():
        try:
            return call()
        except TruecutError as error:
            if error.fault.retry is not Retry.RETRYABLE or time.monotonic() > deadline:
                raise
        time.sleep(min(0.5, 0.05 * 2**attempt))
    raise AssertionError("unreachable")


def is_missing(address: LakeAddress) -> bool:
    """Whether the catalog is a file that does not exist."""
    target = address.target.reveal()
    return address.kind != "postgres" and "://" not in target and not os.path.exists(target)


@contextmanager
def without_trace(address: LakeAddress) -> Iterator[None]:
    """Reading a SQLite catalog leaves an empty write-ahead log, which only a last writer takes away."""
    path = address.target.reveal()
    tidy = address.kind == "sqlite" and os.path.exists(path) and not os.path.exists(f"{path}-wal")
    try:
        yield
    finally:
        if tidy and os.path.exists(f"{path}-wal"):
            with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as last:
                last.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _look(root: duckdb.DuckDBPyConnection, pipeline: str, sink: SinkSettings) -> SinkLook:
    if is_missing(sink.address):
        return SinkLook()
    try:
        with without_trace(sink.address):
            return patiently(lambda: _once(root, pipeline, sink))
    except TruecutError as error:
        return SinkLook(fault=error.fault)


def _once(root: duckdb.DuckDBPyConnection, pipeline: str, sink: SinkSettings) -> SinkLook:
    alias = f"look_{next(_aliases)}"
    with closing(root.cursor()) as connection:
        try:
            connection.execute(attach_sql(sink.address, alias, read_only=True))
        except (duckdb.Error, OSError) as error:
            if "explicitly disabled" in str(error):  # a database without a lake in it: one would be made
                return SinkLook()
            raise _classified(error, sink) from None
        try:
            return _contents(connection, identifier(alias), pipeline, sink)
        except (duckdb.Error, OSError) as error:
            raise _classified(error, sink) from None
        finally:
            with suppress(duckdb.Error):
                connection.execute(f"DETACH {identifier(alias)}")


def _contents(
    connection: duckdb.DuckDBPyConnection, lake: str, pipeline: str, sink: SinkSettings
) -> SinkLook:
    present = frozenset(table for table in sink.modes if _exists(connection, lake, TableName.parse(table)))
    return SinkLook(exists=True, cursor=find_cursor(connection, lake, pipeline), tables=present)


def _exists(connection: duckdb.DuckDBPyConnection, lake: str, table: TableName) -> bool:
    try:
        connection.execute(f"DESCRIBE {lake}.{identifier(table.schema)}.{identifier(table.table)}")
    except duckdb.CatalogException:
        return False
    return True


def _classified(error: duckdb.Error | OSError, sink: SinkSettings) -> TruecutError:
    return TruecutError.of(fault_of(error, what=f"sink {sink.name}"))
