"""Values that the source did not send because they did not change: absent, which is not NULL.

Column by column, a row takes them from the latest change that told them. Changes of one row are a *line*:
those of a key from its insert to its delete; where the row moved to another key, the line goes on there. A
line that began before the window has the rest of its values in the sink's own row, under the key that it
began with; a line that began with an insert has nobody who knows them.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from truecut.lake import identifier, literal
from truecut.model.change import DELETE, INSERT, OP, PLACE, SEQ, UNCHANGED

FIRST_OP = "_truecut_first_op"
UNTOLD = "_truecut_untold"  # names of the columns that the window does not tell
_NUMBER, _LIFE, _BORN, _LAST = "_truecut_number", "_truecut_life", "_truecut_born", "_truecut_last"
_LINE, _BEGAN = "_truecut_line", "_truecut_began"


def origin(key: str) -> str:
    """The column with that part of the key under which the sink has the row."""
    return identifier(f"_truecut_origin_{key}")


def merge(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    keys: str,
    *,
    key: Sequence[str],
    absent: Sequence[str],
) -> tuple[tuple[str, ...], int]:
    """Make `{rows}_net` of the changes: the last one of each key, with all that the window tells of its row.

    Returns the columns that are still to be taken from the sink, for the rows that name them in UNTOLD, by
    the key in `origin`; and how many rows have values that nobody knows. `keys` is SQL to partition by the
    key.
    """
    _lives(connection, rows, keys)
    _lines(connection, rows)
    told = [f"_truecut_told_{i}" for i, _ in enumerate(absent)]
    latest = ", ".join(
        f"last_value(CASE WHEN {_tells(name)} THEN struct_pack(v := {identifier(name)}) END IGNORE NULLS) "
        f"OVER line AS {found}"
        for name, found in zip(absent, told, strict=True)
    )
    origins = ", ".join(f"first_value({identifier(name)}) OVER line AS {origin(name)}" for name in key)
    values = ", ".join(f"{found}.v AS {identifier(name)}" for name, found in zip(absent, told, strict=True))
    missing = ", ".join(
        f"CASE WHEN {OP} <> {DELETE} AND {found} IS NULL THEN {literal(name)} END"
        for name, found in zip(absent, told, strict=True)
    )
    connection.execute(
        f"CREATE TEMP TABLE {rows}_net AS SELECT * EXCLUDE ({', '.join(told)}) REPLACE ({values}), "
        f"list_filter([{missing}], lambda name: name IS NOT NULL) AS {UNTOLD} "
        f"FROM (SELECT *, {latest}, {origins}, first_value({OP}) OVER line AS {_BEGAN} FROM {rows}_lives "
        f"LEFT JOIN {rows}_lines USING ({_BORN}) WINDOW line AS (PARTITION BY coalesce({_LINE}, {_BORN}) "
        f"ORDER BY {_NUMBER} ROWS UNBOUNDED PRECEDING)) WHERE {_LAST}"
    )
    connection.execute(f"DROP TABLE {rows}_lives")
    untold = ", ".join(f"bool_or(list_contains({UNTOLD}, {literal(name)}))" for name in absent)
    found = connection.execute(
        f"SELECT count(*) FILTER ({_BEGAN} = {INSERT}), {untold} FROM {rows}_net WHERE len({UNTOLD}) > 0"
    ).fetchone()
    assert found is not None
    return tuple(name for name, some in zip(absent, found[1:], strict=True) if some), found[0]


def _tells(column: str) -> str:
    return f"{OP} <> {DELETE} AND NOT coalesce(list_contains({UNCHANGED}, {literal(column)}), false)"


def _lives(connection: duckdb.DuckDBPyConnection, rows: str, keys: str) -> None:
    """Every change with its number, and that of the first change of its life: an insert begins a new one."""
    connection.execute(
        f"CREATE TEMP TABLE {rows}_lives AS SELECT * EXCLUDE ({_LIFE}), "
        f"min({_NUMBER}) OVER (PARTITION BY {keys}, {_LIFE}) AS {_BORN} FROM (SELECT *, "
        f"row_number() OVER (ORDER BY {PLACE}, {SEQ}) AS {_NUMBER}, "
        f"first_value({OP}) OVER w AS {FIRST_OP}, lead({OP}) OVER w IS NULL AS {_LAST}, "
        f"count(*) FILTER ({OP} = {INSERT}) OVER w AS {_LIFE} FROM {rows} "
        f"WINDOW w AS (PARTITION BY {keys} ORDER BY {PLACE}, {SEQ}))"
    )


def _lines(connection: duckdb.DuckDBPyConnection, rows: str) -> None:
    """Lives that go on those of other keys: a row that moved was deleted right before it was inserted."""
    connection.execute(
        f"CREATE TEMP TABLE {rows}_lines AS WITH RECURSIVE moves AS MATERIALIZED (SELECT i.{_BORN} AS born, "
        f"d.{_BORN} AS origin FROM {rows}_lives i JOIN {rows}_lives d ON d.{PLACE} = i.{PLACE} "
        f"AND d.{SEQ} = i.{SEQ} - 1 WHERE i.{OP} = {INSERT} AND len(i.{UNCHANGED}) > 0 "
        f"AND d.{OP} = {DELETE}), "
        f"lines AS (SELECT born, origin AS line FROM moves WHERE origin NOT IN (SELECT born FROM moves) "
        "UNION ALL SELECT moves.born, lines.line FROM lines JOIN moves ON moves.origin = lines.born) "
        f"SELECT born AS {_BORN}, line AS {_LINE} FROM lines"
    )
