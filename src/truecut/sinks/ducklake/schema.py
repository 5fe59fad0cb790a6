"""A table at the sink follows the source's columns: what to alter, and what cannot be followed.

Columns, and the parts of nested ones, are compared by the source's own ids. Added ones are added, dropped
ones are kept but emptied (inside a struct they go), widened ones widened; a rename, a narrowing or a
re-created table stops that table.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from truecut.lake import identifier
from truecut.model.change import APPLIED_AT, COMMITTED_AT, OP, POSITION, SEQ, TRANSACTION, UNCHANGED
from truecut.model.cursor import CopyState
from truecut.model.table import Column, Mode, TableName, TableSchema
from truecut.sinks import stops
from truecut.sinks.copies import TableStop, beside
from truecut.sinks.ducklake.inlining import exact_rows, is_catalogs_own, never_inline, refused_name
from truecut.sinks.ducklake.pool import Lake

APPEND_COLUMNS = (
    (OP, "VARCHAR"),
    (POSITION, "VARCHAR"),
    (SEQ, "VARCHAR"),
    (TRANSACTION, "VARCHAR"),
    (COMMITTED_AT, "TIMESTAMPTZ"),
    (APPLIED_AT, "TIMESTAMPTZ"),
    (UNCHANGED, "VARCHAR[]"),
)


# What DuckLake calls the parts of a column in a path, but for the fields of a struct.
_INNER_NAMES = {"scalar": (), "list": ("element",), "map": ("key", "value")}


@dataclass(frozen=True, slots=True)
class Evolution:
    """ALTER clauses in order, and the names of columns that the source no longer has."""

    clauses: tuple[str, ...]
    retired: tuple[str, ...]


def qualified(lake: Lake, table: str) -> str:
    """The table's full quoted name in the lake."""
    name = TableName.parse(table)
    return f"{lake.name}.{identifier(name.schema)}.{identifier(name.table)}"


def existing_columns(lake: Lake, table: str) -> list[tuple[str, str]] | None:
    """Names and types as the sink has them; None when there is no such table."""
    try:
        rows = lake.connection.execute(f"DESCRIBE {qualified(lake, table)}").fetchall()
    except duckdb.CatalogException:
        return None
    return [(row[0], row[1]) for row in rows]


def wanted_columns(schema: TableSchema, mode: Mode) -> list[tuple[str, str]]:
    """Names and types of a new table."""
    control = list(APPEND_COLUMNS) if mode == "append" else []
    return control + [(column.name, column.type) for column in schema.columns]


def create_table(lake: Lake, table: str, schema: TableSchema, mode: Mode) -> None:
    """Create schema and table."""
    name = TableName.parse(table)
    _check_names(table, schema)
    refused = refused_name(lake, table, schema)
    if refused is not None:
        raise _name_of_the_catalog(table, refused)
    columns = ", ".join(f"{identifier(column)} {kind}" for column, kind in wanted_columns(schema, mode))
    lake.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {lake.name}.{identifier(name.schema)}")
    with exact_rows(lake, table, schema):
        lake.connection.execute(f"CREATE TABLE {qualified(lake, table)} ({columns})")
    lake.renewed.add(table)


def _check_names(table: str, schema: TableSchema) -> None:
    known: dict[str, str] = {}
    for name in schema.names:
        if known.setdefault(name.lower(), name) != name:
            raise stops.same_but_for_case(table, known[name.lower()], name)


def drop_table(lake: Lake, table: str) -> None:
    """Remove the table."""
    lake.connection.execute(f"DROP TABLE {qualified(lake, table)}")
    lake.renewed.add(table)


def follow_schema(
    lake: Lake, table: str, mode: Mode, schema: TableSchema, copy: CopyState | None
) -> CopyState:
    """The table as the order needs it: created, or altered from how this pipeline left it."""
    if copy is None or not copy.columns:
        create_table(lake, table, schema, mode)
        return CopyState(mode, schema.id, schema.columns)
    if copy.table_id == schema.id and copy.columns == schema.columns:
        return CopyState(mode, schema.id, schema.columns, copy.retired_columns, **beside(copy))
    change = evolution(table, copy, schema)
    evolve(lake, table, change, schema)
    return CopyState(mode, schema.id, schema.columns, change.retired, **beside(copy))


def evolution(table: str, copy: CopyState, schema: TableSchema) -> Evolution:
    """What brings the sink's columns to the source's; TableStop when nothing safe does."""
    if copy.table_id != schema.id:
        raise stops.recreated(table)
    clauses: list[str] = []
    retired = list(copy.retired_columns)
    before = {column.id: column for column in copy.columns}
    after = {column.id: column for column in schema.columns}
    for column in copy.columns:
        if column.id not in after:
            retired.append(column.name)
            clauses += _emptied(column)
    for column in schema.columns:
        known = before.get(column.id)
        if known is None:
            if column.untold:
                raise stops.default_not_copied(table)
            clauses += _added(column, taken=column.name in retired)
            retired = [name for name in retired if name != column.name]
        else:
            clauses += _followed(table, known, column)
    return Evolution(tuple(clauses), tuple(retired))


def _followed(table: str, known: Column, column: Column) -> list[str]:
    """One column that was there before, and its parts."""
    if known.name != column.name:
        raise _renamed(table, known.name, column.name)
    clauses = _parts(table, known, column, (identifier(column.name),))
    if any(old == "BOOLEAN" != new for old, new in _types(known, column)):
        # The extension cannot read such a column any more where it is inlined.
        raise stops.no_boolean_any_more(table, column.name)
    if any(old != new for old, new in _types(known, column)):
        clauses.append(f"ALTER COLUMN {identifier(column.name)} SET DATA TYPE {column.type}")
    return clauses


def _parts(table: str, known: Column, column: Column, path: tuple[str, ...]) -> list[str]:
    """Fields that came or went, at any depth: afterwards both have the same, in the same places."""
    if known.kind != column.kind:
        raise stops.another_shape(table, ".".join(path))
    if column.kind != "struct":
        paired = zip(_INNER_NAMES[column.kind], known.parts, column.parts, strict=True)
        return [c for name, old, new in paired for c in _parts(table, old, new, (*path, name))]
    before = {part.id: part for part in known.parts}
    after = {part.id for part in column.parts}
    if len(path) > 1 and before and min(before) not in after:
        # A file may have none of the fields that are left; the extension then takes a NULL inside a list or a
        # map for a struct of defaults, or does not, and source and sink need not agree.
        raise stops.oldest_field_lost(table, ".".join(path))
    new_names = {part.name.lower() for part in column.parts if part.id not in before}
    drops = {
        f"DROP COLUMN {'.'.join((*path, identifier(part.name)))}": part.name.lower() in new_names
        for part in known.parts
        if part.id not in after
    }
    clauses = [drop for drop, taken in drops.items() if taken]
    for part in column.parts:
        inner = (*path, identifier(part.name))
        old = before.get(part.id)
        if old is None:
            default = "" if part.initial is None else f" DEFAULT {part.initial}"
            clauses.append(f"ADD COLUMN {'.'.join(inner)} {part.type}{default}")
        elif old.name != part.name:
            raise _renamed(table, f"{'.'.join(path)}.{old.name}", part.name)
        else:
            clauses += _parts(table, old, part, inner)
    return clauses + [drop for drop, taken in drops.items() if not taken]  # a struct is never without fields


def _types(known: Column, column: Column) -> list[tuple[str, str]]:
    """The types of the scalars that both have, before and after."""
    if not column.parts:
        return [(known.type, column.type)]
    before = {part.id: part for part in known.parts}
    if column.kind != "struct":  # the one element; key and value
        before = {new.id: old for old, new in zip(known.parts, column.parts, strict=True)}
    return [pair for part in column.parts if part.id in before for pair in _types(before[part.id], part)]


def _renamed(table: str, old: str, new: str) -> TableStop:
    return TableStop(
        table,
        "TC3012",
        f"column {old} of {table} was renamed to {new} at the source, which the sink does not follow; "
        "seed the table again",
    )


def evolve(lake: Lake, table: str, change: Evolution, schema: TableSchema) -> None:
    """Carry it out, in the order's own transaction."""
    if any(map(is_catalogs_own, (*schema.names, *change.retired))):
        never_inline(lake, table)
    for clause in change.clauses:
        sql = f"ALTER TABLE {qualified(lake, table)} {clause}"
        try:
            single = len(lake.connection.extract_statements(sql)) == 1
            if not single:  # a default that is more than a literal
                raise stops.default_not_copied(table)
            with exact_rows(lake, table, schema):
                lake.connection.execute(sql)
        except (duckdb.CatalogException, duckdb.BinderException, duckdb.NotImplementedException) as error:
            raise stops.not_followed(table) from error
    there = dict(existing_columns(lake, table) or ())
    if any(there.get(name) != kind for name, kind in spelled(lake, schema)):
        raise stops.not_followed(table)


def spelled(lake: Lake, schema: TableSchema) -> list[tuple[str, str]]:
    """The source's columns, with types as DuckDB itself spells them."""
    types = ", ".join(f"typeof(CAST(NULL AS {column.type}))" for column in schema.columns)
    found = lake.connection.execute(f"SELECT {types}").fetchone()
    assert found is not None
    return list(zip(schema.names, found, strict=True))


def _emptied(column: Column) -> list[str]:
    """Dropped and added anew it holds only NULL; both are changes of metadata alone."""
    name = identifier(column.name)
    return [f"DROP COLUMN {name}", f"ADD COLUMN {name} {column.type}"]


def _added(column: Column, *, taken: bool) -> list[str]:
    name = identifier(column.name)
    clauses = [f"DROP COLUMN {name}"] if taken else []
    if column.initial is None:
        return [*clauses, f"ADD COLUMN {name} {column.type}"]
    # Old rows hold the default from now on; new rows always come with a value of their own.
    return [
        *clauses,
        f"ADD COLUMN {name} {column.type} DEFAULT {column.initial}",
        f"ALTER COLUMN {name} DROP DEFAULT",
    ]


def _name_of_the_catalog(table: str, column: str) -> TableStop:
    """DuckLake makes no such table where it would inline rows."""
    message = (
        f"{table}: a lake that inlines small commits takes no new table with a column called {column}; set "
        "data_inlining_row_limit to 0 at the sink, or rename the column at the source"
    )
    return TableStop(table, "TC3035", message)
