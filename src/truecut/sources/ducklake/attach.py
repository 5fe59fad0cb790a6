"""One DuckDB for a process, and the lakes that are attached to it.

Promises: readers in one process share an attachment (DuckDB allows a file only once); a DuckDB-file
catalog, which locks its writers out while it is attached, is let go with the last reader. Catalogs that
may be shared stay attached for the next reader, a few of them; each read is a transaction of its own and
so sees what was committed until it begins. An attachment is not used again after an error, in a forked
process, or when another lake, or an older state of it, stands at the address.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

import duckdb

from truecut import pulse
from truecut.config.secret import Secret
from truecut.errors import ExitCode, Fault, Retry, TruecutError
from truecut.lake import (
    UNKNOWN,
    LakeAddress,
    attach,
    connect,
    fault_of,
    identifier,
    read_versions_exactly,
)
from truecut.object_store import FILE_GONE as GONE_FROM_STORE

KEPT_MAX = 4  # idle attachments in one process
MISSING = "TC2001"
FILE_GONE = "TC2012"
SNAPSHOT_GONE = "TC2013"
NAME_GONE = "TC2014"
UNREADABLE = "TC3027"


@dataclass(frozen=True, slots=True)
class Lake:
    """An attached lake and a connection of one's own to query it."""

    connection: duckdb.DuckDBPyConnection
    alias: str

    @property
    def metadata(self) -> str:
        """The database that holds the catalog's own tables."""
        return identifier(self.metadata_name)

    @property
    def metadata_name(self) -> str:
        """The same, as it is, not as SQL writes it."""
        return f"__ducklake_metadata_{self.alias}"


@dataclass(frozen=True, slots=True)
class _Mark:
    """What the extension remembers of a lake while it is attached, or what tells that it may do so.

    It remembers schemas by their version, and with them the names of the tables that hold inlined rows; but
    a flush drops such tables without a new version.
    """

    identity: str
    schemas: frozenset[tuple[int, int]]  # each version and the snapshot that made it
    inlined: frozenset[str]

    def allows(self, now: _Mark) -> bool:
        """Whether what was remembered then still holds."""
        return self.identity == now.identity and self.schemas <= now.schemas and self.inlined == now.inlined


@dataclass(slots=True)
class _Attachment:
    """An attached lake, and what was in it when somebody last came to read."""

    alias: str
    mark: _Mark | None = None
    readers: int = 0
    spent: bool = False  # nobody else gets it; it goes with its last reader


class _Process:
    """What all readers of this process share."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.database = connect()
        read_versions_exactly(self.database)
        self.attachments: dict[LakeAddress, _Attachment] = {}  # in the order of last use
        self.attached = 0

    def enter(self, address: LakeAddress) -> _Attachment:
        with self.lock:
            found = self.attachments.get(address)
            if found is not None and address.shared and not self._still_fits(found):
                self._retire(address, found)
                found = None
            if found is None:
                found = self._attach(address)
            self.attachments.pop(address, None)
            self.attachments[address] = found
            found.readers += 1
            return found

    def leave(self, address: LakeAddress, attachment: _Attachment, *, failed: bool) -> None:
        with self.lock:
            attachment.readers -= 1
            # A file can be attached only once, so nobody gets another one while somebody reads it.
            if attachment.spent or (failed if address.shared else attachment.readers == 0):
                self._retire(address, attachment)
            idle = [kept for kept in self.attachments.items() if kept[1].readers == 0]
            for surplus in idle[: max(0, len(idle) - KEPT_MAX)]:
                self._retire(*surplus)

    def _attach(self, address: LakeAddress) -> _Attachment:
        self.attached += 1
        attachment = _Attachment(f"source_{self.attached}")
        attach(self.database, address, attachment.alias, read_only=True, trust_data_path=True)
        if address.shared:
            try:
                attachment.mark = self._look(attachment)
            except BaseException:
                self._retire(address, attachment)
                raise
        return attachment

    def _still_fits(self, attachment: _Attachment) -> bool:
        """Whether it is the same lake, gone on."""
        try:
            now = self._look(attachment)
        except duckdb.Error:
            return False  # a connection that was lost, a catalog that was taken away
        was, attachment.mark = attachment.mark, now
        return was is not None and was.allows(now)

    def _look(self, attachment: _Attachment) -> _Mark:
        metadata = Lake(self.database, attachment.alias).metadata
        row = self.database.execute(
            f"""SELECT (SELECT arg_min(schema_uuid::VARCHAR, schema_id) FROM {metadata}.ducklake_schema),
                       (SELECT list((schema_version, begin_snapshot))
                        FROM {metadata}.ducklake_schema_versions),
                       (SELECT list(table_name) FROM {metadata}.ducklake_inlined_data_tables)"""
        ).fetchone()
        assert row is not None
        return _Mark(str(row[0]), frozenset(row[1] or ()), frozenset(row[2] or ()))

    def _retire(self, address: LakeAddress, attachment: _Attachment) -> None:
        attachment.spent = True
        if self.attachments.get(address) is attachment:
            del self.attachments[address]
        if attachment.readers == 0:
            with suppress(duckdb.Error) if address.shared else nullcontext():  # it may be beyond reach
                self.database.execute(f"DETACH {identifier(attachment.alias)}")


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


def _forget(process: _Process) -> None:
    """The next reader starts a new DuckDB."""
    global _process
    with _starting:
        if _process is process:
            _of_parents.append(process)  # others may still be in the middle of it
            _process = None


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with temporary tables of its own."""
    own = _shared().database.cursor()
    try:
        own.execute("SET TimeZone = 'UTC'")
        pulse.watch(own)
        yield own
    finally:
        own.close()


@contextmanager
def pinned(address: LakeAddress, own: duckdb.DuckDBPyConnection) -> Iterator[Lake]:
    """The lake for as long as reading takes, without locking its owner out.

    A DuckDB-file catalog is copied first: the copy names the same data files, which never change. Trouble
    with the lake (it is gone for a moment, may not be read, is being restored) is no table's fault: whoever
    reads may try again.
    """
    if address.shared:
        with attached(address, own, passing=True) as lake:
            yield lake
        return
    with tempfile.TemporaryDirectory(prefix="truecut-catalog-") as folder:
        original, copy = address.target.reveal(), os.path.join(folder, "catalog.ducklake")
        with attached(address, own, passing=True):  # holds the file: it and its log are of one moment
            shutil.copyfile(original, copy)
            with suppress(FileNotFoundError):
                shutil.copyfile(original + ".wal", copy + ".wal")
        copied = replace(address, target=Secret(copy))
        with attached(copied, own, name=str(address), passing=True) as lake:
            yield lake


@contextmanager
def one_view(lake: Lake) -> Iterator[None]:
    """Everything asked inside is of one moment, that of the first question; and it costs less."""
    lake.connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error):  # what failed may have ended it
            lake.connection.execute("ROLLBACK")
        raise
    lake.connection.execute("COMMIT")


@contextmanager
def attached(
    address: LakeAddress, own: duckdb.DuckDBPyConnection, *, name: str | None = None, passing: bool = False
) -> Iterator[Lake]:
    """The lake, read-only, on that connection; what DuckDB raises becomes a classified TruecutError, all but
    what is about a table a retryable one if `passing`."""
    process = _shared()
    _require_file(address, passing=passing)
    try:
        attachment, failed = process.enter(address), True
        try:
            yield Lake(own, attachment.alias)
            failed = False
        finally:
            process.leave(address, attachment, failed=failed)
    except (duckdb.Error, OSError) as error:
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            _forget(process)  # DuckDB does nothing any more after such an error
        fault = _fault(error, what=f"source {name or address}")
        of_the_table = fault.retry is Retry.GAP or fault.code == UNREADABLE
        if passing and not of_the_table:
            fault = replace(fault, retry=Retry.RETRYABLE)
        # The cause may hold row values or a password: it is not chained.
        unfit = ExitCode.FAILED if fault.retry is Retry.RETRYABLE else ExitCode.UNFIT_ENVIRONMENT
        raise TruecutError.of(fault, unfit) from None


def _fault(error: duckdb.Error | OSError, *, what: str) -> Fault:
    known = fault_of(error, what=what)
    local = isinstance(error, duckdb.IOException) and "no such file" in str(error).lower()
    if local or known.code == GONE_FROM_STORE:
        return Fault(
            FILE_GONE,
            f"{what}: a data file is gone; it was cleaned up while it was being read, or lies elsewhere",
            "A running pipeline tries again by itself. If it persists, check spec.source.data_path.",
            Retry.RETRYABLE,
        )
    if "no snapshot found" in str(error).lower():
        return Fault(
            SNAPSHOT_GONE,
            f"{what}: a snapshot was expired while it was being read",
            "None needed: a running pipeline plans anew. Keep snapshots longer than a sink may lag.",
            Retry.RETRYABLE,
        )
    if isinstance(error, duckdb.CatalogException) and "does not exist at version" in str(error):
        return name_gone(what)
    # A catalog that cannot be attached is invalid input, too, and has a symptom that is known.
    invalid = isinstance(error, duckdb.InvalidInputException) and known.code == UNKNOWN
    if invalid or isinstance(error, duckdb.ConversionException | duckdb.InternalException):
        # Not even its owner can: some nested values do not survive in a catalog (docs/ducklake.md).
        return Fault(
            UNREADABLE,
            f"{what}: a value of the table cannot be read ({type(error).__name__}), by plain DuckDB either",
            "Repair the table at the source (CREATE OR REPLACE, or delete the rows); then resume the table. "
            "Set data_inlining_row_limit to 0 for tables with nested columns.",
        )
    return known


def name_gone(what: str) -> Fault:
    """A snapshot at which nothing, or another table, stands under the name."""
    return Fault(
        NAME_GONE,
        f"{what}: a table had another name for a while, and cannot be read as of then",
        "None needed for a mirror, which is seeded anew; an append table is when it is resumed.",
        Retry.GAP,
    )


def _require_file(address: LakeAddress, *, passing: bool) -> None:
    if not address.is_file:
        return
    if not os.path.exists(address.target.reveal()):
        raise TruecutError(
            MISSING,
            f"source {address}: there is no such catalog",
            fix="Check spec.source.catalog; Truecut never creates a source.",
            retry=Retry.RETRYABLE if passing else Retry.NOT_RETRYABLE,
            exit_code=ExitCode.WRONG_INPUT,
        )
