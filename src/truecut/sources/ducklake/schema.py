"""A table's columns at a snapshot: by lasting id, in DuckDB's spelling, and why a table cannot be read.

Supported is what DuckLake itself keeps exactly, inlined or in Parquet, and what passes through plain
Arrow unchanged. UUID and JSON travel as text; the sink's column type makes them what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truecut.errors import Fault
from truecut.lake import identifier, literal
from truecut.model.change import PREFIX
from truecut.model.table import Column, TableSchema
from truecut.sources.contract import TableRead
from truecut.sources.ducklake.catalog import ColumnVersion, TableVersion

TABLE_MISSING = "TC2002"
TABLE_REPLACED = "TC2003"
COLUMN_MISSING = "TC2004"
COLUMN_RESERVED = "TC2005"
TYPE_UNSUPPORTED = "TC2006"

_SCALARS = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP_S",
    "timestamp_ms": "TIMESTAMP_MS",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "varchar": "VARCHAR",
    "blob": "BLOB",
    "json": "JSON",
    "uuid": "UUID",
}

# Why the rest is refused; anything not listed here is simply unknown.
_REASONS = {
    "int128": "DuckLake stores it in Parquet as DOUBLE and loses digits",
    "uint128": "DuckLake stores it in Parquet as DOUBLE and loses digits",
    "interval": "Parquet keeps milliseconds and inlined rows microseconds, so values change by themselves",
    "timetz": "its zone is lost in Parquet",
    "variant": "it has no Arrow form",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a task needs to know of a table: its name, key and route, and the columns to deliver."""

    table: TableRead
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot of the table, and how its columns become the delivered ones (SQL, in order)."""

    snapshot: int
    expressions: tuple[str, ...]


def schema_at(table: TableVersion, columns: Sequence[ColumnVersion], *, at: int) -> TableSchema:
    """The columns that stood at a snapshot. Unsupported types keep DuckLake's spelling, in brackets."""
    present = [column for column in columns if column.covers(at)]
    top = [column for column in present if column.parent is None]
    return TableSchema(
        id=table.uuid,
        columns=tuple(
            Column(column.id, column.name, _spell(column, present), _initial(column)) for column in top
        ),
    )


def fault_in(table: TableRead, schema: TableSchema) -> Fault | None:
    """Why a table with these columns cannot be replicated, if so."""
    for name in (*table.key, *([table.route_by] if table.route_by else [])):
        if schema.column(name) is None:
            return Fault(
                COLUMN_MISSING,
                f"{table.name}: column {name} does not exist; the table has {', '.join(schema.names)}",
                "Correct key and route_by of this table in the pipeline file, or add the column.",
            )
    for column in schema.columns:
        if column.name.lower().startswith(PREFIX):
            return Fault(
                COLUMN_RESERVED,
                f"{table.name}: column {column.name} has a reserved name ({PREFIX}…)",
                "Rename the column at the source.",
            )
        unsupported = _unsupported(column.type)
        if unsupported is not None:
            reason = _REASONS.get(unsupported, "it is not known to survive")
            return Fault(
                TYPE_UNSUPPORTED,
                f"{table.name}: column {column.name} has the type {unsupported}, which cannot be copied"
                f" exactly: {reason}",
                "Store the column in another type (e.g. VARCHAR, DECIMAL or BIGINT), or leave the table out.",
            )
    return None


def missing(table: TableRead, *, at: str) -> Fault:
    """There is no table of that name."""
    return Fault(
        TABLE_MISSING,
        f"{table.name} does not exist at the source at {at}",
        "Correct tables[].name in the pipeline file, or create the table.",
    )


def replaced(table: TableRead, *, after: str) -> Fault:
    """Another table stands under that name."""
    return Fault(
        TABLE_REPLACED,
        f"{table.name} was dropped and created anew after {after}; its history does not continue",
        "Resume the table: a mirror is then seeded from the new one.",
    )


def projection(have: TableSchema, want: TableSchema) -> tuple[str, ...]:
    """How rows in the columns `have` become rows in the columns `want`: by id, never by name."""
    known = {column.id: column for column in have.columns}
    return tuple(_expression(known.get(column.id), column) for column in want.columns)


def _expression(source: Column | None, target: Column) -> str:
    if source is None:
        return f"CAST({'NULL' if target.initial is None else target.initial} AS {target.type})"
    if source.type != target.type:
        return f"CAST({identifier(source.name)} AS {target.type})"
    return identifier(source.name)


def _initial(column: ColumnVersion) -> str | None:
    if column.initial is None or column.initial == "NULL":
        return None
    return literal(column.initial)


def _spell(column: ColumnVersion, present: Sequence[ColumnVersion]) -> str:
    children = [child for child in present if child.parent == column.id]
    if column.type == "list":
        return f"{_spell(children[0], present)}[]"
    if column.type == "map":
        return f"MAP({_spell(children[0], present)}, {_spell(children[1], present)})"
    if column.type == "struct":
        fields = (f"{identifier(child.name)} {_spell(child, present)}" for child in children)
        return f"STRUCT({', '.join(fields)})"
    if column.type.startswith("decimal("):
        return column.type.upper()
    return _SCALARS.get(column.type, f"<{column.type}>")


def _unsupported(spelling: str) -> str | None:
    """The first part in angle brackets outside quotes: a type we could not spell."""
    outside = "".join(spelling.split('"')[::2])
    start = outside.find("<")
    return None if start < 0 else outside[start + 1 : outside.index(">", start)]
