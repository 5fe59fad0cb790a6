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

from truecut.errors import require
from truecut.lake import identifier, literal, sortable
from truecut.model.change import COMMITTED_AT, DELETE, INSERT, OP, PLACE, SEQ, UPDATE
from truecut.model.table import Column
from truecut.sources.ducklake.schema import Shape

SEQS_MAX = 1 << 40  # changes of one table in one snapshot
# What became of a key, beside INSERT, UPDATE and DELETE: never leaves this module.
_SAME, _MOVED = 0, 255


def first_seq(table_id: int) -> int:
    """Where the numbers of a table's changes begin: each table of a snapshot has a range of its own, so that
    a number names a change of the whole snapshot. By the catalog's own id: the same for whoever reads."""
    require(0 <= table_id < (1 << 63) // SEQS_MAX, "a table's id leaves room for its changes")
    return table_id * SEQS_MAX


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
    # Routes are texts: 0.0 = -0.0, yet they are two routes.
    return f"o.x{place}::VARCHAR IS DISTINCT FROM n.x{place}::VARCHAR"


def unchanged(shape: Shape) -> str:
    """When both rows are the same in every column, bit for bit."""
    keys = key_places(shape)
    compared = [
        (place, column)
        for place, column in enumerate(shape.schema.columns)
        if place not in keys or _has_floats(column)  # keys are equal, which for floats is not the same
    ]
    return " AND ".join(_same_value(place, column) for place, column in compared) or "true"


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


def changes_sql(
    shape: Shape, *, numbered: bool, first_seq: int = 0, bucket: int = 0, buckets: int = 1
) -> str:
    """The rows of `net` in the form of `model.change`; `times` maps a place to its commit.

    Only numbering has to sort. Otherwise the rows are streamed as they lie.
    """
    names = ", ".join(f"x{n} AS {identifier(name)}" for n, name in enumerate(shape.schema.names))
    seq = f"{first_seq} + {_number(shape, bucket, buckets)}" if numbered else f"op <> {DELETE}"
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
    key = ", ".join(sortable(f"x{place}", shape.schema.columns[place]) for place in key_places(shape))
    number = f"row_number() OVER (PARTITION BY place ORDER BY op <> {DELETE}, {key}) - 1"
    return f"({number}) * {buckets} + {bucket}"


def _same_value(place: int, column: Column) -> str:
    old, new = f"o.x{place}", f"n.x{place}"
    same = f"{old} IS NOT DISTINCT FROM {new}"
    if not _has_floats(column):
        return same
    bits = f"{_bits(old, column)} IS NOT DISTINCT FROM {_bits(new, column)}"
    if column.kind != "scalar":
        return bits
    # Only zeros and NaNs are equal and yet not the same: few have to be spelled out.
    return f"{same} AND ({old} <> 0 AND NOT isnan({old}) OR {bits})"


def _has_floats(column: Column) -> bool:
    return column.parsed.is_float or any(map(_has_floats, column.parts))


def _bits(value: str, column: Column, depth: int = 0) -> str:
    """The value with the bits of its floating point numbers in their place."""
    item = f"x_{depth}"
    if not _has_floats(column):
        return value
    if column.kind == "struct":
        fields = (
            f"{literal(part.name)}: {_bits(f'struct_extract({value}, {literal(part.name)})', part, depth)}"
            for part in column.parts
        )
        return f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(fields)}}} END"
    if column.kind == "list":
        return f"list_transform({value}, lambda {item}: {_bits(item, column.parts[0], depth + 1)})"
    if column.kind == "map":
        key, kept = (
            _bits(f"{item}.{name}", part, depth + 1)
            for name, part in zip(("key", "value"), column.parts, strict=True)
        )
        return f"list_transform(map_entries({value}), lambda {item}: {{'key': {key}, 'value': {kept}}})"
    return f"CAST({value} AS BIT)"
