"""How one table of an order is written, inside the order's transaction.

A mirror takes the net effect of its window after its keys were compared with what is live at the sink; an
append table takes every change as a row; a seed replaces a mirror and adds `read` rows to an append table.
What contradicts the sink raises TableStop.
"""

from __future__ import annotations

import duckdb

from truecut.lake import identifier, literal
from truecut.model.change import COMMITTED_AT, DELETE, INSERT, OP, OP_NAMES, PLACE, SEQ
from truecut.model.cursor import CopyState
from truecut.model.order import Counts, TableOrder
from truecut.model.position import Position
from truecut.model.table import TableSchema
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.resolve import KeyRange, Net
from truecut.sinks.ducklake.schema import (
    APPEND_COLUMNS,
    TableStop,
    create_table,
    drop_table,
    existing_columns,
    follow_schema,
    qualified,
    wanted_columns,
)
from truecut.sinks.ducklake.stage import Staged

Written = tuple[CopyState, Counts]


def seed(
    lake: Lake, table: str, wanted: TableOrder, copy: CopyState | None, staged: Staged, upto: Position
) -> Written:
    """The packets are the whole table."""
    schema = _schema(wanted)
    if wanted.mode == "mirror":
        counts = replace_rows(lake, table, schema, staged.relations.get(table))
        return CopyState("mirror", schema.id, schema.columns), counts
    there = existing_columns(lake, table)
    if there is not None and there[: len(APPEND_COLUMNS)] != list(APPEND_COLUMNS):  # it was a mirror
        drop_table(lake, table)
        there = None
    if there is None:
        copy = None
    return _append(lake, table, wanted, copy, staged, upto)


def changes(
    lake: Lake, table: str, wanted: TableOrder, copy: CopyState | None, staged: Staged, upto: Position
) -> Written:
    """The packets are what changed since the table's own place."""
    if copy is not None and copy.mode != wanted.mode:
        raise TableStop(table, "TC3015", f"{table} is in mode {copy.mode} at the sink; seed it again")
    if wanted.mode == "append":
        return _append(lake, table, wanted, copy, staged, upto)
    state = follow_schema(lake, table, wanted.mode, _schema(wanted), copy)
    net = staged.nets.get(table)
    if net is None:
        return state, Counts()
    try:
        return state, apply_net(lake, table, wanted, net)
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise _altered(table) from error


def apply_net(lake: Lake, table: str, wanted: TableOrder, net: Net) -> Counts:
    """Keys the window found live are deleted, keys it leaves live are inserted."""
    deleted = delete_keys(lake, table, wanted.key, net) if net.live_before else 0
    if deleted != net.live_before:
        message = (
            f"{table}: of {net.live_before} changed keys the sink has {deleted}; somebody else writes to the "
            "sink's table; seed it again"
        )
        raise TableStop(table, "TC3024", message)
    clashes = net.puts - (insert_keys(lake, table, wanted, net) if net.puts else 0)
    clashes += count_live(lake, table, wanted.key, net) if net.passing else 0
    if clashes:
        message = (
            f"{table}: {clashes} inserted keys are already live at the sink; the key is not unique at the "
            "source, or somebody else writes to the sink's table"
        )
        raise TableStop(table, "TC3023", message)
    return Counts(puts=net.puts, deletes=net.deletes)


def delete_keys(lake: Lake, table: str, key: tuple[str, ...], net: Net) -> int:
    """Remove the rows that the window found live; how many there were."""
    within, bounds = _within(net.live_ranges)
    return _count(
        lake,
        f"DELETE FROM {qualified(lake, table)} t USING {net.relation} n "
        f"WHERE n.{net.first_op} <> {INSERT} AND {_same_key(key)} AND {within}",
        bounds,
    )


def insert_keys(lake: Lake, table: str, wanted: TableOrder, net: Net) -> int:
    """Insert the rows that the window leaves live, but for keys that are live already; how many."""
    rows, bounds = net.relation, list[str]()
    if net.keys > net.live_before:  # those it found live are gone by now
        within, bounds = _within(net.new_ranges)
        keys = ", ".join(map(identifier, wanted.key))
        rows += f" ANTI JOIN (SELECT {keys} FROM {qualified(lake, table)} t WHERE {within}) USING ({keys})"
    return insert_rows(lake, table, _schema(wanted).names, rows, where=f"{OP} <> {DELETE}", parameters=bounds)


def count_live(lake: Lake, table: str, key: tuple[str, ...], net: Net) -> int:
    """How many of the keys that the window inserts and deletes again are at the sink already."""
    within, bounds = _within(net.new_ranges)
    return _count(
        lake,
        f"SELECT count(*) FROM {net.relation} n JOIN {qualified(lake, table)} t ON {_same_key(key)} "
        f"WHERE n.{net.first_op} = {INSERT} AND n.{OP} = {DELETE} AND {within}",
        bounds,
    )


def insert_rows(
    lake: Lake,
    table: str,
    names: tuple[str, ...],
    rows: str,
    *,
    where: str = "true",
    parameters: list[str] | None = None,
) -> int:
    """Whole rows, by name."""
    columns = ", ".join(map(identifier, names))
    return _count(
        lake,
        f"INSERT INTO {qualified(lake, table)} ({columns}) SELECT {columns} FROM {rows} WHERE {where}",
        parameters,
    )


def replace_rows(lake: Lake, table: str, schema: TableSchema, rows: str | None) -> Counts:
    """The table holds exactly the staged rows afterwards, whatever it held or looked like before."""
    clear_table(lake, table, schema)
    return Counts(puts=insert_rows(lake, table, schema.names, rows) if rows else 0)


def clear_table(lake: Lake, table: str, schema: TableSchema) -> None:
    """Emptied where its columns fit, so that the tenant's partitioning stays; created anew otherwise."""
    there = existing_columns(lake, table)
    if there == wanted_columns(schema, "mirror"):
        lake.connection.execute(f"DELETE FROM {qualified(lake, table)}")
        return
    if there is not None:
        drop_table(lake, table)
    create_table(lake, table, schema, "mirror")


def _append(
    lake: Lake, table: str, wanted: TableOrder, copy: CopyState | None, staged: Staged, upto: Position
) -> Written:
    schema = _schema(wanted)
    state = follow_schema(lake, table, "append", schema, copy)
    rows = staged.relations.get(table)
    if rows is None:
        return state, Counts()
    targets = ", ".join(identifier(name) for name, _ in wanted_columns(schema, "append"))
    try:
        written = _count(
            lake,
            f"INSERT INTO {qualified(lake, table)} ({targets}) "
            f"SELECT {_control(upto.generation)}, {', '.join(map(identifier, schema.names))} FROM {rows}",
        )
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise _altered(table) from error
    return state, Counts(puts=written)


def _control(generation: int) -> str:
    """The control columns of an append table, from those of the packets, in the order of the table."""
    ops = " ".join(f"WHEN {number} THEN {literal(name)}" for number, name in OP_NAMES.items())
    position = f"'{generation:08X}-' || printf('%016X', {PLACE})"
    return f"CASE {OP} {ops} END, {position}, printf('%016X', {SEQ}), {position}, {COMMITTED_AT}, now(), NULL"


def _altered(table: str) -> TableStop:
    return TableStop(table, "TC3016", f"{table} was altered or dropped at the sink; seed it again")


def _within(ranges: tuple[KeyRange, ...]) -> tuple[str, list[str]]:
    """A condition that lets DuckLake leave out files by their ranges, and its parameters."""
    terms = [f"t.{identifier(r.column)} BETWEEN ?::{r.type} AND ?::{r.type}" for r in ranges]
    return " AND ".join(terms) or "true", [bound for r in ranges for bound in (r.least, r.greatest)]


def _count(lake: Lake, sql: str, parameters: list[str] | None = None) -> int:
    found = lake.connection.execute(sql, parameters or []).fetchone()
    assert found is not None
    return int(found[0])


def _same_key(key: tuple[str, ...]) -> str:
    return " AND ".join(f"t.{identifier(name)} = n.{identifier(name)}" for name in key)


def _schema(wanted: TableOrder) -> TableSchema:
    assert wanted.schema is not None
    return wanted.schema
