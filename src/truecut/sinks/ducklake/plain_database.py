"""A catalog's file that holds tables of somebody's own and no lake: no lake is made in it.

A server's database is another matter: lakes are often kept beside tables of other programs there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import duckdb

from truecut.lake import LakeAddress, literal

_MARK = "ducklake_metadata"  # the table that every lake's catalog has


def refuse_plain_database(address: LakeAddress) -> None:
    """Raises as DuckLake does where it may not make a lake. Nothing is written, whatever is there."""
    if not address.is_file or address.is_missing:
        return
    path = address.target.reveal()
    names = _in_sqlite(path) if address.kind == "sqlite" else _in_duckdb(path)
    if names and _MARK not in names:
        raise duckdb.InvalidInputException(
            "a lake in a database that has other tables is explicitly disabled"
        )


def _in_sqlite(path: str) -> set[str]:
    """None of a file that is no such database: whoever attaches it says what it is."""
    address = f"{Path(path).as_uri()}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as reader:
        own = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        return {name for (name,) in reader.execute(own) if not name.startswith("sqlite_")}
    return set()


def _in_duckdb(path: str) -> set[str]:
    """By a DuckDB of its own: one that has other lakes attached asks each of them for its tables."""
    with duckdb.connect(config={"threads": 1}) as reader:
        reader.execute(f"ATTACH {literal(path)} AS plain (READ_ONLY, TYPE duckdb)")
        found = reader.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'plain' UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE database_name = 'plain' AND NOT internal"
        ).fetchall()
    return {str(name) for (name,) in found}
