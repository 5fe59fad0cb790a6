"""The normal form: net changes per key, from images of rows before and after.

`before` and `after` are SQL queries that give (place, x0, x1, …): the rows as they were and as they are,
for each place. For each place and key:
    both, same route     → UPDATE (nothing when the row is the same)
    both, another route  → DELETE of the old row, INSERT of the new one
    only before          → DELETE
    only after           → INSERT
So feed and difference give the same rows. Keys decide, never row ids: those collide and are reused.

A row of `net` is one place and key: what became of it, the row as it is (or was, when it is gone), and, for
a row that moved to another route, the old row beside it. It is written once and streamed from there.
"""

from __future__ import annotations

import duckdb

from truecut.lake import identifier
from truecut.model.change import COMMITTED_AT, DELETE, INSERT, OP, PLACE, SEQ, UPDATE
from truecut.sources.ducklake.schema import Shape

# What became of a key, beside INSERT, UPDATE and DELETE: never leaves this module.
_SAME, _MOVED = 0, 255


def aliases(prefix: str, shape: Shape) -> list[str]:
    """Names that cannot collide with a user's: x0, x1, …"""
    return [f"{prefix}{n}" for n in range(len(shape.schema.columns))]


def key_places(shape: Shape) -> list[int]:
    """Where the key's columns stand in the row."""
    return [shape.schema.names.index(name) for name in shape.table.key]


def same_key(shape: Shape) -> str:
    """When an old row `o` and a new row `n` are the same row. The key decides."""
    return " AND ".join(f"o.x{place} = n.x{place}" for place in key_places(shape))


def other_route(shape: Shape) -> str:
    """When the row moved from one route to another."""
    if shape.table.route_by is None:
        return "false"
    place = shape.schema.names.index(shape.table.route_by)
    return f"o.x{place} IS DISTINCT FROM n.x{place}"


def unchanged(shape: Shape) -> str:
    """When both rows are the same in every column."""
    others = [n for n in range(len(shape.schema.columns)) if n not in key_places(shape)]
    return " AND ".join(_same_value(shape, place) for place in others) or "true"


def keep_net(
    connection: duckdb.DuckDBPyConnection,
    shape: Shape,
    *,
    before: str | None,
    after: str,
    whole: bool = False,
) -> None:
    """Make the temporary table `net`: one row for each place and key that changed.

    A `whole` one holds those that did not, too: it has a key twice at a place exactly when a side has.
    """
    rows = _inserted_sql(shape, after) if before is None else _joined_sql(shape, before, after, whole)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE net AS {rows}")


def changes_sql(shape: Shape, *, numbered: bool, bucket: int = 0, buckets: int = 1) -> str:
    """The rows of `net` in the form of `model.change`; `times` maps a place to its commit.

    Only numbering has to sort. Otherwise the rows are streamed as they lie.
    """
    names = ", ".join(f"x{n} AS {identifier(name)}" for n, name in enumerate(shape.schema.names))
    seq = _number(shape, bucket, buckets) if numbered else f"op <> {DELETE}"
    return f"""
        SELECT op::UTINYINT AS {OP}, place::UBIGINT AS {PLACE}, ({seq})::BIGINT AS {SEQ},
               committed_at AS {COMMITTED_AT}, {names}
        FROM ({_rows_sql(shape)}) JOIN times USING (place)"""


def _joined_sql(shape: Shape, before: str, after: str, whole: bool) -> str:
    columns = range(len(shape.schema.columns))
    rows = ", ".join(f"CASE WHEN n.place IS NULL THEN o.x{n} ELSE n.x{n} END AS x{n}" for n in columns)
    moved = "".join(f", CASE WHEN op = {_MOVED} THEN o.x{n} END AS o{n}" for n in _old_columns(shape))
    wanted = "" if whole else f"WHERE o.place IS NULL OR n.place IS NULL OR NOT ({unchanged(shape)})"
    # Keys are looked up in the old rows, the right side: where there are none, new ones just pass.
    return f"""
        SELECT coalesce(n.place, o.place) AS place, {_became(shape)}::UTINYINT AS op, {rows}{moved}
        FROM ({after}) n FULL JOIN ({before}) o ON o.place = n.place AND {same_key(shape)} {wanted}"""


def _inserted_sql(shape: Shape, after: str) -> str:
    rows = ", ".join(aliases("x", shape))
    moved = "".join(f", CASE WHEN false THEN x{n} END AS o{n}" for n in _old_columns(shape))
    return f"SELECT place, {INSERT}::UTINYINT AS op, {rows}{moved} FROM ({after})"


def _became(shape: Shape) -> str:
    return f"""CASE WHEN o.place IS NULL THEN {INSERT} WHEN n.place IS NULL THEN {DELETE}
                    WHEN {other_route(shape)} THEN {_MOVED} WHEN {unchanged(shape)} THEN {_SAME}
                    ELSE {UPDATE} END"""


def _rows_sql(shape: Shape) -> str:
    """(op, place, x0, x1, …) of each change: those that moved give two."""
    rows = ", ".join(aliases("x", shape))
    sql = f"SELECT if(op = {_MOVED}, {INSERT}, op) AS op, place, {rows} FROM net WHERE op <> {_SAME}"
    old = _old_columns(shape)
    if old:
        deleted = ", ".join(f"o{n}" for n in old)
        sql += f" UNION ALL SELECT {DELETE}, place, {deleted} FROM net WHERE op = {_MOVED}"
    return sql


def _old_columns(shape: Shape) -> range:
    """The columns of an old row that is kept beside the new one; without routes nothing moves."""
    return range(0 if shape.table.route_by is None else len(shape.schema.columns))


def _number(shape: Shape, bucket: int, buckets: int) -> str:
    """Distinct within a place, across buckets, too; by key, so that a repeat gives the same."""
    key = ", ".join(f"x{place}" for place in key_places(shape))
    number = f"row_number() OVER (PARTITION BY place ORDER BY op <> {DELETE}, {key}) - 1"
    return f"({number}) * {buckets} + {bucket}"


def _same_value(shape: Shape, place: int) -> str:
    same = f"o.x{place} IS NOT DISTINCT FROM n.x{place}"
    kind = shape.schema.columns[place].type
    if kind in ("FLOAT", "DOUBLE"):  # 0.0 = -0.0, yet they are not the same value
        return f"{same} AND signbit(o.x{place}) IS NOT DISTINCT FROM signbit(n.x{place})"
    if "FLOAT" in kind or "DOUBLE" in kind:
        return f"o.x{place}::VARCHAR IS NOT DISTINCT FROM n.x{place}::VARCHAR"
    return same
