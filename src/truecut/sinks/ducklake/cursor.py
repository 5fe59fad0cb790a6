"""The cursor and the fence of a DuckLake sink: the table `_truecut.cursor`, one row for each commit.

The construction, and why each part is needed:
- the table holds a row of the pipeline before anything else is written;
- every commit reads the newest row, stops unless token and position are its own, and INSERTs the next row
  (small: it stays inlined in the catalog);
- a takeover UPDATEs all rows of the pipeline to its token. An update conflicts with a concurrent insert
  where two inserts would pass each other;
- DuckLake's own retry is off: whoever loses a race redoes the whole transaction, reads included.
Rows of other pipelines in the same lake are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from truecut.errors import require
from truecut.model.cursor import Cursor
from truecut.model.position import Position
from truecut.sinks.ducklake.pool import Lake

SCHEMA = "_truecut"
TABLE = "cursor"
ROWS_MAX = 64  # more are thinned out to the newest by the commit that finds them


@dataclass(frozen=True, slots=True)
class CursorRow:
    """The newest row of a pipeline, and how many there are."""

    cursor: Cursor
    number: int
    rows: int


def read_cursor(lake: Lake, pipeline: str) -> CursorRow | None:
    """The newest row, as this transaction sees it; None when the pipeline has none."""
    found = lake.connection.execute(
        f"SELECT position, token, state, number, count(*) OVER () FROM {_table(lake)} "
        "WHERE pipeline = ? ORDER BY number DESC LIMIT 1",
        [pipeline],
    ).fetchone()
    if found is None:
        return None
    position, token, state, number, rows = found
    place = None if position is None else Position.parse(position)
    return CursorRow(Cursor.from_json(state, position=place, token=token), number, rows)


def write_cursor(lake: Lake, pipeline: str, cursor: Cursor, *, previous: CursorRow) -> None:
    """The next row, in the transaction that wrote the data."""
    _insert(lake, pipeline, cursor, number=previous.number + 1)
    if previous.rows >= ROWS_MAX:
        lake.connection.execute(
            f"DELETE FROM {_table(lake)} WHERE pipeline = ? AND number < ?", [pipeline, previous.number]
        )


def take_over(lake: Lake, pipeline: str, *, token: int) -> CursorRow:
    """Make the pipeline's rows ours, creating what is missing. A larger token at the sink is kept.

    Runs inside a transaction; the caller compares the token of what is returned with its own.
    """
    row = _existing_row(lake, pipeline)
    if row is None:
        first = Cursor(position=None, token=token)
        _insert(lake, pipeline, first, number=1)
        return CursorRow(first, number=1, rows=1)
    if row.cursor.token >= token:
        return row
    changed = lake.connection.execute(
        f"UPDATE {_table(lake)} SET token = ? WHERE pipeline = ?", [token, pipeline]
    ).fetchone()
    require(changed == (row.rows,), "a takeover changes every cursor row of its pipeline")
    current = read_cursor(lake, pipeline)
    require(current is not None and current.cursor.token == token, "a takeover leaves its own token")
    assert current is not None
    return current


def _existing_row(lake: Lake, pipeline: str) -> CursorRow | None:
    try:
        return read_cursor(lake, pipeline)
    except duckdb.CatalogException:
        connection = lake.connection
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {lake.name}.{SCHEMA}")
        connection.execute(
            f"CREATE TABLE {_table(lake)} (pipeline VARCHAR, number BIGINT, position VARCHAR, token BIGINT, "
            "state VARCHAR, applied_at TIMESTAMPTZ)"
        )
        return None


def _insert(lake: Lake, pipeline: str, cursor: Cursor, *, number: int) -> None:
    position = None if cursor.position is None else str(cursor.position)
    lake.connection.execute(
        f"INSERT INTO {_table(lake)} VALUES (?, ?, ?, ?, ?, now())",
        [pipeline, number, position, cursor.token, cursor.to_json()],
    )


def _table(lake: Lake) -> str:
    return f"{lake.name}.{SCHEMA}.{TABLE}"
