"""How one table of an order is written, inside the order's transaction.

A mirror takes the net effect of its window after its keys were compared with what is live at the sink, and
values that the window does not tell from its own rows; an append table takes every change as a row; a seed
replaces a mirror and adds `read` rows to an append table.
What contradicts the sink raises TableStop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace

import duckdb

from truecut.lake import identifier, literal, sortable
from truecut.model.change import (
    COMMITTED_AT,
    DELETE,
    INSERT,
    OP,
    OP_NAMES,
    PLACE,
    SEQ,
    TRANSACTION,
    UNCHANGED,
)
from truecut.model.cursor import CopyState
from truecut.model.order import Counts, TableOrder
from truecut.model.position import Position
from truecut.model.table import Column, Mode, TableSchema
from truecut.sinks import stops
from truecut.sinks.ducklake.absent import UNTOLD, origin
from truecut.sinks.ducklake.inlining import exact_rows
from truecut.sinks.ducklake.landing import of_files, register, registers
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.resolve import KeyRange, Net
from truecut.sinks.ducklake.schema import (
    APPEND_COLUMNS,
    create_table,
    drop_table,
    existing_columns,
    follow_schema,
    qualified,
    spelled,
    wanted_columns,
)
from truecut.sinks.ducklake.stage import Files, Staged

Written = tuple[CopyState, Counts]

# What DuckDB raises about the rows themselves: the same rows would raise it again.
ABOUT_ROWS = (
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
    duckdb.ParserException,
)


@contextmanager
def _alone(table: str) -> Iterator[None]:
    """Rows that the sink does not take stop their table, never the others."""
    try:
        yield
    except duckdb.ConstraintException as error:
        raise stops.constrained(table, "NOT NULL") from error
    except ABOUT_ROWS as error:
        raise stops.not_taken(table, type(error).__name__) from error


def seed(
    lake: Lake, table: str, wanted: TableOrder, copy: CopyState | None, staged: Staged, upto: Position
) -> Written:
    """The packets are the whole table."""
    schema = _schema(wanted)
    if wanted.mode == "mirror":
        with _alone(table):
            clear_table(lake, table, schema)
            counts = Counts(puts=_seed_rows(lake, table, schema, staged))
        return CopyState("mirror", schema.id, schema.columns), counts
    there = existing_columns(lake, table)
    control = [name for name, _ in APPEND_COLUMNS]
    if there is not None and [name for name, _ in there[: len(control)]] != control:  # it was a mirror
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
        raise stops.other_mode(table, copy.mode)
    if wanted.mode == "append":
        return _append(lake, table, wanted, copy, staged, upto)
    state = follow_schema(lake, table, wanted.mode, _schema(wanted), copy)
    net = staged.nets.get(table)
    if net is None:
        return state, Counts()
    try:
        with _alone(table):
            return state, apply_net(lake, table, wanted, net)
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise stops.altered(table) from error


def repair(
    lake: Lake, table: str, wanted: TableOrder, copy: CopyState | None, staged: Staged, upto: Position
) -> Written:
    """The packets are rows that differ: theirs go, however often they are there; the source's come."""
    state = follow_schema(lake, table, wanted.mode, _schema(wanted), copy)
    there = dict(existing_columns(lake, table) or ())
    if any(there.get(name) != kind for name, kind in spelled(lake, _schema(wanted))):
        raise stops.altered(table)
    net = staged.nets[table]
    with _alone(table):
        deleted = delete_keys(lake, table, wanted, net) if net.live_before else 0
        if deleted < net.live_before:
            raise stops.keys_missing(table, live_before=net.live_before, deleted=deleted)
        clashes = net.puts - (insert_keys(lake, table, wanted, net) if net.puts else 0)
    if clashes:
        raise stops.keys_live_already(table, clashes)
    return state, Counts(puts=net.puts, deletes=net.deletes)


def apply_net(lake: Lake, table: str, wanted: TableOrder, net: Net) -> Counts:
    """Keys the window found live are deleted, keys it leaves live are inserted; a truncate deletes all."""
    if net.truncated:
        removed = _count(lake, f"DELETE FROM {qualified(lake, table)}")
        return Counts(puts=insert_keys(lake, table, wanted, net) if net.puts else 0, deletes=removed)
    whole = completed(lake, table, wanted, net) if net.untold else net
    deleted = delete_keys(lake, table, wanted, net) if net.live_before else 0
    if deleted != net.live_before:
        raise stops.changed_keys(
            table, live_before=net.live_before, deleted=deleted, began_empty=wanted.began_empty
        )
    clashes = net.puts - (insert_keys(lake, table, wanted, whole) if net.puts else 0)
    clashes += count_live(lake, table, wanted, net) if net.passing else 0
    if clashes:
        raise stops.keys_live_already(table, clashes)
    return Counts(puts=net.puts, deletes=net.deletes)


def completed(lake: Lake, table: str, wanted: TableOrder, net: Net) -> Net:
    """The same with the values that the sink's own rows have, as long as they are there. A row that the sink
    lacks is missing here, too: what is deleted is counted."""
    columns = [c for c in _schema(wanted).columns if c.name in net.untold]
    told = {c.name: f"CAST(n.{identifier(c.name)} AS {c.type})" for c in columns}
    kept = ", ".join(f"{told[c.name]} AS {identifier(c.name)}" for c in columns)
    taken = ", ".join(
        f"CASE WHEN list_contains(n.{UNTOLD}, {literal(c.name)}) THEN t.{identifier(c.name)} "
        f"ELSE {told[c.name]} END AS {identifier(c.name)}"
        for c in columns
    )
    within, bounds = _within(net.live_ranges)
    whole = f"{net.relation}_whole"
    lake.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {whole} AS SELECT n.* REPLACE ({taken}) FROM {net.relation} n "
        f"JOIN {qualified(lake, table)} t ON {_same_key(wanted, net, origin)} "
        f"WHERE len(n.{UNTOLD}) > 0 AND {within}",
        bounds,
    )
    rest = f"SELECT n.* REPLACE ({kept}) FROM {net.relation} n WHERE len(n.{UNTOLD}) = 0"
    return replace(net, relation=f"({rest} UNION ALL SELECT * FROM {whole})")


def delete_keys(lake: Lake, table: str, wanted: TableOrder, net: Net) -> int:
    """Remove the rows that the window found live; how many there were."""
    within, bounds = _within(net.live_ranges)
    return _count(
        lake,
        f"DELETE FROM {qualified(lake, table)} t USING {net.relation} n "
        f"WHERE n.{net.first_op} <> {INSERT} AND {_same_key(wanted, net)} AND {within}",
        bounds,
    )


def insert_keys(lake: Lake, table: str, wanted: TableOrder, net: Net) -> int:
    """Insert the rows that the window leaves live, but for keys that are live already; how many."""
    rows, bounds = f"{net.relation} n", list[str]()
    if net.keys > net.live_before and not net.truncated:  # those it found live are gone by now
        within, bounds = _within(net.new_ranges)
        keys = ", ".join(map(identifier, wanted.key))
        live = f"SELECT {keys} FROM {qualified(lake, table)} t WHERE {within}"
        rows += f" ANTI JOIN ({live}) t ON {_same_key(wanted, net)}"
    return insert_rows(lake, table, _schema(wanted), rows, where=f"{OP} <> {DELETE}", parameters=bounds)


def count_live(lake: Lake, table: str, wanted: TableOrder, net: Net) -> int:
    """How many of the keys that the window inserts and deletes again are at the sink already."""
    within, bounds = _within(net.new_ranges)
    return _count(
        lake,
        f"SELECT count(*) FROM {net.relation} n JOIN {qualified(lake, table)} t ON {_same_key(wanted, net)} "
        f"WHERE n.{net.first_op} = {INSERT} AND n.{OP} = {DELETE} AND {within}",
        bounds,
    )


def insert_rows(
    lake: Lake,
    table: str,
    schema: TableSchema,
    rows: str,
    *,
    where: str = "true",
    parameters: list[str] | None = None,
) -> int:
    """Whole rows, by name."""
    columns = ", ".join(map(identifier, schema.names))
    with exact_rows(lake, table, schema):
        return _count(
            lake,
            f"INSERT INTO {qualified(lake, table)} ({columns}) SELECT {columns} FROM {rows} WHERE {where}",
            parameters,
        )


def _seed_rows(lake: Lake, table: str, schema: TableSchema, staged: Staged) -> int:
    """The table is empty, and holds exactly the staged rows afterwards."""
    rows = staged.relations.get(table)
    if table in staged.files:
        return take_files(lake, table, schema, "mirror", staged.files[table])
    return insert_rows(lake, table, schema, rows) if rows else 0


def take_files(lake: Lake, table: str, schema: TableSchema, mode: Mode, files: Files) -> int:
    """What others have written stands in the table: as it is, or row by row where it cannot."""
    columns = [name for name, _ in wanted_columns(schema, mode)]
    if registers(lake, table, columns):
        register(lake, table, files.paths)
        return files.rows
    names = ", ".join(map(identifier, columns))
    with exact_rows(lake, table, schema):
        return _count(
            lake,
            f"INSERT INTO {qualified(lake, table)} ({names}) SELECT {names} FROM {of_files(files.paths)}",
        )


def clear_table(lake: Lake, table: str, schema: TableSchema) -> None:
    """Emptied where its columns fit, so that the tenant's partitioning stays; created anew otherwise."""
    there = existing_columns(lake, table)
    if there == spelled(lake, schema):
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
    if table in staged.files:
        try:
            with _alone(table):
                return state, Counts(puts=take_files(lake, table, schema, "append", staged.files[table]))
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise stops.altered(table) from error
    if rows is None:
        return state, Counts()
    targets = ", ".join(identifier(name) for name, _ in wanted_columns(schema, "append"))
    try:
        control = ", ".join(control_values(upto.generation, staged.arrivals[table].optional))
        with _alone(table), exact_rows(lake, table, schema):
            written = _count(
                lake,
                f"INSERT INTO {qualified(lake, table)} ({targets}) "
                f"SELECT {control}, {', '.join(map(identifier, schema.names))} FROM {rows}",
            )
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise stops.altered(table) from error
    return state, Counts(puts=written)


def control_values(generation: int, optional: Set[str]) -> list[str]:
    """The control columns of an append table, from those of the packets, in the order of the table."""
    ops = " ".join(f"WHEN {number} THEN {literal(name)}" for number, name in OP_NAMES.items())
    position = f"'{generation:08X}-' || printf('%016X', {PLACE})"
    transaction = f"coalesce({TRANSACTION}, {position})" if TRANSACTION in optional else position
    unchanged = f"CASE WHEN len({UNCHANGED}) > 0 THEN {UNCHANGED} END" if UNCHANGED in optional else "NULL"
    number = f"printf('%016X', {SEQ})"
    return [f"CASE {OP} {ops} END", position, number, transaction, COMMITTED_AT, "now()", unchanged]


def _within(ranges: tuple[KeyRange, ...]) -> tuple[str, list[str]]:
    """A condition that lets DuckLake leave out files by their ranges, and its parameters."""
    terms = [f"t.{identifier(r.column)} BETWEEN ?::{r.type} AND ?::{r.type}" for r in ranges]
    return " AND ".join(terms) or "true", [bound for r in ranges for bound in (r.least, r.greatest)]


def _count(lake: Lake, sql: str, parameters: list[str] | None = None) -> int:
    found = lake.connection.execute(sql, parameters or []).fetchone()
    assert found is not None
    return int(found[0])


def _same_key(wanted: TableOrder, net: Net, staged: Callable[[str], str] = identifier) -> str:
    """`staged`: the quoted column of the net change that has that part of the key."""
    columns = [column for name in wanted.key if (column := _schema(wanted).column(name)) is not None]
    return " AND ".join(
        f"{_compared(f't.{identifier(column.name)}', column, net)} = "
        f"{_compared(f'n.{staged(column.name)}', column, net)}"
        for column in columns
    )


def _compared(value: str, column: Column, net: Net) -> str:
    """A key's value in a form by which nobody looks for rows before they are joined.

    The extension, looking for files, breaks at a NUL and misses the smallest numbers of a FLOAT.
    """
    return f"encode({value})" if column.name in net.with_nul else sortable(value, column)


def _schema(wanted: TableOrder) -> TableSchema:
    assert wanted.schema is not None
    return wanted.schema
