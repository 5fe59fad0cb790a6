"""The normal form: net changes per key, from images of rows before and after.

`before` and `after` are SQL queries that give (place, x0, x1, …): the rows as they were and as they are,
for each place. For each place and key:
    both, same route     → UPDATE (nothing when the row is the same)
    both, another route  → DELETE of the old row, INSERT of the new one
    only before          → DELETE
    only after           → INSERT
So feed and difference give the same rows. Keys decide, never row ids: those collide and are reused.
"""

from __future__ import annotations

import duckdb

from truecut.lake import identifier
from truecut.model.change import COMMITTED_AT, DELETE, INSERT, OP, PLACE, SEQ, UPDATE
from truecut.sources.ducklake.schema import Shape


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


def keep_net(connection: duckdb.DuckDBPyConnection, shape: Shape, *, before: str, after: str) -> None:
    """Make the temporary table `net`: one row for each place and key that changed."""
    old = ", ".join(f"o.x{n} AS o{n}" for n in range(len(shape.schema.columns)))
    new = ", ".join(f"n.x{n} AS n{n}" for n in range(len(shape.schema.columns)))
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE net AS
            SELECT coalesce(o.place, n.place) AS place,
                   o.place IS NOT NULL AS was, n.place IS NOT NULL AS is_now,
                   was AND is_now AND ({other_route(shape)}) AS moved, {old}, {new}
            FROM ({before}) o FULL JOIN ({after}) n ON o.place = n.place AND {same_key(shape)}
            WHERE o.place IS NULL OR n.place IS NULL OR NOT ({unchanged(shape)})"""
    )


def changes_sql(shape: Shape, *, bucket: int = 0, buckets: int = 1) -> str:
    """The rows of `net` in the form of `model.change`; `times` maps a place to its commit."""
    columns = range(len(shape.schema.columns))
    old = ", ".join(f"o{n} AS x{n}" for n in columns)
    new = ", ".join(f"n{n} AS x{n}" for n in columns)
    names = ", ".join(
        f"x{n} AS {identifier(name)}" for n, name in zip(columns, shape.schema.names, strict=True)
    )
    order = ", ".join(f"x{place}" for place in key_places(shape))
    return f"""
        WITH changes AS (
            SELECT {DELETE} AS op, place, {old} FROM net WHERE was AND (NOT is_now OR moved)
            UNION ALL
            SELECT CASE WHEN was AND NOT moved THEN {UPDATE} ELSE {INSERT} END, place, {new}
            FROM net WHERE is_now)
        SELECT op::UTINYINT AS {OP}, place::UBIGINT AS {PLACE},
               ((row_number() OVER (PARTITION BY place ORDER BY op <> {DELETE}, {order}) - 1) * {buckets}
                + {bucket})::BIGINT AS {SEQ},
               committed_at AS {COMMITTED_AT}, {names}
        FROM changes JOIN times USING (place)"""


def _same_value(shape: Shape, place: int) -> str:
    same = f"o.x{place} IS NOT DISTINCT FROM n.x{place}"
    kind = shape.schema.columns[place].type
    if kind in ("FLOAT", "DOUBLE"):  # 0.0 = -0.0, yet they are not the same value
        return f"{same} AND signbit(o.x{place}) IS NOT DISTINCT FROM signbit(n.x{place})"
    if "FLOAT" in kind or "DOUBLE" in kind:
        return f"o.x{place}::VARCHAR IS NOT DISTINCT FROM n.x{place}::VARCHAR"
    return same
