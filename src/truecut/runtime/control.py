"""The control store: leases with fencing tokens, the runners that are alive, and what they report.

SQLite beside the pipeline by default, PostgreSQL when several machines run one pipeline. Losing it costs
time, never data: cursors and tokens are in the sinks, too. Every call is one transaction, whatever the
number of sinks.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from truecut.config.secret import Secret
from truecut.errors import ExitCode, TruecutError
from truecut.model.position import Position

_TABLES = """
CREATE TABLE IF NOT EXISTS truecut_lease (
  pipeline TEXT NOT NULL, sink TEXT NOT NULL, owner TEXT, token BIGINT NOT NULL, expires_ms BIGINT NOT NULL,
  PRIMARY KEY (pipeline, sink));
CREATE TABLE IF NOT EXISTS truecut_runner (
  pipeline TEXT NOT NULL, runner TEXT NOT NULL, expires_ms BIGINT NOT NULL, report TEXT NOT NULL,
  PRIMARY KEY (pipeline, runner));
CREATE TABLE IF NOT EXISTS truecut_sink (
  pipeline TEXT NOT NULL, sink TEXT NOT NULL, report TEXT NOT NULL,
  PRIMARY KEY (pipeline, sink));
CREATE TABLE IF NOT EXISTS truecut_source (
  pipeline TEXT NOT NULL, identity TEXT NOT NULL, generation BIGINT NOT NULL,
  PRIMARY KEY (pipeline, identity));
"""

_PAGE_BYTES_MIN = 512  # every SQLite file is a multiple of it


class _Database(Protocol):
    """The little that SQLite and PostgreSQL have to do alike."""

    def transaction(self, pipeline: str) -> Any: ...
    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]: ...
    def now_us(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reports:
    """What the runners last said. `running` is False when none of them is alive."""

    running: bool
    runners: Mapping[str, dict[str, Any]]
    sinks: Mapping[str, dict[str, Any]]


class ControlStore:
    """The store of one pipeline, for one runner (or for a command that only looks)."""

    def __init__(self, database: _Database, *, pipeline: str) -> None:
        self._db = database
        self._pipeline = pipeline
        with self._db.transaction(pipeline):
            for statement in _TABLES.split(";"):
                if statement.strip():
                    self._db.run(statement)

    def close(self) -> None:
        """Give the connection back."""
        self._db.close()

    # --- leases ---------------------------------------------------------------------------------------

    def heartbeat(self, runner: str, *, duration_ms: int, report: Mapping[str, Any]) -> tuple[set[str], int]:
        """Renew everything that is still ours; returns our sinks and the number of live runners.

        A lease that ran out is not renewed, even when nobody took it: what happened meanwhile is unknown.
        """
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            self._db.run(
                "INSERT INTO truecut_runner VALUES (?, ?, ?, ?) ON CONFLICT (pipeline, runner)"
                " DO UPDATE SET expires_ms = excluded.expires_ms, report = excluded.report",
                (self._pipeline, runner, now + duration_ms, json.dumps(report)),
            )
            self._db.run(
                "UPDATE truecut_lease SET expires_ms = ? WHERE pipeline = ? AND owner = ? AND expires_ms > ?",
                (now + duration_ms, self._pipeline, runner, now),
            )
            held = self._db.run(
                "SELECT sink FROM truecut_lease WHERE pipeline = ? AND owner = ? AND expires_ms > ?",
                (self._pipeline, runner, now),
            )
            alive = self._db.run(
                "SELECT count(*) FROM truecut_runner WHERE pipeline = ? AND expires_ms > ?",
                (self._pipeline, now),
            )
        return {row[0] for row in held}, int(alive[0][0])

    def claim(self, runner: str, sinks: Iterable[str], *, duration_ms: int, count_max: int) -> dict[str, int]:
        """Lease up to `count_max` of these sinks that nobody holds. Each gets a token never given before,
        larger than all before it."""
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            rows = self._db.run(
                "SELECT sink, token, owner, expires_ms FROM truecut_lease WHERE pipeline = ?",
                (self._pipeline,),
            )
            known = {row[0]: row[1:] for row in rows}
            free = [s for s in sinks if s not in known or known[s][1] is None or int(known[s][2]) <= now][
                :count_max
            ]
            # From the clock: should the store be lost, new tokens still exceed those the sinks have seen.
            clock = self._db.now_us()
            tokens = {s: max(int(known[s][0]) + 1 if s in known else 1, clock) for s in free}
            self._write_leases(runner, tokens, now + duration_ms)
        return tokens

    def raise_token(self, runner: str, above: Mapping[str, int], *, duration_ms: int) -> dict[str, int]:
        """New tokens above what the sinks have seen: the store was lost, or somebody else is ahead.

        Only for sinks that `runner` still holds.
        """
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            rows = self._db.run(
                "SELECT sink, token FROM truecut_lease WHERE pipeline = ? AND owner = ? AND expires_ms > ?",
                (self._pipeline, runner, now),
            )
            tokens = {s: max(int(token), above[s]) + 1 for s, token in rows if s in above}
            self._write_leases(runner, tokens, now + duration_ms)
        return tokens

    def release(self, runner: str, sinks: Iterable[str]) -> None:
        """Give leases back, so that another runner need not wait."""
        with self._db.transaction(self._pipeline):
            rows = [(self._pipeline, runner, sink) for sink in sinks]
            self._db.run(
                "UPDATE truecut_lease SET owner = NULL WHERE pipeline = ? AND owner = ? AND sink = ?", *rows
            )

    def leave(self, runner: str) -> None:
        """A clean stop: release everything and sign off."""
        with self._db.transaction(self._pipeline):
            self._db.run(
                "UPDATE truecut_lease SET owner = NULL WHERE pipeline = ? AND owner = ?",
                (self._pipeline, runner),
            )
            self._db.run(
                "UPDATE truecut_runner SET expires_ms = 0 WHERE pipeline = ? AND runner = ?",
                (self._pipeline, runner),
            )

    def _now_ms(self) -> int:
        return self._db.now_us() // 1_000

    def _write_leases(self, runner: str, tokens: Mapping[str, int], expires_ms: int) -> None:
        self._db.run(
            "INSERT INTO truecut_lease VALUES (?, ?, ?, ?, ?) ON CONFLICT (pipeline, sink) DO UPDATE SET"
            " owner = excluded.owner, token = excluded.token, expires_ms = excluded.expires_ms",
            *((self._pipeline, sink, runner, token, expires_ms) for sink, token in tokens.items()),
        )

    # --- the source's generation ----------------------------------------------------------------------

    def generation(self, identity: str, *, at_least: int = 1) -> int:
        """The generation of this source: a new identity gets a new, larger one."""
        with self._db.transaction(self._pipeline):
            rows = self._db.run(
                "SELECT identity, generation FROM truecut_source WHERE pipeline = ?", (self._pipeline,)
            )
            known = {row[0]: int(row[1]) for row in rows}
            generation = known.get(identity, max(known.values(), default=0) + 1)
            generation = max(generation, at_least)
            self._db.run(
                "INSERT INTO truecut_source VALUES (?, ?, ?) ON CONFLICT (pipeline, identity)"
                " DO UPDATE SET generation = excluded.generation",
                (self._pipeline, identity, generation),
            )
        return generation

    # --- reports --------------------------------------------------------------------------------------

    def report_sinks(self, reports: Mapping[str, Mapping[str, Any]]) -> None:
        """What `status` shows of these sinks."""
        with self._db.transaction(self._pipeline):
            self._db.run(
                "INSERT INTO truecut_sink VALUES (?, ?, ?) ON CONFLICT (pipeline, sink)"
                " DO UPDATE SET report = excluded.report",
                *((self._pipeline, sink, json.dumps(report)) for sink, report in reports.items()),
            )

    def reports(self) -> Reports:
        """Everything that was reported last."""
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            runners = self._db.run(
                "SELECT runner, report, expires_ms FROM truecut_runner WHERE pipeline = ?", (self._pipeline,)
            )
            sinks = self._db.run(
                "SELECT sink, report FROM truecut_sink WHERE pipeline = ?", (self._pipeline,)
            )
        return Reports(
            running=any(int(expires) > now for _, _, expires in runners),
            runners={r: json.loads(report) for r, report, expires in runners if int(expires) > now},
            sinks={sink: json.loads(report) for sink, report in sinks},
        )

    def positions(self) -> dict[str, Position]:
        """Where the sinks stand, as their runners reported last."""
        places = {name: report["position"] for name, report in self.reports().sinks.items()}
        return {name: Position.parse(place) for name, place in places.items() if place is not None}

    def forget(self) -> None:
        """Remove this pipeline from the store."""
        with self._db.transaction(self._pipeline):
            for table in ("lease", "runner", "sink", "source"):
                self._db.run(f"DELETE FROM truecut_{table} WHERE pipeline = ?", (self._pipeline,))


def open_control(address: Secret, *, pipeline: str) -> ControlStore:
    """A file path, or `postgresql://…`."""
    text = address.reveal()
    if is_postgres(text):
        return ControlStore(_Postgres(text), pipeline=pipeline)
    return ControlStore(_open_sqlite(Path(text)), pipeline=pipeline)


def is_postgres(address: str) -> bool:
    """Whether the address is a server's, and not a file's."""
    return address.startswith(("postgresql://", "postgres://"))


class _Sqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def transaction(self, pipeline: str) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has ended it already
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise unusable(self._path, error) from error

    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]:
        if sql.startswith("SELECT"):
            return self._connection.execute(sql, rows[0]).fetchall()
        if rows or "?" in sql:
            self._connection.executemany(sql, rows)
        else:
            self._connection.execute(sql)
        return []

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def close(self) -> None:
        self._connection.close()


def unusable(path: Path, error: Exception) -> TruecutError:
    """The file is damaged or no control store at all; or it is right, but cannot be used now."""
    if isinstance(error, (sqlite3.OperationalError, OSError)):
        reason = getattr(error, "sqlite_errorname", None) or type(error).__name__
        return TruecutError(
            "TC5013",
            f"the control store {path} cannot be opened or written now ({reason})",
            fix="Check room and permissions of its folder, and that no other program holds the file.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        )
    return TruecutError(
        "TC5010",
        f"the control store {path} cannot be used ({type(error).__name__})",
        fix="Move the file away: it is made anew, cursors are in the sinks, nothing is lost.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def require_whole(path: Path) -> None:
    """A file that was cut off inside its last page, which SQLite itself does not notice."""
    if path.is_file() and path.stat().st_size % _PAGE_BYTES_MIN:
        raise sqlite3.DatabaseError("cut off")


def _open_sqlite(path: Path) -> _Sqlite:
    try:
        require_whole(path)
        database = _Sqlite(path)
        database.run("SELECT count(*) FROM sqlite_master WHERE name <> ?", ("",))
    except (sqlite3.DatabaseError, OSError) as error:
        raise unusable(path, error) from error
    return database


def unreachable() -> TruecutError:
    """No server, no database, or no permission; the driver's own text may repeat the connection string."""
    return TruecutError(
        "TC5011",
        "the control store (PostgreSQL) cannot be reached",
        fix="Check server, database and password in `control:`.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


class _Postgres:
    def __init__(self, dsn: str) -> None:
        import psycopg

        try:
            self._connection = psycopg.connect(dsn, autocommit=True, connect_timeout=10)
        except psycopg.Error as error:
            raise unreachable() from error

    @contextmanager
    def transaction(self, pipeline: str) -> Iterator[None]:
        # One writer at a time for a pipeline, as with SQLite's BEGIN IMMEDIATE.
        with self._connection.transaction():
            self._connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"truecut/{pipeline}",)
            )
            yield

    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]:
        statement = sql.replace("?", "%s").encode()
        if sql.startswith("SELECT"):
            return self._connection.execute(statement, rows[0]).fetchall()
        if rows or "?" in sql:
            with self._connection.cursor() as cursor:
                cursor.executemany(statement, rows)
        else:
            self._connection.execute(statement)
        return []

    def now_us(self) -> int:
        row = self._connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int((row.fetchone() or (0,))[0])

    def close(self) -> None:
        self._connection.close()
