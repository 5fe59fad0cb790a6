"""A table's columns at a snapshot: by lasting id, in DuckDB's spelling, and why a table cannot be read.

Supported is what DuckLake itself keeps exactly in Parquet, and what passes through plain Arrow unchanged.
UUID and JSON travel as text; the sink's column type makes them what they were. The parts of a nested
column have lasting ids of their own, and are followed by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truecut.config.finding import did_you_mean
from truecut.errors import Fault, Retry
from truecut.lake import identifier, literal
from truecut.model.change import PREFIX
from truecut.model.table import Column, TableName, TableSchema
from truecut.model.types import Type
from truecut.sources.contract import TableRead
from truecut.sources.ducklake.catalog import ColumnVersion, TableVersion

_SHOWN_MAX = 20  # tables of a source
TABLE_MISSING = "TC2002"
TABLE_REPLACED = "TC2003"
COLUMN_MISSING = "TC2004"
COLUMN_RESERVED = "TC2005"
TYPE_UNSUPPORTED = "TC2006"
ROWS_DISPLACED = "TC3025"

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
    tells_files: bool = True  # no column of the table, now or ever, hides the one that names a row's file


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot of the table, what it was called then, and how its columns become the delivered ones (SQL,
    in order)."""

    snapshot: int
    name: TableName
    expressions: tuple[str, ...]


def schema_at(table: TableVersion, columns: Sequence[ColumnVersion], *, at: int) -> TableSchema:
    """The columns that stood at a snapshot. Unsupported types keep DuckLake's spelling, in brackets."""
    present = [column for column in columns if column.covers(at)]
    top = tuple(_column(column, present) for column in present if column.parent is None)
    return TableSchema(id=table.uuid, columns=top)


def fault_in(table: TableRead, schema: TableSchema) -> Fault | None:
    """Why a table with these columns cannot be replicated, if so."""
    for name in (*table.key, *([table.route_by] if table.route_by else [])):
        if schema.column(name) is None:
            return Fault(
                COLUMN_MISSING,
                f"{table.name}: column {name} does not exist; the table has {', '.join(schema.names)}"
                f"{did_you_mean(name, schema.names)}",
                "Correct key and route_by of this table in the pipeline file, or add the column.",
            )
    for column in schema.columns:
        if column.name.lower().startswith(PREFIX):
            return Fault(
                COLUMN_RESERVED,
                f"{table.name}: column {column.name} has a reserved name ({PREFIX}…)",
                "Rename the column at the source.",
            )
        unsupported = column.parsed.unknown
        if unsupported is not None:
            reason = _REASONS.get(unsupported, "it is not known to survive")
            return Fault(
                TYPE_UNSUPPORTED,
                f"{table.name}: column {column.name} has the type {unsupported}, which cannot be copied"
                f" exactly: {reason}",
                "Store the column in another type (e.g. VARCHAR, DECIMAL or BIGINT), or leave the table out.",
            )
    return None


def missing(table: TableRead, *, at: str, there: Sequence[str] = ()) -> Fault:
    """There is no table of that name. `there`: those that could have been meant."""
    shown = [*there[:_SHOWN_MAX], *(["…"] if len(there) > _SHOWN_MAX else [])]
    known = f"; there are {', '.join(shown)}{did_you_mean(str(table.name), there)}" if there else ""
    return Fault(
        TABLE_MISSING,
        f"{table.name} does not exist at the source at {at}{known}",
        "Correct tables[].name in the pipeline file, or create the table.",
    )


def replaced(table: TableRead, *, after: str) -> Fault:
    """Another table stands under that name."""
    return Fault(
        TABLE_REPLACED,
        f"{table.name} was dropped and created anew after {after}; its history does not continue",
        "Resume the table: a mirror is then seeded from the new one.",
    )


def displaced(table: TableRead, before: TableSchema, now: TableSchema, *, after: str) -> Fault | None:
    """Why a copy's rows may belong elsewhere although nobody has touched them, if so."""
    for name in (*table.key, *([table.route_by] if table.route_by else [])):
        old, new = before.column(name), now.column(name)
        if (
            old is not None
            and new is not None
            and old.id == new.id
            and _reads_the_same(old.parsed, new.parsed)
        ):
            continue
        return Fault(
            ROWS_DISPLACED,
            f"{table.name}: column {name}, by which rows are told apart or routed, was dropped and added, or"
            f" got a type that spells its values otherwise, after {after}; rows belong elsewhere unchanged",
            "None needed for a mirror: it is seeded anew. Resume an append table: it gets the whole table"
            " again as `read` rows.",
            Retry.GAP,
        )
    return None


def _reads_the_same(old: Type, new: Type) -> bool:
    """Whether every value keeps its text, and different ones stay different, when the type changes."""
    if old.name == new.name == "DECIMAL":
        return old.parameters[1:] == new.parameters[1:]  # the same digits after the point
    return old == new or (old.is_integer and new.is_integer)


def projection(have: TableSchema, want: TableSchema) -> tuple[str, ...]:
    """How rows in the columns `have` become rows in the columns `want`: by id, never by name."""
    known = {column.id: column for column in have.columns}
    return tuple(_expression(known.get(column.id), column) for column in want.columns)


def _expression(source: Column | None, target: Column) -> str:
    return _initially(target) if source is None else _converted(identifier(source.name), source, target)


def _initially(target: Column) -> str:
    return f"CAST({'NULL' if target.initial is None else target.initial} AS {target.type})"


def _converted(value: str, source: Column, target: Column, depth: int = 0) -> str:
    """A value in the type it shall have. DuckDB would match the fields of structs by their names."""
    if _alike(source, target):
        return value
    if source.kind != target.kind or target.kind == "scalar":
        return f"CAST({value} AS {target.type})"
    item = f"x_{depth}"
    if target.kind == "struct":
        made = _struct(value, source, target, depth)
        return f"CAST(CASE WHEN {value} IS NOT NULL THEN {made} END AS {target.type})"
    if target.kind == "list":
        element = _converted(item, source.parts[0], target.parts[0], depth + 1)
        return f"CAST(list_transform({value}, lambda {item}: {element}) AS {target.type})"
    entry = ", ".join(
        f"{literal(name)}: {_converted(f'{item}.{name}', old, new, depth + 1)}"
        for name, old, new in zip(("key", "value"), source.parts, target.parts, strict=True)
    )
    entries = f"list_transform(map_entries({value}), lambda {item}: {{{entry}}})"
    return f"CAST(map_from_entries({entries}) AS {target.type})"


def _struct(value: str, source: Column, target: Column, depth: int) -> str:
    known = {part.id: part for part in source.parts}
    fields = (
        _initially(part)
        if part.id not in known
        else _converted(
            f"struct_extract({value}, {literal(known[part.id].name)})", known[part.id], part, depth
        )
        for part in target.parts
    )
    named = zip(target.parts, fields, strict=True)
    return "{" + ", ".join(f"{literal(part.name)}: {field}" for part, field in named) + "}"


def _alike(source: Column, target: Column) -> bool:
    """Whether a value of the one is a value of the other as it is."""
    return (
        source.type == target.type
        and len(source.parts) == len(target.parts)
        and all(a.id == b.id and _alike(a, b) for a, b in zip(source.parts, target.parts, strict=True))
    )


def _column(column: ColumnVersion, present: Sequence[ColumnVersion]) -> Column:
    parts = tuple(_column(child, present) for child in present if child.parent == column.id)
    kind = _spell(column.type, parts)
    return Column(column.id, column.name, kind, _initial(column, kind), parts)


def _initial(column: ColumnVersion, kind: str) -> str | None:
    # The text NULL is a value of VARCHAR; where it cannot be one, it is how older catalogs say NULL.
    no_value = column.initial is None or (column.initial == "NULL" and kind not in ("VARCHAR", "BLOB"))
    return None if no_value else literal(str(column.initial))


def _spell(kind: str, parts: Sequence[Column]) -> str:
    if kind == "list":
        return f"{parts[0].type}[]"
    if kind == "map":
        return f"MAP({parts[0].type}, {parts[1].type})"
    if kind == "struct":
        return f"STRUCT({', '.join(f'{identifier(part.name)} {part.type}' for part in parts)})"
    if kind.startswith("decimal("):
        return kind.upper()
    return _SCALARS.get(kind, f"<{kind}>")
