"""One DuckDB for a process; a lake is attached only while somebody reads it.

Promises: readers in one process share an attachment (DuckDB allows a file only once); a DuckDB-file
catalog, which locks its writers out while it is attached, is let go with the last reader.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb

from truecut.config.secret import Secret
from truecut.errors import ExitCode, Fault, Retry, TruecutError
from truecut.lake import LakeAddress, attach_sql, connect, fault_of, identifier

_MISLED = "statistics_propagation,compressed_materialization"
MISSING = "TC2001"
FILE_GONE = "TC2012"


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
        # The extension hands the head's statistics (minimum, maximum) to reads of older versions as well,
        # where they do not hold: a plan that relies on them fails, or loses rows.
        self.database.execute(f"SET GLOBAL disabled_optimizers = '{_MISLED}'")
        self.readers: dict[LakeAddress, int] = {}
        self.aliases: dict[LakeAddress, str] = {}
        self.attached = 0

    def enter(self, address: LakeAddress) -> str:
        with self.lock:
            if self.readers.get(address, 0) == 0:
                self.attached += 1
                alias = f"source_{self.attached}"
                self.database.execute(attach_sql(address, alias, read_only=True, trust_data_path=True))
                self.aliases[address] = alias
            self.readers[address] = self.readers.get(address, 0) + 1
            return self.aliases[address]

    def leave(self, address: LakeAddress) -> None:
        with self.lock:
            self.readers[address] -= 1
            if self.readers[address] == 0:
                self.database.execute(f"DETACH {identifier(self.aliases.pop(address))}")


_process: _Process | None = None
_of_parents: list[_Process] = []
_starting = threading.Lock()


def _shared() -> _Process:
    global _process
    with _starting:
        if _process is None or _process.pid != os.getpid():
            if _process is not None:
                _of_parents.append(_process)  # a forked worker starts its own; closing this one would hang
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
def pinned(address: LakeAddress, own: duckdb.DuckDBPyConnection) -> Iterator[Lake]:
    """The lake for as long as reading takes, without locking its owner out.

    A DuckDB-file catalog is copied first: the copy names the same data files, which never change.
    """
    if address.shared:
        with attached(address, own) as lake:
            yield lake
        return
    with tempfile.TemporaryDirectory(prefix="truecut-catalog-") as folder:
        original, copy = address.target.reveal(), os.path.join(folder, "catalog.ducklake")
        with attached(address, own):  # holds the file, so that file and log are of one moment
            shutil.copyfile(original, copy)
            with suppress(FileNotFoundError):
                shutil.copyfile(original + ".wal", copy + ".wal")
        with attached(LakeAddress("duckdb", Secret(copy), address.data_path), own, name=str(address)) as lake:
            yield lake


@contextmanager
def attached(
    address: LakeAddress, own: duckdb.DuckDBPyConnection, *, name: str | None = None
) -> Iterator[Lake]:
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
        fault = _fault(error, what=f"source {name or address}")
        # The cause may hold row values or a password: it is not chained.
        unfit = ExitCode.FAILED if fault.retry is Retry.RETRYABLE else ExitCode.UNFIT_ENVIRONMENT
        raise TruecutError(
            fault.code, fault.message, fix=fault.fix, retry=fault.retry, exit_code=unfit
        ) from None


def _fault(error: duckdb.Error | OSError, *, what: str) -> Fault:
    if isinstance(error, duckdb.IOException) and "no such file" in str(error).lower():
        return Fault(
            FILE_GONE,
            f"{what}: a data file is gone; it was cleaned up while it was being read, or lies elsewhere",
            "It is tried again. If it persists, check spec.source.data_path.",
            Retry.RETRYABLE,
        )
    return fault_of(error, what=what)


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
