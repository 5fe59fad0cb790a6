"""Whether a sink's object store can be written to, and what killed transactions have left in it.

Only a write tells whether one may write. So a lake of no account is begun below the sink's own prefix and
rolled back: DuckLake itself writes a file and removes it, and the sink's catalog is not touched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb

from truecut.config.settings import SinkSettings
from truecut.errors import Fault
from truecut.lake import (
    LakeAddress,
    attach,
    connect,
    fault_of,
    lake_of,
    literal,
    reach,
    told_data_path,
    without_trace,
)
from truecut.model.finding import Finding
from truecut.object_store import SCHEME, scope

PROBE = "truecut-doctor/"
OLD = "INTERVAL 1 DAY"  # a transaction that is under way has files that belong to no snapshot yet
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Orphans:
    """Files that no snapshot knows, nor DuckLake's own list of what is to be deleted."""

    files: int
    size_bytes: int


def check_store(sink: SinkSettings, *, new: bool) -> Iterator[Finding]:
    """What is wrong with the store of a sink; nothing, for one that keeps its files on a disk."""
    address = lake_of(sink.address)
    try:
        with _reached(address, new=new) as (connection, place):
            if place is not None:
                _try_to_write(connection, place)
                yield from _look_around(connection, place, sink.name, new=new)
    except duckdb.Error as error:
        yield Finding(sink.name, fault_of(error, what=f"sink {sink.name}"))


@cache
def _root() -> duckdb.DuckDBPyConnection:
    """One for all sinks."""
    return connect()


@contextmanager
def _reached(address: LakeAddress, *, new: bool) -> Iterator[tuple[duckdb.DuckDBPyConnection, str | None]]:
    """The prefix of the lake's files, if they are in a store; unless it is new, the lake is `lake`."""
    with closing(_root().cursor()) as connection, without_trace(address):
        if not new:
            attach(connection, address, "lake", read_only=True)
        try:
            told = address.data_path or ("" if new else told_data_path(connection, "lake"))
            if told.startswith(SCHEME):
                reach(connection, told, address.storage)
            yield connection, scope(told) if told.startswith(SCHEME) else None
        finally:
            if not new:
                connection.execute("DETACH lake")


def _look_around(
    connection: duckdb.DuckDBPyConnection, place: str, name: str, *, new: bool
) -> Iterator[Finding]:
    """What has stayed there and should not have."""
    try:
        if _left_behind(connection, place):
            yield Finding(name, _undeletable(name), "warning")
        orphans = _Orphans(0, 0) if new else _orphans(connection, place)
    except duckdb.Error as error:  # a run does without a list
        yield Finding(name, fault_of(error, what=f"sink {name}, asked for a list"), "warning")
        return
    if orphans.files:
        yield Finding(name, _orphaned(name, orphans), "warning")


def _try_to_write(connection: duckdb.DuckDBPyConnection, place: str) -> None:
    with tempfile.TemporaryDirectory(prefix="truecut-probe-") as folder:
        catalog, data = literal(f"ducklake:{Path(folder) / 'probe.ducklake'}"), literal(place + PROBE)
        connection.execute(f"ATTACH {catalog} AS probe (DATA_PATH {data}, DATA_INLINING_ROW_LIMIT 0)")
        try:
            connection.execute("BEGIN")
            try:
                connection.execute("CREATE TABLE probe.main.probe AS SELECT 1 AS probe")
            finally:
                connection.execute("ROLLBACK")
        finally:
            connection.execute("DETACH probe")


def _left_behind(connection: duckdb.DuckDBPyConnection, place: str) -> bool:
    found = connection.execute(f"SELECT 1 FROM glob({literal(place + PROBE + '**')}) LIMIT 1").fetchone()
    return found is not None


def _orphans(connection: duckdb.DuckDBPyConnection, place: str) -> _Orphans:
    """Names hold a UUID: one that the catalog does not know in any table belongs to nobody."""
    known = " UNION ALL ".join(
        f"SELECT parse_filename(path) FROM __ducklake_metadata_lake.{table}"
        for table in ("ducklake_data_file", "ducklake_delete_file", "ducklake_files_scheduled_for_deletion")
    )
    found = connection.execute(  # the store's list tells all of it: no file is opened
        f"""SELECT count(*), coalesce(sum(size), 0) FROM read_blob({literal(place + "**")})
            WHERE suffix(filename, '.parquet') AND last_modified < now() - {OLD}
              AND parse_filename(filename) NOT IN ({known})"""
    ).fetchone()
    assert found is not None
    return _Orphans(int(found[0]), int(found[1]))


def _undeletable(name: str) -> Fault:
    return Fault(
        "TC4021",
        f"sink {name}: the object store let a file be written and not be deleted",
        "Allow deletion below `data_path`: DuckLake removes the files of a transaction that fails.",
    )


def _orphaned(name: str, orphans: _Orphans) -> Fault:
    return Fault(
        "TC4022",
        f"sink {name}: {orphans.files:,} files ({orphans.size_bytes / _MIB:,.1f} MiB) older than a day"
        " belong to no snapshot; transactions that were killed have left them",
        f"In its lake: CALL ducklake_delete_orphaned_files('LAKE', older_than => now() - {OLD}).",
    )
