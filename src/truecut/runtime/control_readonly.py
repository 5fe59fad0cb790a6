"""A look into the control store that leaves no trace: nothing is created, written or locked.

For commands that only tell what is, or what would be done. A store that does not exist is an empty one.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.runtime.control import Reports, read_reports
from truecut.runtime.database import is_postgres, require_whole, unreachable, unusable
from truecut.runtime.totals import Run, unrouted

_GENERATIONS = "SELECT identity, generation FROM truecut_source WHERE pipeline = ?"
_SINKS = (
    "SELECT sink FROM truecut_sink WHERE pipeline = ? UNION SELECT sink FROM truecut_lease WHERE pipeline = ?"
)
_LAST = "truecut_unrouted"  # the last table that is made: with it, all are there

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Known:
    """What the store remembers of a pipeline: its source's generations, the sinks it ever had."""

    exists: bool
    generations: Mapping[str, int] = field(default_factory=dict)
    sinks: frozenset[str] = frozenset()
    unrouted: Mapping[str, int] = field(default_factory=dict)  # rows that no sink wanted, by table

    def generation(self, identity: str, *, at_least: int) -> int:
        """The generation that a run would give this source."""
        latest = max(self.generations.values(), default=0)
        return max(self.generations.get(identity, latest + 1), at_least)


def peek(address: Secret, *, pipeline: str) -> Known:
    """What the store remembers; TruecutError when it is there but cannot be used."""
    found = _ask(address, lambda run, _: _known(run, pipeline))
    return Known(exists=False) if found is None else found


def peek_reports(address: Secret, *, pipeline: str) -> Reports:
    """What runners have told; TruecutError when the store is there but cannot be used."""
    found = _ask(address, lambda run, now_ms: read_reports(run, pipeline, now_ms=now_ms))
    return Reports(running=False, runners={}, sinks={}) if found is None else found


def _known(run: Run, pipeline: str) -> Known:
    generations = run(_GENERATIONS, (pipeline,))
    return Known(
        exists=True,
        generations={str(identity): int(generation) for identity, generation in generations},
        sinks=frozenset(str(row[0]) for row in run(_SINKS, (pipeline, pipeline))),
        unrouted=unrouted(run, pipeline),
    )


# --- asking without a trace ---------------------------------------------------------------------------


def _ask(address: Secret, question: Callable[[Run, int], Answer]) -> Answer | None:
    """The answer to (what runs a query, the time in ms); None when there is no store."""
    text = address.reveal()
    if is_postgres(text):
        return _ask_postgres(text, question)
    path = Path(text)
    return _ask_sqlite(path, question) if path.exists() and path.stat().st_size else None


def _ask_sqlite(path: Path, question: Callable[[Run, int], Answer]) -> Answer | None:
    # Without a write-ahead log nobody has the file open, and without "immutable" SQLite would make one.
    if not os.path.exists(f"{path}-wal"):
        try:
            return _ask_file(path, "&immutable=1", question)
        except TruecutError:
            if not os.path.exists(f"{path}-wal"):  # nobody has begun to write meanwhile
                raise
    return _ask_file(path, "", question)


def _ask_file(path: Path, alone: str, question: Callable[[Run, int], Answer]) -> Answer | None:
    try:
        require_whole(path)
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro{alone}", uri=True, timeout=10, isolation_level=None
        )
        try:
            verdict = connection.execute("PRAGMA quick_check").fetchone()
            if verdict != ("ok",):
                raise sqlite3.DatabaseError("damaged")
            if not connection.execute(f"SELECT 1 FROM sqlite_master WHERE name = '{_LAST}'").fetchone():
                return None
            connection.execute("BEGIN")  # all answers of one moment
            return question(lambda sql, row: connection.execute(sql, row).fetchall(), time.time_ns() // 10**6)
        finally:
            connection.close()
    except (sqlite3.DatabaseError, OSError) as error:
        raise unusable(path, error) from error


def _ask_postgres(dsn: str, question: Callable[[Run, int], Answer]) -> Answer | None:
    import psycopg

    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            if connection.execute(f"SELECT to_regclass('{_LAST}')".encode()).fetchone() == (None,):
                return None
            now = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            now_ms = int((now.fetchone() or (0,))[0])
            return question(
                lambda sql, row: connection.execute(sql.replace("?", "%s").encode(), row).fetchall(), now_ms
            )
    except psycopg.Error:
        raise unreachable() from None
