"""A table at the sink follows the source's columns: what to alter, and what cannot be followed.

Columns are compared by the source's own column ids. Added ones are added, dropped ones are kept but
emptied, widened ones widened; a rename, a narrowing or a re-created table stops that table.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from truecut.lake import identifier
from truecut.model.change import COMMITTED_AT, OP, SEQ
from truecut.model.cursor import CopyState
from truecut.model.table import Column, Mode, TableName, TableSchema
from truecut.sinks.ducklake.pool import Lake

POSITION = "_truecut_position"
TRANSACTION = "_truecut_transaction"
APPLIED_AT = "_truecut_applied_at"
UNCHANGED = "_truecut_unchanged"

APPEND_COLUMNS = (
    (OP, "VARCHAR"),
    (POSITION, "VARCHAR"),
    (SEQ, "VARCHAR"),
    (TRANSACTION, "VARCHAR"),
    (COMMITTED_AT, "TIMESTAMPTZ"),
    (APPLIED_AT, "TIMESTAMPTZ"),
    (UNCHANGED, "VARCHAR[]"),
)


class TableStop(Exception):
    """This table cannot go on; the others of the order can."""

    def __init__(self, table: str, code: str, message: str) -> None:
        super().__init__(message)
        self.table, self.code, self.message = table, code, message


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
    columns = ", ".join(f"{identifier(column)} {kind}" for column, kind in wanted_columns(schema, mode))
    lake.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {lake.name}.{identifier(name.schema)}")
    lake.connection.execute(f"CREATE TABLE {qualified(lake, table)} ({columns})")


def drop_table(lake: Lake, table: str) -> None:
    """Remove the table."""
    lake.connection.execute(f"DROP TABLE {qualified(lake, table)}")


def follow_schema(
    lake: Lake, table: str, mode: Mode, schema: TableSchema, copy: CopyState | None
) -> CopyState:
    """The table as the order needs it: created, or altered from how this pipeline left it."""
    if copy is None or not copy.columns:
        create_table(lake, table, schema, mode)
        return CopyState(mode, schema.id, schema.columns)
    if copy.table_id == schema.id and copy.columns == schema.columns:
        return CopyState(mode, schema.id, schema.columns, copy.retired_columns)
    change = evolution(table, copy, schema)
    evolve(lake, table, change)
    return CopyState(mode, schema.id, schema.columns, change.retired)


def evolution(table: str, copy: CopyState, schema: TableSchema) -> Evolution:
    """What brings the sink's columns to the source's; TableStop when nothing safe does."""
    if copy.table_id != schema.id:
        raise TableStop(table, "TC3011", f"{table} was dropped and created anew at the source; seed it again")
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
            clauses += _added(column, taken=column.name in retired)
            retired = [name for name in retired if name != column.name]
        elif known.name != column.name:
            raise TableStop(
                table,
                "TC3012",
                f"column {known.name} of {table} was renamed to {column.name} at the source, which the sink "
                "does not follow; seed the table again",
            )
        elif known.type != column.type:
            clauses.append(f"ALTER COLUMN {identifier(column.name)} SET DATA TYPE {column.type}")
    return Evolution(tuple(clauses), tuple(retired))


def evolve(lake: Lake, table: str, change: Evolution) -> None:
    """Carry it out, in the order's own transaction."""
    for clause in change.clauses:
        sql = f"ALTER TABLE {qualified(lake, table)} {clause}"
        try:
            single = len(lake.connection.extract_statements(sql)) == 1
            if not single:  # a default that is more than a literal
                raise TableStop(table, "TC3013", f"{table} has a column whose default cannot be copied")
            lake.connection.execute(sql)
        except (duckdb.CatalogException, duckdb.BinderException, duckdb.NotImplementedException) as error:
            raise TableStop(
                table,
                "TC3014",
                f"the columns of {table} changed at the source in a way that the sink cannot follow; "
                "seed the table again",
            ) from error


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
