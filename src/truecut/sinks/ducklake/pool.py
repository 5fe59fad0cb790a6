"""One DuckDB for each process, and the lakes that are attached to it.

Loading DuckDB and its extensions costs more than a small order, so a process does it once. A lake whose
catalog may be shared (SQLite, PostgreSQL) stays attached, in a bounded pool, least recently used out
first; a DuckDB-file catalog is attached for one call, because while it is attached nobody else can open
it. An attachment is used by one call at a time, so a call that hangs keeps only its own.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from truecut.lake import LakeAddress, attach_sql, connect, identifier

KEPT_MAX = 64  # idle attachments in one process

_lock = threading.Lock()
_aliases = itertools.count(1)
_owner_pid = 0
_root: duckdb.DuckDBPyConnection | None = None
_idle: dict[LakeAddress, list[str]] = {}  # insertion order is the order of last use


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake attached for one call: a connection of its own and the name to qualify tables with."""

    connection: duckdb.DuckDBPyConnection
    alias: str

    @property
    def name(self) -> str:
        """The catalog's quoted name."""
        return identifier(self.alias)


def session() -> duckdb.DuckDBPyConnection:
    """A new connection to this process's DuckDB, made on first use (and again after a fork)."""
    global _root, _owner_pid
    with _lock:
        if _root is None or _owner_pid != os.getpid():
            _idle.clear()
            _root, _owner_pid = connect(), os.getpid()
            # One attempt for each commit: a retry inside DuckLake would look only at the changes of the
            # snapshots that still exist, and miss a takeover whose snapshot the tenant has expired.
            _root.execute("SET ducklake_max_retry_count = 1")
        return _root.cursor()


@contextmanager
def attached(
    connection: duckdb.DuckDBPyConnection, address: LakeAddress, *, create: bool = False
) -> Iterator[Lake]:
    """The lake, for the duration of a block. Every transaction inside sees what others have committed."""
    alias = _take(address)
    if alias is None:
        alias = f"sink_{next(_aliases)}"
        if create:
            _make_folders(address)
        connection.execute(attach_sql(address, alias, create=create))
    try:
        yield Lake(connection, alias)
    except BaseException:
        _detach(connection, alias)
        raise
    _give_back(connection, address, alias)


def _make_folders(address: LakeAddress) -> None:
    if address.kind != "postgres":
        Path(address.target.reveal()).parent.mkdir(parents=True, exist_ok=True)
    if address.data_path is not None and "://" not in address.data_path:
        Path(address.data_path).mkdir(parents=True, exist_ok=True)


def _take(address: LakeAddress) -> str | None:
    with _lock:
        aliases = _idle.pop(address, None)
        if not aliases:
            return None
        alias = aliases.pop()
        if aliases:
            _idle[address] = aliases
        return alias


def _give_back(connection: duckdb.DuckDBPyConnection, address: LakeAddress, alias: str) -> None:
    if not address.shared:
        connection.execute(f"DETACH {identifier(alias)}")
        return
    surplus = []
    with _lock:
        _idle[address] = [*_idle.pop(address, []), alias]
        while sum(map(len, _idle.values())) > KEPT_MAX:
            oldest = next(iter(_idle))
            surplus += _idle.pop(oldest)
    for name in surplus:
        _detach(connection, name)


def _detach(connection: duckdb.DuckDBPyConnection, alias: str) -> None:
    with suppress(duckdb.Error):  # nothing is open (autocommit), or the rollback has already happened
        connection.execute("ROLLBACK")
    with suppress(duckdb.Error):  # already gone, or beyond reach: the next call attaches anew
        connection.execute(f"DETACH {identifier(alias)}")
