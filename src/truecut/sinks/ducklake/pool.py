"""One DuckDB for each process, and the lakes that are attached to it.

Loading DuckDB and its extensions costs more than a small order, so a process does it once. A lake whose
catalog may be shared (SQLite, PostgreSQL) stays attached, in a bounded pool, together with what is known of
it; a DuckDB-file catalog is attached for one call, because while it
is attached nobody else can open it. An attachment is used by one call at a time, so a call that hangs
keeps only its own.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from truecut import pulse
from truecut.lake import LakeAddress, attach, connect, identifier, literal
from truecut.object_store import is_remote
from truecut.sinks.ducklake.plain_database import refuse_plain_database

# Idle attachments in one process: half a megabyte each, and for PostgreSQL two connections of its server,
# which has a hundred for everybody unless its owner says otherwise.
KEPT_MAX = {"sqlite": 1024, "postgres": 24}
KEPT_S = 600  # one that nobody used for so long makes room for another

_lock = threading.Lock()
_aliases = itertools.count(1)
_owner_pid = 0
_root: duckdb.DuckDBPyConnection | None = None
_large = 0  # large orders in work
_idle: dict[LakeAddress, list[Attachment]] = {}  # insertion order is the order of last use
_left: dict[LakeAddress, tuple[Stamp, object]] = {}  # what was known of file catalogs when they were let go


Stamp = tuple[int, object]  # a snapshot's number and time: together they name it, even in a restored copy
FileId = tuple[int, int]


@dataclass(slots=True)
class Attachment:
    """An attached lake. `known` is what somebody read or wrote at exactly that snapshot."""

    alias: str
    address: LakeAddress
    file: FileId | None = None  # of a catalog that is a file, when it was attached
    known_snapshot: int = -1
    known: object = None
    committed: Stamp | None = None  # our last commit here; a restored catalog knows nothing of it
    used_at_s: float = 0.0


@dataclass(slots=True)
class Lake:
    """A lake for the duration of one call, with a connection of its own."""

    session: duckdb.DuckDBPyConnection
    attachment: Attachment
    snapshot: int = -1  # that the open transaction reads
    renewed: set[str] = field(default_factory=set)  # tables that it has dropped or made

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """For one statement, which is a sign of life."""
        pulse.beat()
        return self.session

    @property
    def name(self) -> str:
        """The catalog's quoted name."""
        return identifier(self.attachment.alias)

    @property
    def metadata(self) -> str:
        """The quoted name of the database that holds DuckLake's own tables."""
        return identifier(f"__ducklake_metadata_{self.attachment.alias}")

    @property
    def shared(self) -> bool:
        """Whether others may commit while it is attached."""
        return self.attachment.address.shared

    def begin(self) -> None:
        """Open a transaction; everything in it reads the lake's newest snapshot of now."""
        self.connection.execute("BEGIN")
        self.renewed.clear()
        if self.shared:
            self.snapshot = self._newest()
            if self._was_restored():
                # DuckLake, too, remembers what it has read under these numbers.
                self.rollback()
                _detach(self.connection, self.attachment)
                self.attachment = _attach(self.connection, self.attachment.address, create=False)
                self.begin()
            return
        stamp = self._stamp()
        self.snapshot = stamp[0]
        left, known = _left.get(self.attachment.address, (None, None))
        if left == stamp:  # nobody has been there since
            self.attachment.known_snapshot, self.attachment.known = self.snapshot, known

    def commit(self) -> None:
        """Commit changes as the next snapshot; a race lost to anybody else raises."""
        self.connection.execute("COMMIT")
        self.snapshot += 1  # DuckLake makes one attempt, and that is the number it takes
        if self.shared:
            self.attachment.committed = self.snapshot, self._time_of(self.snapshot)

    def has_moved(self) -> bool:
        """Whether somebody has committed since the last transaction began."""
        return self._newest() != self.snapshot

    def leave(self) -> None:
        """Before a file catalog is let go: keep what is known of it."""
        if self.attachment.known_snapshot == self.snapshot:
            _left[self.attachment.address] = self._stamp(), self.attachment.known

    def _newest(self) -> int:
        if not self.shared:
            return self._stamp()[0]
        # It must be the one that the transaction reads, not one that came since.
        newest = f"FROM ducklake_current_snapshot({literal(self.attachment.alias)})"
        found = self.connection.execute(newest).fetchone()
        assert found is not None
        return int(found[0])

    def _was_restored(self) -> bool:
        """Whether the catalog has lost our last commit, or holds another one under its number."""
        if self.attachment.committed is None:
            return False
        number, committed_at = self.attachment.committed
        if self.snapshot < number:
            return True
        found = self._time_of(number)
        return found is not None and found != committed_at  # None: expired by now

    def _time_of(self, snapshot: int) -> object:
        found = self.connection.execute(
            f"SELECT snapshot_time FROM {self.metadata}.ducklake_snapshot WHERE snapshot_id = {snapshot}"
        ).fetchone()
        return None if found is None else found[0]

    def _stamp(self) -> Stamp:
        found = self.connection.execute(
            "SELECT max(snapshot_id), arg_max(snapshot_time, snapshot_id) "
            f"FROM {self.metadata}.ducklake_snapshot"
        ).fetchone()
        assert found is not None
        return int(found[0]), found[1]

    def rollback(self) -> None:
        """End the transaction without an effect, whatever state it is in."""
        with suppress(duckdb.TransactionException):  # a failed commit has ended it already
            self.session.execute("ROLLBACK")


def session() -> duckdb.DuckDBPyConnection:
    """A new connection to this process's DuckDB; what it does is a sign of life of this thread."""
    connection = _cursor()
    pulse.watch(connection)
    return connection


def _cursor() -> duckdb.DuckDBPyConnection:
    """DuckDB is made on first use, and again after a fork."""
    global _root, _owner_pid, _large
    with _lock:
        if _root is None or _owner_pid != os.getpid():
            _idle.clear()
            _large = 0
            _root, _owner_pid = connect(), os.getpid()
            # One attempt for each commit: a retry inside DuckLake would look only at the changes of the
            # snapshots that still exist, and miss a takeover whose snapshot the tenant has expired.
            _root.execute("SET ducklake_max_retry_count = 1")
        return _root.cursor()


@contextmanager
def all_cores() -> Iterator[None]:
    """While a large order is written, DuckDB may use every core; for a small one, waking them up costs more
    than they do."""
    _count_large(1)
    try:
        yield
    finally:
        _count_large(-1)


def _count_large(change: int) -> None:
    global _large
    with closing(_cursor()) as connection, _lock:
        _large += change
        connection.execute(f"SET threads = {os.cpu_count() if _large else 1}")


@contextmanager
def attached(
    connection: duckdb.DuckDBPyConnection, address: LakeAddress, *, create: bool = False
) -> Iterator[Lake]:
    """The lake, for the duration of a block. What fails in it is not used again."""
    lake = Lake(connection, _usable(connection, address) or _attach(connection, address, create=create))
    try:
        yield lake
    except BaseException:
        with suppress(duckdb.Error):  # the connection may be what failed
            lake.rollback()
        _detach(connection, lake.attachment)
        raise
    if address.shared:
        _give_back(connection, address, lake.attachment)
    else:
        lake.leave()
        connection.execute(f"DETACH {lake.name}")


def forget() -> None:
    """Detach all lakes that are kept."""
    with closing(session()) as connection:
        _forget(connection)


def _forget(connection: duckdb.DuckDBPyConnection) -> int:
    """How many there were."""
    with _lock:
        kept = [attachment for attachments in _idle.values() for attachment in attachments]
        _idle.clear()
    for attachment in kept:
        _detach(connection, attachment)
    return len(kept)


def _attach(connection: duckdb.DuckDBPyConnection, address: LakeAddress, *, create: bool) -> Attachment:
    attachment = Attachment(f"sink_{next(_aliases)}", address)
    if create:
        refuse_plain_database(address)
        _make_folders(address)
    new_file = create and _is_new_file(address)
    try:
        attach(connection, address, attachment.alias, create=create, small_blocks=new_file)
    except duckdb.Error:
        # Perhaps the server has no connection left because we keep them.
        if address.kind != "postgres" or not _forget(connection):
            raise
        attach(connection, address, attachment.alias, create=create, small_blocks=new_file)
    attachment.file = _file_id(address)
    return attachment


def _file_id(address: LakeAddress) -> FileId | None:
    if address.kind != "sqlite":
        return None
    with suppress(OSError):
        found = os.stat(address.target.reveal())
        return found.st_dev, found.st_ino
    return None


def _is_new_file(address: LakeAddress) -> bool:
    """A catalog is small and written anew with every detach. In DuckDB's large blocks an almost empty one
    has six megabytes, and a flush takes a fifth longer."""
    return address.kind == "duckdb" and not Path(address.target.reveal()).exists()


def _make_folders(address: LakeAddress) -> None:
    if address.kind != "postgres":
        Path(address.target.reveal()).parent.mkdir(parents=True, exist_ok=True)
    if address.data_path is not None and not is_remote(address.data_path):
        Path(address.data_path).mkdir(parents=True, exist_ok=True)


def _usable(connection: duckdb.DuckDBPyConnection, address: LakeAddress) -> Attachment | None:
    """One that is kept. If another file stands in the catalog's place, the old one is written to nowhere."""
    attachment = _take(address)
    while attachment is not None and attachment.file != _file_id(address):
        _detach(connection, attachment)
        attachment = _take(address)
    return attachment


def _take(address: LakeAddress) -> Attachment | None:
    with _lock:
        kept = _idle.pop(address, [])
        attachment = kept.pop() if kept else None
        if kept:
            _idle[address] = kept
        return attachment


def _give_back(connection: duckdb.DuckDBPyConnection, address: LakeAddress, attachment: Attachment) -> None:
    """Keep it if there is room. Waves come to all sinks in turn: when there are more than the pool holds,
    throwing out the least recently used would throw out each one just before its turn."""
    attachment.used_at_s = time.monotonic()
    surplus = [attachment]
    with _lock:
        kinds = [kept for kept in _idle if kept.kind == address.kind]
        unused = next(iter(kinds), None)  # for longest
        if sum(len(_idle[kept]) for kept in kinds) < KEPT_MAX[address.kind]:
            surplus = []
        elif unused is not None and _idle[unused][-1].used_at_s < attachment.used_at_s - KEPT_S:
            surplus = _idle.pop(unused)
        if attachment not in surplus:
            _idle[address] = [*_idle.pop(address, []), attachment]
    for one in surplus:
        _detach(connection, one)


def _detach(connection: duckdb.DuckDBPyConnection, attachment: Attachment) -> None:
    with suppress(duckdb.Error):  # already gone, or beyond reach: the next call attaches anew
        connection.execute(f"DETACH {identifier(attachment.alias)}")
