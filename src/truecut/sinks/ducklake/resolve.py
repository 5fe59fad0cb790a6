"""The net effect of a window on a mirror, key by key: the latest change wins.

What lies before the window's last truncate is void, and the table is empty then. Finds what cannot be, before
the sink is touched: a NULL key, a key twice in a seed, a key inserted while it was live or changed after its
delete. Messages name counts, never keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from truecut.lake import identifier, sortable
from truecut.model.change import DELETE, INSERT, OP, PLACE, SEQ
from truecut.model.table import Column, TableSchema
from truecut.model.types import SIGNED, UNSIGNED
from truecut.sinks import stops
from truecut.sinks.arrivals import Arrivals
from truecut.sinks.copies import Stop
from truecut.sinks.ducklake.absent import FIRST_OP, merge

# Keys of these types are looked for only in files whose range they fall into.
_RANGED = frozenset({*SIGNED, *UNSIGNED, "VARCHAR"}) - {"UHUGEINT"}


@dataclass(frozen=True, slots=True)
class KeyRange:
    """All values of a key column lie in it; bounds as text."""

    column: str
    type: str
    least: str
    greatest: str


@dataclass(frozen=True, slots=True)
class Net:
    """One row for each key, in `relation`: OP is its last change, `first_op` names that of its first."""

    relation: str
    first_op: str
    keys: int
    live_before: int  # keys whose first change is not an insert: the sink must have them
    puts: int  # keys whose last change is not a delete: the sink will have them
    deletes: int  # keys that the sink had and will not have
    new_ranges: tuple[KeyRange, ...]  # of the keys whose first change is an insert
    live_ranges: tuple[KeyRange, ...]  # of the others
    with_nul: frozenset[str] = frozenset()  # key columns in which some text holds a NUL
    truncated: bool = False  # nothing of what the sink had will be there
    untold: tuple[str, ...] = ()  # columns that the window does not tell of some rows

    @property
    def passing(self) -> int:
        """Keys that were not there before and are not there afterwards."""
        return (self.keys - self.live_before) - (self.puts - (self.live_before - self.deletes))


@dataclass(frozen=True, slots=True)
class Changes:
    """The staged changes of a mirror: a relation of a connection."""

    connection: duckdb.DuckDBPyConnection
    table: str
    rows: str
    key: tuple[str, ...]
    schema: TableSchema
    arrivals: Arrivals

    @property
    def absent(self) -> tuple[str, ...]:
        """Columns of which some values have to be found."""
        return tuple(name for name in self.schema.names if name in self.arrivals.absent)

    @property
    def keys(self) -> str:
        """SQL to partition by the key."""
        columns = [self.schema.column(name) for name in self.key]
        return ", ".join(sortable(identifier(c.name), c) for c in columns if c is not None)

    @property
    def window(self) -> str:
        """The changes of each key, in their order."""
        return f"PARTITION BY {self.keys} ORDER BY {PLACE}, {SEQ}"


def resolve(changes: Changes, *, in_memory: pa.Table | None = None) -> tuple[Net | None, Stop | None]:
    """Reduce staged changes to one for each key. Keys that changed once need no work at all.

    `in_memory` are the same rows, if they are at hand.
    """
    if changes.arrivals.truncated is not None:
        changes, in_memory = _after_truncate(changes, *changes.arrivals.truncated), None
    connection, table, key, schema = changes.connection, changes.table, changes.key, changes.schema
    known = None if in_memory is None else _measure_in_memory(in_memory, changes.rows, key, schema)
    net, distinct, nulls = known or _measure(connection, changes.rows, OP, key, schema)
    if nulls:
        return None, stops.null_in_changes(table, nulls).stop
    if net.keys != distinct:
        (broken,) = _row(  # a key is inserted exactly after its delete
            connection,
            f"SELECT count(*) FROM (SELECT {OP} AS op, lag({OP}) OVER ({changes.window}) AS previous "
            f"FROM {changes.rows}) WHERE (op = {INSERT}) <> (previous = {DELETE})",
        )
        if broken:
            return None, stops.contradictions(table, broken).stop
    if changes.absent:
        untold, lost = merge(connection, changes.rows, changes.keys, key=key, absent=changes.absent)
        if lost:
            return None, stops.values_absent(table, lost).stop
        net = replace(_measure(connection, f"{changes.rows}_net", FIRST_OP, key, schema)[0], untold=untold)
    elif net.keys != distinct:
        connection.execute(
            f"CREATE TEMP TABLE {changes.rows}_net AS SELECT *, first_value({OP}) OVER w AS {FIRST_OP} "
            f"FROM {changes.rows} WINDOW w AS ({changes.window}) QUALIFY lead({OP}) OVER w IS NULL"
        )
        net = _measure(connection, f"{changes.rows}_net", FIRST_OP, key, schema)[0]
    if changes.arrivals.truncated is None:
        return net, None
    if net.live_before:  # nothing is live after a truncate
        return None, stops.contradictions(table, net.live_before).stop
    return replace(net, truncated=True), None


def _after_truncate(changes: Changes, place: int, seq: int) -> Changes:
    """Only what came later counts."""
    later = f"{changes.rows}_later"
    changes.connection.execute(
        f"CREATE TEMP VIEW {later} AS SELECT * FROM {changes.rows} "
        f"WHERE {PLACE} > {place} OR ({PLACE} = {place} AND {SEQ} > {seq})"
    )
    return replace(changes, rows=later)


def _measure(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    first_op: str,
    key: tuple[str, ...],
    schema: TableSchema,
) -> tuple[Net, int, int]:
    """Everything there is to know, in one statement; also how many keys there are, and how many NULLs."""
    ranged = [column for column in schema.columns if column.name in key and column.type in _RANGED]
    new, live = f"{first_op} = {INSERT}", f"{first_op} <> {INSERT}"
    bounds = [
        f"{bound}({identifier(column.name)}) FILTER ({which})::VARCHAR"
        for which in (new, live)
        for column in ranged
        for bound in ("min", "max")
    ]
    keys = ", ".join(map(identifier, key))
    distinct = (
        f"count(DISTINCT {keys})"
        if len(key) == 1
        else f"(SELECT count(*) FROM (SELECT DISTINCT {keys} FROM {relation}))"
    )
    texts = [column.name for column in schema.columns if column.name in key and column.type == "VARCHAR"]
    holds_nul = [f"bool_or(contains({identifier(name)}, chr(0)))" for name in texts]
    counts = (
        f"SELECT {distinct}, count(*) FILTER ({_null(key)}), count(*), count(*) FILTER ({live}), "
        f"count(*) FILTER ({OP} <> {DELETE}), count(*) FILTER ({live} AND {OP} = {DELETE})"
    )
    distinct_keys, nulls, count, befores, puts, deletes, *found = _row(
        connection, f"{', '.join([counts, *bounds, *holds_nul])} FROM {relation}"
    )
    ends = iter(found)
    new_ranges, live_ranges = (
        tuple(KeyRange(column.name, column.type, next(ends), next(ends)) for column in ranged)
        for _ in range(2)
    )
    with_nul = frozenset(name for name, found in zip(texts, ends, strict=True) if found)
    new_ranges, live_ranges = (
        tuple(one for one in ranges if one.column not in with_nul) for ranges in (new_ranges, live_ranges)
    )
    net = Net(relation, first_op, count, befores, puts, deletes, new_ranges, live_ranges, with_nul)
    return net, distinct_keys, nulls


def _measure_in_memory(
    rows: pa.Table, relation: str, key: tuple[str, ...], schema: TableSchema
) -> tuple[Net, int, int] | None:
    """The same without a statement, which would cost a tenth of a small order; None: only SQL can tell."""
    types = {column.name: column.type for column in schema.columns}
    if len(key) != 1 or types[key[0]] not in _RANGED or rows.column(key[0]).null_count:
        return None
    keys, ops = rows.column(key[0]), rows.column(OP)
    if types[key[0]] == "VARCHAR" and pc.any(pc.match_substring(keys, "\0")).as_py():
        return None
    is_new, is_put = pc.equal(ops, INSERT), pc.not_equal(ops, DELETE)
    new, puts = (pc.sum(mask).as_py() or 0 for mask in (is_new, is_put))
    new_ranges, live_ranges = (
        (KeyRange(key[0], types[key[0]], *_bounds(keys.filter(mask))),)
        for mask in (is_new, pc.invert(is_new))
    )
    count = rows.num_rows
    net = Net(relation, OP, count, count - new, puts, count - puts, new_ranges, live_ranges)
    return net, count if _ascend(keys) else len(pc.unique(keys)), 0


def _ascend(values: pa.ChunkedArray) -> bool:
    """Whether each is above the one before. New keys often are, and seeing that costs little."""
    return bool(pc.all(pc.less(values.slice(0, max(0, len(values) - 1)), values.slice(1))).as_py())


def _bounds(values: pa.ChunkedArray) -> tuple[Any, Any]:
    ends = pc.min_max(values).as_py()
    least, greatest = (None if end is None else str(end) for end in (ends["min"], ends["max"]))
    return least, greatest


def is_ranged(column: Column) -> bool:
    """Whether the bounds of its values tell where they are."""
    return column.type in _RANGED


def is_plain(column: Column) -> bool:
    """Whether Python has every one of its values; or it is compared in a form that is not looked for."""
    return column.type in _RANGED or column.type == "UUID" or column.parsed.is_float


def key_faults(connection: duckdb.DuckDBPyConnection, rows: str, *, key: tuple[str, ...]) -> tuple[int, int]:
    """How many keys of a seed are NULL in part, and how many others occur more than once."""
    keys = ", ".join(map(identifier, key))
    nulls, repeated = _row(
        connection,
        "SELECT count(*) FILTER (missing), count(*) FILTER (NOT missing AND times > 1) FROM "
        f"(SELECT bool_or({_null(key)}) AS missing, count(*) AS times FROM {rows} GROUP BY {keys} "
        "HAVING missing OR times > 1)",
    )
    return nulls, repeated


def _null(key: tuple[str, ...]) -> str:
    return " OR ".join(f"{identifier(name)} IS NULL" for name in key)


def _row(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = connection.execute(sql).fetchone()
    assert found is not None
    return found
