"""The cursor and the fence of a DuckLake sink: the table `_truecut.cursor`, one row for each commit.

The construction, and why each part is needed:
- the table holds a row of the pipeline before anything else is written;
- every commit reads the newest row, stops unless the token is its own and the copies that it moves are as it
  expects, and INSERTs the next row (small: it stays inlined in the catalog);
- a takeover UPDATEs all rows of the pipeline to its token. An update conflicts with a concurrent insert
  where two inserts would pass each other;
- DuckLake's own retry is off: whoever loses a race redoes the whole transaction, reads included.
A row that is known from this very snapshot of the lake is not read again. Rows of other pipelines in the
same lake are never touched.

Reading inlined rows makes DuckLake load its catalog a second time, as of when the table was created: a
quarter of a small order on a DuckDB-file catalog. There, where nobody else can commit meanwhile, the rows
are read from where the format keeps inlined rows, as long as all of them are in that one place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb

from truecut.errors import require
from truecut.lake import identifier, literal
from truecut.model.cursor import Cursor
from truecut.model.position import Position, text_of
from truecut.sinks.ducklake.pool import Lake

SCHEMA = "_truecut"
TABLE = "cursor"
ROWS_MAX = 64  # more are thinned out to the newest by the commit that finds them


@dataclass(frozen=True, slots=True)
class CursorRow:
    """The newest row of a pipeline, and how many there are."""

    pipeline: str
    cursor: Cursor
    number: int
    rows: int


def read_cursor(lake: Lake, pipeline: str) -> CursorRow | None:
    """The newest row, as this transaction sees it; None when the pipeline has none."""
    known = lake.attachment.known
    unchanged = lake.attachment.known_snapshot == lake.snapshot  # nobody has committed since
    if unchanged and isinstance(known, CursorRow) and known.pipeline == pipeline:
        return known
    return _select(lake, pipeline)


def find_cursor(connection: duckdb.DuckDBPyConnection, lake: str, pipeline: str) -> Cursor | None:
    """What stands in an attached lake (by its quoted name), for whoever only looks; None also when there is
    no cursor table."""
    try:
        row = _newest(connection, f"{lake}.{SCHEMA}.{TABLE} WHERE", pipeline)
    except duckdb.CatalogException:
        return None
    return None if row is None else row.cursor


def remember(lake: Lake, row: CursorRow) -> None:
    """After a commit: what the lake's newest snapshot holds."""
    lake.attachment.known_snapshot, lake.attachment.known = lake.snapshot, row


def _select(lake: Lake, pipeline: str) -> CursorRow | None:
    inlined = None if lake.shared else _inlined_table(lake)
    rows_of = f"{_table(lake)} WHERE" if inlined is None else f"{inlined} WHERE end_snapshot IS NULL AND"
    return _newest(lake.connection, rows_of, pipeline)


def _newest(connection: duckdb.DuckDBPyConnection, rows_of: str, pipeline: str) -> CursorRow | None:
    found = connection.execute(
        f"SELECT position, token, state, number, count(*) OVER () FROM {rows_of} "
        # Not bound: DuckDB would import pandas for that, most of what a look at a sink costs.
        f"pipeline = {literal(pipeline)} ORDER BY number DESC LIMIT 1"
    ).fetchone()
    if found is None:
        return None
    position, token, state, number, rows = found
    place = None if position is None else Position.parse(position)
    return CursorRow(pipeline, Cursor.from_json(state, position=place, token=token), number, rows)


def _inlined_table(lake: Lake) -> str | None:
    """Where the format keeps the cursor's rows, if they are all in one table of the catalog database."""
    found = lake.connection.execute(
        f"SELECT i.table_name, (SELECT count(*) FROM {lake.metadata}.ducklake_data_file f "
        "WHERE f.table_id = t.table_id AND f.end_snapshot IS NULL) "
        f"FROM {lake.metadata}.ducklake_schema s JOIN {lake.metadata}.ducklake_table t USING (schema_id) "
        f"JOIN {lake.metadata}.ducklake_inlined_data_tables i USING (table_id) "
        "WHERE s.schema_name = ? AND t.table_name = ? AND s.end_snapshot IS NULL AND t.end_snapshot IS NULL",
        [SCHEMA, TABLE],
    ).fetchall()
    if len(found) != 1 or found[0][1]:
        return None
    return f"{lake.metadata}.{identifier(found[0][0])}"


def write_cursor(lake: Lake, cursor: Cursor, *, previous: CursorRow) -> CursorRow:
    """The next row, in the transaction that wrote the data."""
    row = CursorRow(previous.pipeline, cursor, previous.number + 1, previous.rows + 1)
    _insert(lake, row)
    if previous.rows < ROWS_MAX:
        return row
    lake.connection.execute(
        f"DELETE FROM {_table(lake)} WHERE pipeline = ? AND number < ?", [row.pipeline, previous.number]
    )
    return replace(row, rows=2)


def take_over(lake: Lake, pipeline: str, *, token: int) -> tuple[CursorRow | None, CursorRow]:
    """Make the pipeline's rows ours, creating what is missing; a larger token at the sink is kept.

    Returns the newest row before and after; the caller commits if they differ.
    """
    row = _existing_row(lake, pipeline)
    if row is None:
        first = CursorRow(pipeline, Cursor(position=None, token=token), number=1, rows=1)
        _insert(lake, first)
        return None, first
    if row.cursor.token >= token:
        return row, row
    raise_token(lake, row, token=token)
    return row, replace(row, cursor=replace(row.cursor, token=token))


def raise_token(lake: Lake, row: CursorRow, *, token: int) -> None:
    """Put the token into all rows of the pipeline. An update that finds none would raise nothing."""
    changed = lake.connection.execute(
        f"UPDATE {_table(lake)} SET token = ? WHERE pipeline = ?", [token, row.pipeline]
    ).fetchone()
    require(changed == (row.rows,), "a takeover changes every cursor row of its pipeline")


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


def _insert(lake: Lake, row: CursorRow) -> None:
    lake.connection.execute(
        f"INSERT INTO {_table(lake)} VALUES (?, ?, ?, ?, ?, now())",
        [row.pipeline, row.number, text_of(row.cursor.position), row.cursor.token, row.cursor.to_json()],
    )


def _table(lake: Lake) -> str:
    return f"{lake.name}.{SCHEMA}.{TABLE}"
