"""The databases that a control store may be in: SQLite, PostgreSQL. The little that they have to do alike.

Owns one connection, which is opened when it is needed and again after anything went wrong with it: a server
that restarts, a file that somebody locks, a disk that is full for a while. Promises: whatever the driver
raises comes out as a TruecutError that says whether a retry can help, and holds none of the driver's text
(it may repeat the connection string); no call waits longer than a minute or so, even for a server that
says nothing at all, or for a process that was stopped inside a write to the file: then it is said which; one
transaction at a time; who only reads waits for no writer.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from truecut.errors import ExitCode, Retry, TruecutError
from truecut.lock_holder import is_stopped, writer_of

if TYPE_CHECKING:
    import psycopg

CONNECT_S = 10
ANSWER_S = 15.0  # for a whole transaction; a server that was stopped, or whose cable was cut, says nothing
_PAGE_BYTES_MIN = 512  # every SQLite file is a multiple of it


class Database(Protocol):
    """What the store needs."""

    def transaction(self, pipeline: str, *, reading: bool = False) -> Any: ...
    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]: ...
    def now_us(self) -> int: ...
    def close(self) -> None: ...


def is_postgres(address: str) -> bool:
    """Whether the address is a server's, and not a file's."""
    return address.startswith(("postgresql://", "postgres://"))


# --- SQLite -------------------------------------------------------------------------------------------


class Sqlite:
    """A file beside the pipeline. `tables` are made wherever they are missing."""

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        self._path = path
        self._tables = tables
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        with self.transaction("", reading=True):
            pass

    @contextmanager
    def transaction(self, pipeline: str, *, reading: bool = False) -> Iterator[None]:
        with self._lock:
            try:
                connection = self._connected()
                connection.execute("BEGIN" if reading else "BEGIN IMMEDIATE")
                try:
                    yield
                    connection.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):  # a full disk has ended it already
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                self._drop()
                raise unusable(self._path, error) from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            require_whole(self._path)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self._path, timeout=CONNECT_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            for statement in self._tables:
                self._connection.execute(statement)
        return self._connection

    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]:
        assert self._connection is not None, "inside a transaction"
        if sql.startswith("SELECT"):
            return self._connection.execute(sql, rows[0]).fetchall()
        self._connection.executemany(sql, rows)
        return []

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def close(self) -> None:
        with self._lock:
            self._drop()


def require_whole(path: Path) -> None:
    """A file that was cut off inside its last page, which SQLite itself does not notice."""
    if path.is_file() and path.stat().st_size % _PAGE_BYTES_MIN:
        raise sqlite3.DatabaseError("cut off")


def unusable(path: Path, error: Exception) -> TruecutError:
    """The file is damaged or no control store at all; or it is right, but cannot be used now."""
    if isinstance(error, (sqlite3.OperationalError, OSError)):
        reason = getattr(error, "sqlite_errorname", None) or type(error).__name__
        if reason.startswith("SQLITE_BUSY"):
            return _kept_out(path, writer_of(path))
        return TruecutError(
            "TC5013",
            f"the control store {path} cannot be opened or written now ({reason})",
            fix="Check room and permissions of its folder, and that no other program holds the file.",
            retry=Retry.RETRYABLE,
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        )
    return TruecutError(
        "TC5010",
        f"the control store {path} cannot be used ({type(error).__name__})",
        fix="Move the file away: it is made anew, cursors are in the sinks, nothing is lost.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def _kept_out(path: Path, pid: int | None) -> TruecutError:
    """Its transactions take milliseconds: who keeps one open for so long is not at work. One code, whether or
    not the writer can be named, so that the trouble is announced once: it may leave while we wait."""
    named = "another process" if pid is None else f"process {pid}"
    state = ", which is stopped" if pid is not None and is_stopped(pid) else ""
    return TruecutError(
        "TC5014",
        f"the control store {path} is being written by {named}{state}",
        fix=f"Let it go on (`kill -CONT {pid or 'PID'}`) or end it; "
        "a running pipeline tries again by itself.",
        retry=Retry.RETRYABLE,
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


# --- PostgreSQL ---------------------------------------------------------------------------------------


class Postgres:
    """A server, when several machines run one pipeline. `tables` are made wherever they are missing."""

    def __init__(self, dsn: str, tables: Sequence[str]) -> None:
        self._dsn = dsn
        self._tables = tables
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        with self.transaction(""):
            pass

    @contextmanager
    def transaction(self, pipeline: str, *, reading: bool = False) -> Iterator[None]:
        import psycopg

        with self._lock:
            try:
                connection = self._connected()
                with _answering(connection), connection.transaction():
                    if not reading:
                        self._alone(connection, pipeline)
                    yield
            except psycopg.Error as error:
                self._drop()
                raise unreachable(error) from None

    def _alone(self, connection: psycopg.Connection[Any], pipeline: str) -> None:
        """One writer at a time for a pipeline, as with SQLite's BEGIN IMMEDIATE."""
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        connection.execute(lock, (f"truecut/{pipeline}",))

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            import psycopg

            self._connection = psycopg.connect(self._dsn, autocommit=True, connect_timeout=CONNECT_S)
            connection = self._connection
            with _answering(connection), connection.transaction():
                self._alone(connection, "")  # two that make one table at the same time would clash
                for statement in self._tables:
                    connection.execute(statement.encode())
        return self._connection

    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]:
        assert self._connection is not None, "inside a transaction"
        statement = sql.replace("?", "%s").encode()
        if sql.startswith("SELECT"):
            return self._connection.execute(statement, rows[0]).fetchall()
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)
        return []

    def now_us(self) -> int:
        assert self._connection is not None, "inside a transaction"
        row = self._connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int((row.fetchone() or (0,))[0])

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        with self._lock:
            self._drop()


@contextmanager
def _answering(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Hang up on a server that does not answer: the driver then raises instead of waiting for ever."""
    line = socket.socket(fileno=os.dup(connection.fileno()))
    watch = threading.Timer(ANSWER_S, _hang_up, [line])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
        line.close()


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def unreachable(error: Exception | None = None) -> TruecutError:
    """No server, no database, or no permission; the driver's own text may repeat the connection string."""
    reason = "" if error is None else f" ({type(error).__name__})"
    return TruecutError(
        "TC5011",
        f"the control store (PostgreSQL) cannot be reached or used{reason}",
        fix="Check server, database and password in `control:`; a running pipeline tries again by itself.",
        retry=Retry.RETRYABLE,
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )
