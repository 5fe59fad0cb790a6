"""A look into the control store that leaves no trace: nothing is created, written or locked.

For commands that only tell what would be done. A store that does not exist is an empty one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from truecut.config.secret import Secret
from truecut.runtime.control import is_postgres, require_whole, unreachable, unusable

_GENERATIONS = "SELECT identity, generation FROM truecut_source WHERE pipeline = ?"
_SINKS = (
    "SELECT sink FROM truecut_sink WHERE pipeline = ? UNION SELECT sink FROM truecut_lease WHERE pipeline = ?"
)


@dataclass(frozen=True, slots=True)
class Known:
    """What the store remembers of a pipeline: its source's generations, the sinks it ever had."""

    exists: bool
    generations: Mapping[str, int] = field(default_factory=dict)
    sinks: frozenset[str] = frozenset()

    def generation(self, identity: str, *, at_least: int) -> int:
        """The generation that a run would give this source."""
        latest = max(self.generations.values(), default=0)
        return max(self.generations.get(identity, latest + 1), at_least)


def peek(address: Secret, *, pipeline: str) -> Known:
    """Read the store; TruecutError when it is there but cannot be used."""
    text = address.reveal()
    if is_postgres(text):
        return _postgres(text, pipeline)
    path = Path(text)
    return _sqlite(path, pipeline) if path.exists() and path.stat().st_size else Known(exists=False)


def _sqlite(path: Path, pipeline: str) -> Known:
    # Without a write-ahead log nobody has the file open, and without "immutable" SQLite would make one.
    alone = "" if os.path.exists(f"{path}-wal") else "&immutable=1"
    try:
        require_whole(path)
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro{alone}", uri=True, timeout=10)
        try:
            verdict = connection.execute("PRAGMA quick_check").fetchone()
            if verdict != ("ok",):
                raise sqlite3.DatabaseError("damaged")
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'truecut_sink'").fetchone():
                return Known(exists=False)
            generations = connection.execute(_GENERATIONS, (pipeline,)).fetchall()
            sinks = connection.execute(_SINKS, (pipeline, pipeline)).fetchall()
        finally:
            connection.close()
    except (sqlite3.DatabaseError, OSError) as error:
        raise unusable(path, error) from error
    return _known(generations, sinks)


def _postgres(dsn: str, pipeline: str) -> Known:
    import psycopg

    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            connection.read_only = True
            there = connection.execute("SELECT to_regclass('truecut_sink')").fetchone()
            if there == (None,):
                return Known(exists=False)
            generations = connection.execute(_for_postgres(_GENERATIONS), (pipeline,)).fetchall()
            sinks = connection.execute(_for_postgres(_SINKS), (pipeline, pipeline)).fetchall()
    except psycopg.Error:
        raise unreachable() from None
    return _known(generations, sinks)


def _for_postgres(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _known(generations: list[tuple[Any, ...]], sinks: list[tuple[Any, ...]]) -> Known:
    return Known(
        exists=True,
        generations={str(identity): int(generation) for identity, generation in generations},
        sinks=frozenset(str(row[0]) for row in sinks),
    )
