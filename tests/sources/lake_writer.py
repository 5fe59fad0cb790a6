"""A DuckLake as its owner uses it: plain DuckDB that attaches, commits, lets go."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import duckdb

from truecut.lake import LakeAddress, attach_sql, connect


class LakeWriter:
    """Attaches when it has something to say. `release` lets others into a DuckDB-file catalog."""

    def __init__(self, address: LakeAddress, *, inlining: int | None = None) -> None:
        self.address = address
        self._connection = connect()
        self._attached = False
        self._connection.execute(attach_sql(address, "lake", create=True))
        self._connection.execute("DETACH lake")
        if inlining is not None:
            self.run(f"CALL lake.set_option('data_inlining_row_limit', {inlining})")

    def release(self) -> None:
        """Let the lake go until the next call."""
        if self._attached:
            self._connection.execute("USE memory")
            self._connection.execute("DETACH lake")
            self._attached = False

    def _lake(self) -> duckdb.DuckDBPyConnection:
        if not self._attached:
            self._connection.execute(attach_sql(self.address, "lake"))
            self._connection.execute("USE lake")
            self._attached = True
        return self._connection

    def run(self, *statements: str) -> None:
        """One commit for each statement (or as they say themselves)."""
        for statement in statements:
            self._lake().execute(statement)

    def rollback(self) -> None:
        """End what a failed statement left open."""
        with suppress(duckdb.Error):
            self._connection.execute("ROLLBACK")

    def transaction(self, *statements: str) -> None:
        """One commit for all of them."""
        self.run("BEGIN", *statements, "COMMIT")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The answer of the native client."""
        return self._lake().execute(sql).fetchall()

    def head(self) -> int:
        """The newest snapshot."""
        return int(self.rows("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0])

    def snapshots(self) -> list[int]:
        """The surviving snapshots."""
        rows = self.rows("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")
        return [int(row[0]) for row in rows]

    def table(self, name: str, *, at: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """A table's columns and rows, now or at a snapshot."""
        version = "" if at is None else f" AT (VERSION => {at})"
        result = self._lake().execute(f"SELECT * FROM lake.{name}{version}")
        return [column[0] for column in result.description or []], result.fetchall()

    def close(self) -> None:
        """Let the connection go."""
        self.release()
        self._connection.close()
