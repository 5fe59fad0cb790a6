"""The net effect of a window on a mirror, key by key: the latest change wins.

Finds what cannot be, before the sink is touched: a NULL key, a key twice in a seed, a key inserted while
it was live or changed after its delete. Messages name counts, never keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import duckdb

from truecut.lake import identifier
from truecut.model.change import DELETE, INSERT, OP, PLACE, SEQ
from truecut.model.table import TableSchema

FIRST_OP = "_truecut_first_op"
# Keys of these types are looked for only in files whose range they fall into.
_RANGED = frozenset(
    [
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "VARCHAR",
    ]
)
Stop = tuple[str, str]  # code and message


@dataclass(frozen=True, slots=True)
class Net:
    """One row for each key, in `relation`: OP is its last change, `first_op` names that of its first."""

    relation: str
    first_op: str
    keys: int
    live_before: int  # keys whose first change is not an insert: the sink must have them
    puts: int  # keys whose last change is not a delete: the sink will have them
    deletes: int  # keys that the sink had and will not have
    ranges: tuple[KeyRange, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyRange:
    """All of the window's values of a key column lie in it."""

    column: str
    type: str
    least: str
    greatest: str


def resolve(
    connection: duckdb.DuckDBPyConnection, table: str, rows: str, *, key: tuple[str, ...], schema: TableSchema
) -> tuple[Net | None, Stop | None]:
    """Reduce staged changes to one for each key. Keys that changed once need no work at all."""
    keys = ", ".join(map(identifier, key))
    ranged = [column for column in schema.columns if column.name in key and column.type in _RANGED]
    bounds = "".join(
        f", min({identifier(c.name)})::VARCHAR, max({identifier(c.name)})::VARCHAR" for c in ranged
    )
    count, distinct, nulls, *found = _row(
        connection,
        f"SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT {keys} FROM {rows})), "
        f"count(*) FILTER ({_null(key)}){bounds} FROM {rows}",
    )
    if nulls:
        return None, ("TC3021", f"{table}: {nulls} changes have a NULL in their key")
    ranges = tuple(
        KeyRange(column.name, column.type, *found[2 * i : 2 * i + 2]) for i, column in enumerate(ranged)
    )
    if count == distinct:
        return replace(_net(connection, rows, OP), ranges=ranges), None
    window = f"PARTITION BY {keys} ORDER BY {PLACE}, {SEQ}"
    (broken,) = _row(  # a key is inserted exactly after its delete
        connection,
        f"SELECT count(*) FROM (SELECT {OP} AS op, lag({OP}) OVER ({window}) AS previous FROM {rows}) "
        f"WHERE (op = {INSERT}) <> (previous = {DELETE})",
    )
    if broken:
        message = (
            f"{table}: {broken} changes contradict earlier ones of the same key (an insert of a live key, or "
            "a change after a delete); the key is not unique at the source"
        )
        return None, ("TC3022", message)
    connection.execute(
        f"CREATE TEMP TABLE {rows}_net AS SELECT *, first_value({OP}) OVER w AS {FIRST_OP} FROM {rows} "
        f"WINDOW w AS ({window}) QUALIFY lead({OP}) OVER w IS NULL"
    )
    return replace(_net(connection, f"{rows}_net", FIRST_OP), ranges=ranges), None


def seed_faults(
    connection: duckdb.DuckDBPyConnection, table: str, rows: str, *, key: tuple[str, ...]
) -> Stop | None:
    """A seed in which a key occurs twice, or is NULL in part, cannot be a mirror."""
    keys = ", ".join(map(identifier, key))
    nulls, repeated = _row(
        connection,
        "SELECT count(*) FILTER (missing), count(*) FILTER (NOT missing AND times > 1) FROM "
        f"(SELECT bool_or({_null(key)}) AS missing, count(*) AS times FROM {rows} GROUP BY {keys} "
        "HAVING missing OR times > 1)",
    )
    if nulls:
        return "TC3021", f"{table}: {nulls} keys have a NULL in them"
    if repeated:
        return "TC3020", f"{table}: {repeated} keys occur more than once at the source; choose another key"
    return None


def _net(connection: duckdb.DuckDBPyConnection, relation: str, first_op: str) -> Net:
    found = _row(
        connection,
        f"SELECT count(*), count(*) FILTER ({first_op} <> {INSERT}), count(*) FILTER ({OP} <> {DELETE}), "
        f"count(*) FILTER ({first_op} <> {INSERT} AND {OP} = {DELETE}) FROM {relation}",
    )
    return Net(relation, first_op, *found)


def _null(key: tuple[str, ...]) -> str:
    return " OR ".join(f"{identifier(name)} IS NULL" for name in key)


def _row(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = connection.execute(sql).fetchone()
    assert found is not None
    return found
