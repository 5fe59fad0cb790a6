"""The control store under simulation: SQLite in memory, behind connections that fail.

`ControlStore` itself is the real one. A connection belongs to a process: it refuses while the store is down,
may lose the answer of a transaction that has committed, and may be where its process is killed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.runtime.simulation.clockwork import Clockwork
from tests.runtime.simulation.process import Killed, Process
from truecut.runtime.control import _TABLES
from truecut.runtime.database import unreachable

TABLES = tuple(
    f"truecut_{name}" for name in ("lease", "runner", "sink", "source", "tally", "rows", "unrouted")
)


@dataclass
class StoreTroubles:
    """How likely each trouble is in one transaction."""

    kill: float = 0.0
    answer_lost: float = 0.0


class Store:
    """One database that the connections of all processes share."""

    def __init__(self, clockwork: Clockwork) -> None:
        self.clockwork = clockwork
        self.troubles = StoreTroubles()
        self.down_until_ms = 0
        self.database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in _TABLES:
            self.database.execute(statement)

    @property
    def is_down(self) -> bool:
        """Whether nobody can reach it now."""
        return self.clockwork.now_ms < self.down_until_ms

    def lose(self) -> None:
        """Everything that it knew is gone."""
        for table in TABLES:
            self.database.execute(f"DELETE FROM {table}")

    def owners(self) -> set[str]:
        """Sinks with a lease that has not ended."""
        now_ms = self.clockwork.stamp_us() // 1_000
        query = "SELECT sink FROM truecut_lease WHERE owner IS NOT NULL AND expires_ms > ?"
        return {sink for (sink,) in self.database.execute(query, (now_ms,)).fetchall()}

    def rows_counted(self) -> dict[tuple[str, str], int]:
        """By sink and table, as `status` would tell."""
        rows = self.database.execute("SELECT sink, name, applied FROM truecut_rows").fetchall()
        return {(sink, table): applied for sink, table, applied in rows}

    def close(self) -> None:
        """The end of this life."""
        self.database.close()


class Connection:
    """What `ControlStore` runs on, for one process."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store = store
        self._process = process

    @contextmanager
    def transaction(self, pipeline: str, *, reading: bool = False) -> Iterator[None]:
        """All or nothing, and perhaps no answer."""
        store = self._store
        coin = store.clockwork.rng.random()
        self._maybe_die(coin < store.troubles.kill / 2)
        if store.is_down:
            raise unreachable()
        store.database.execute("BEGIN")
        try:
            yield
        except BaseException:
            store.database.execute("ROLLBACK")
            raise
        store.database.execute("COMMIT")
        self._maybe_die(coin > 1 - store.troubles.kill / 2)
        if store.clockwork.happens(store.troubles.answer_lost):
            raise unreachable()

    def _maybe_die(self, now: bool) -> None:
        if now or self._process.killed:
            raise Killed

    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]:
        """One statement."""
        if sql.startswith("SELECT"):
            return self._store.database.execute(sql, rows[0]).fetchall()
        if rows or "?" in sql:
            self._store.database.executemany(sql, rows)
        else:
            self._store.database.execute(sql)
        return []

    def now_us(self) -> int:
        """The store's clock."""
        return self._store.clockwork.stamp_us()

    def close(self) -> None:
        """The store stays."""
