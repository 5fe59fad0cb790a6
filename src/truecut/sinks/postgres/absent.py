"""Values that the source did not send because they did not change: absent, which is not NULL.

Column by column, a row takes them from the latest change that told them. Changes of one row are a *line*:
those of a key from its insert to its delete; where the row moved to another key, the line goes on there. A
line that began before the window has the rest of its values in the sink's own row, under the key that it
began with; a line that began with an insert has nobody who knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from truecut.model.change import DELETE, INSERT, OP, PLACE, SEQ, UNCHANGED
from truecut.sinks.postgres.server import Connection, identifier, literal, row, run

FIRST_OP = "_truecut_first_op"
UNTOLD = "_truecut_untold"  # names of the columns that the window does not tell
NUMBER = "_truecut_number"
# Places are unsigned: their bits travel in a bigint, and sort by this.
BY_PLACE = f"({PLACE} # (-9223372036854775808)::bigint)"
_LIFE, _BORN, _LAST = "_truecut_life", "_truecut_born", "_truecut_last"
_LINE, _BEGAN = "_truecut_line", "_truecut_began"


def origin(part: int) -> str:
    """The column with that part of the key under which the sink has the row."""
    return f"_truecut_origin_{part}"


def merge(
    connection: Connection,
    relation: str,
    columns: Sequence[str],
    keys: Mapping[str, str],
    absent: Sequence[str],
) -> tuple[tuple[str, ...], int]:
    """Make `{relation}_net` of the changes: the last one of each key, with all that the window tells of it.

    Returns the columns that are still to be taken from the sink, for the rows that name them in UNTOLD, by
    the key in `origin`; and how many rows have values that nobody knows. `columns` are all of the table,
    `keys` its key as in `stage.keys_of`.
    """
    _lives(connection, relation, keys)
    _lines(connection, relation)
    run(connection, f"ANALYZE {relation}_lives, {relation}_lines")
    sources = {name: f"_truecut_told_{i}" for i, name in enumerate(absent)}
    latest = ", ".join(
        f"max({NUMBER}) FILTER (WHERE {_tells(c)}) OVER line AS {s}" for c, s in sources.items()
    )
    values = ", ".join(
        f"{f'{sources[name]}.' if name in sources else 'l.'}{identifier(name)}" for name in columns
    )
    origins = ", ".join(f"began.{name} AS {origin(i)}" for i, name in enumerate(keys))
    missing = ", ".join(
        f"CASE WHEN l.{OP} <> {DELETE} AND l.{source} IS NULL THEN {literal(name)} END"
        for name, source in sources.items()
    )
    joins = " ".join(f"LEFT JOIN {relation}_lives {s} ON {s}.{NUMBER} = l.{s}" for s in sources.values())
    run(
        connection,
        f"CREATE TEMPORARY TABLE {relation}_net AS SELECT l.{OP}, l.{FIRST_OP}, l.{NUMBER}, "
        f"{values}, {origins}, began.{OP} AS {_BEGAN}, array_remove(ARRAY[{missing}], NULL) AS {UNTOLD} "
        f"FROM (SELECT *, {latest}, min({NUMBER}) OVER line AS {_BEGAN} "
        f"FROM {relation}_lives LEFT JOIN {relation}_lines USING ({_BORN}) "
        f"WINDOW line AS (PARTITION BY coalesce({_LINE}, {_BORN}))) l "
        f"JOIN {relation}_lives began ON began.{NUMBER} = l.{_BEGAN} {joins} WHERE l.{_LAST}",
    )
    run(connection, f"DROP TABLE {relation}_lives, {relation}_lines")
    run(connection, f"ANALYZE {relation}_net")
    untold = ", ".join(f"bool_or({literal(name)} = ANY ({UNTOLD}))" for name in absent)
    lost, *found = row(
        connection,
        f"SELECT count(*) FILTER (WHERE {_BEGAN} = {INSERT}), {untold} FROM {relation}_net "
        f"WHERE cardinality({UNTOLD}) > 0",
    )
    return tuple(name for name, some in zip(absent, found, strict=True) if some), lost


def _tells(column: str) -> str:
    return f"{OP} <> {DELETE} AND ({literal(column)} = ANY ({UNCHANGED})) IS NOT TRUE"


def _lives(connection: Connection, relation: str, keys: Mapping[str, str]) -> None:
    """Every change with its number, and that of the first change of its life: an insert begins a new one."""
    partition = ", ".join(keys.values())
    run(
        connection,
        f"CREATE TEMPORARY TABLE {relation}_lives AS SELECT *, "
        f"min({NUMBER}) OVER (PARTITION BY {partition}, {_LIFE}) AS {_BORN} FROM (SELECT *, "
        f"row_number() OVER (ORDER BY {BY_PLACE}, {SEQ}) AS {NUMBER}, "
        f"first_value({OP}) OVER w AS {FIRST_OP}, "
        f"lead({OP}) OVER w IS NULL AS {_LAST}, count(*) FILTER (WHERE {OP} = {INSERT}) OVER w AS {_LIFE} "
        f"FROM {relation} WINDOW w AS (PARTITION BY {partition} ORDER BY {BY_PLACE}, {SEQ})) c",
    )


def _lines(connection: Connection, relation: str) -> None:
    """Lives that go on those of other keys: a row that moved was deleted right before it was inserted."""
    run(
        connection,
        f"CREATE TEMPORARY TABLE {relation}_lines AS WITH RECURSIVE moves AS MATERIALIZED (SELECT "
        f"i.{_BORN} AS born, d.{_BORN} AS origin FROM {relation}_lives i JOIN {relation}_lives d "
        f"ON d.{PLACE} = i.{PLACE} AND d.{SEQ} = i.{SEQ} - 1 WHERE i.{OP} = {INSERT} "
        f"AND cardinality(i.{UNCHANGED}) > 0 AND d.{OP} = {DELETE}), lines AS (SELECT born, origin AS line "
        "FROM moves WHERE origin NOT IN (SELECT born FROM moves) UNION ALL SELECT moves.born, lines.line "
        f"FROM lines JOIN moves ON moves.origin = lines.born) "
        f"SELECT born AS {_BORN}, line AS {_LINE} FROM lines",
    )
