"""One DuckDB for a process; a lake is attached only while somebody reads it.

Promises: readers in one process share an attachment (DuckDB allows a file only once); a DuckDB-file
catalog, which locks its writers out while it is attached, is let go with the last reader.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from truecut.errors import ExitCode, Retry, TruecutError
from truecut.lake import LakeAddress, attach_sql, connect, fault_of, identifier

MISSING = "TC2001"


@dataclass(frozen=True, slots=True)
class Lake:
    """An attached lake and a connection of one's own to query it."""

    connection: duckdb.DuckDBPyConnection
    alias: str

    @property
    def metadata(self) -> str:
        """The database that holds the catalog's own tables."""
        return identifier(f"__ducklake_metadata_{self.alias}")


class _Process:
    """What all readers of this process share."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.database = connect()
        self.readers: dict[LakeAddress, int] = {}
        self.aliases: dict[LakeAddress, str] = {}
        self.attached = 0

    def enter(self, address: LakeAddress) -> str:
        with self.lock:
            if self.readers.get(address, 0) == 0:
                self.attached += 1
                alias = f"source_{self.attached}"
                self.database.execute(attach_sql(address, alias, read_only=True))
                self.aliases[address] = alias
            self.readers[address] = self.readers.get(address, 0) + 1
            return self.aliases[address]

    def leave(self, address: LakeAddress) -> None:
        with self.lock:
            self.readers[address] -= 1
            if self.readers[address] == 0:
                self.database.execute(f"DETACH {identifier(self.aliases.pop(address))}")


_process: _Process | None = None
_starting = threading.Lock()


def _shared() -> _Process:
    global _process
    with _starting:
        if _process is None or _process.pid != os.getpid():  # a forked worker starts its own
            _process = _Process()
        return _process


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with temporary tables of its own."""
    own = _shared().database.cursor()
    try:
        own.execute("SET TimeZone = 'UTC'")
        yield own
    finally:
        own.close()


@contextmanager
def attached(address: LakeAddress, own: duckdb.DuckDBPyConnection) -> Iterator[Lake]:
    """The lake, read-only, on that connection; what DuckDB raises becomes a classified TruecutError."""
    process = _shared()
    _require_file(address)
    try:
        alias = process.enter(address)
        try:
            yield Lake(own, alias)
        finally:
            process.leave(address)
    except (duckdb.Error, OSError) as error:
        fault = fault_of(error, what=f"source {address}")
        # The cause may hold row values or a password: it is not chained.
        unfit = ExitCode.FAILED if fault.retry is Retry.RETRYABLE else ExitCode.UNFIT_ENVIRONMENT
        raise TruecutError(
            fault.code, fault.message, fix=fault.fix, retry=fault.retry, exit_code=unfit
        ) from None


def _require_file(address: LakeAddress) -> None:
    if address.kind == "postgres" or "://" in address.target.reveal():
        return
    if not os.path.exists(address.target.reveal()):
        raise TruecutError(
            MISSING,
            f"source {address}: there is no such catalog",
            fix="Check spec.source.catalog; Truecut never creates a source.",
            exit_code=ExitCode.WRONG_INPUT,
        )
