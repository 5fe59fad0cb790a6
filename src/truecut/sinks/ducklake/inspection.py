"""A look at lakes that leaves no trace: their cursors and tables, read-only, and whether they can be written.

Promises: nothing is created or changed, no fence is raised, and a lake is attached only for the moment.
Thousands of sinks are looked at by a few threads. What cannot be read comes back as a fault.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import duckdb

from truecut.config.settings import SinkSettings
from truecut.errors import Fault, TruecutError
from truecut.folders import denied, not_writable
from truecut.lake import LakeAddress, attach, connect, fault_of, identifier, lake_of, without_trace
from truecut.model.cursor import Cursor
from truecut.model.finding import Finding
from truecut.model.table import TableName
from truecut.object_store import is_remote
from truecut.patience import patiently
from truecut.sinks.contract import SinkLook
from truecut.sinks.copies import foreign_table
from truecut.sinks.ducklake.cursor import SCHEMA, TABLE, find_cursor
from truecut.sinks.ducklake.plain_database import refuse_plain_database
from truecut.sinks.ducklake.store_check import check_store

THREADS = 8
_CURSOR_TABLE = ("table", f"{SCHEMA}.{TABLE}")

_aliases = itertools.count(1)


def look_at(sinks: Sequence[SinkSettings], *, pipeline: str) -> dict[str, SinkLook]:
    """Every sink, by name."""
    with (
        closing(connect()) as root,
        ThreadPoolExecutor(THREADS, thread_name_prefix="look") as pool,
    ):
        looks = pool.map(lambda sink: _look(root, pipeline, sink), sinks)
        return {sink.name: look for sink, look in zip(sinks, looks, strict=True)}


def unfit(sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
    """Why a run could not write there: the lake, its folders, tables of somebody else."""
    if look.fault is not None:
        yield Finding(sink.name, look.fault)
        return
    address = lake_of(sink.address)
    new = any(kind == "catalog" for kind, _ in look.missing)
    if new and address.kind != "duckdb" and address.data_path is None:
        refusal = duckdb.InvalidInputException("data_path is not set")  # as DuckLake itself will say
        yield Finding(sink.name, fault_of(refusal, what=f"sink {sink.name}"))
    trouble = next(filter(None, map(not_writable, address.folders())), None) or _read_only(address)
    if trouble is not None:
        yield Finding(sink.name, fault_of(trouble, what=f"sink {sink.name}"))
    for fault in look.refused.values():
        yield Finding(sink.name, fault)
    if address.data_path is None or is_remote(address.data_path):
        yield from check_store(sink, new=new)


def _read_only(address: LakeAddress) -> OSError | None:
    """A catalog that is there, but not for us to write."""
    path = address.target.reveal()
    writable = not address.is_file or not os.path.exists(path) or os.access(path, os.W_OK)
    return None if writable else denied()


def _look(root: duckdb.DuckDBPyConnection, pipeline: str, sink: SinkSettings) -> SinkLook:
    address = lake_of(sink.address)
    if address.is_missing:
        return _nothing(sink)
    try:
        with without_trace(address):
            return patiently(lambda: _once(root, pipeline, sink))
    except TruecutError as error:
        return SinkLook(fault=error.fault)


def _once(root: duckdb.DuckDBPyConnection, pipeline: str, sink: SinkSettings) -> SinkLook:
    alias = f"look_{next(_aliases)}"
    with closing(root.cursor()) as connection:
        try:
            attach(connection, lake_of(sink.address), alias, read_only=True)
        except (duckdb.Error, OSError) as error:
            if "explicitly disabled" in str(error):  # a database without a lake in it
                return _to_be_made(sink)
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
    cursor = find_cursor(connection, lake, pipeline)
    missing = () if cursor is not None else (_CURSOR_TABLE,)
    return SinkLook(cursor, present, _refused(sink, cursor, present), missing)


def _refused(sink: SinkSettings, cursor: Cursor | None, present: frozenset[str]) -> dict[str, Fault]:
    """Tables that stand where ours shall, and that this pipeline did not make."""
    if sink.existing == "replace":
        return {}
    ours = {} if cursor is None else cursor.copies
    foreign = [table for table in sorted(present) if table not in ours or not ours[table].columns]
    return {table: foreign_table(sink.name, table) for table in foreign}


def _nothing(sink: SinkSettings) -> SinkLook:
    return SinkLook(missing=(("catalog", str(sink.address)), _CURSOR_TABLE))


def _to_be_made(sink: SinkSettings) -> SinkLook:
    """In the database that is there, if nobody else uses it."""
    try:
        refuse_plain_database(lake_of(sink.address))
    except (duckdb.Error, OSError) as error:
        raise _classified(error, sink) from None
    return _nothing(sink)


def _exists(connection: duckdb.DuckDBPyConnection, lake: str, table: TableName) -> bool:
    try:
        connection.execute(f"DESCRIBE {lake}.{identifier(table.schema)}.{identifier(table.table)}")
    except duckdb.CatalogException:
        return False
    return True


def _classified(error: duckdb.Error | OSError, sink: SinkSettings) -> TruecutError:
    return TruecutError.of(fault_of(error, what=f"sink {sink.name}"))
