"""A table as a window delivers it: which relation, by which key, and why it cannot be delivered.

Columns are followed by their numbers (a rename keeps them); where the catalog no longer told one, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from truecut.errors import Fault
from truecut.model.change import PREFIX
from truecut.model.table import Mode, TableName, TableSchema
from truecut.sources.contract import TableRead
from truecut.sources.postgres.faults import identifier
from truecut.sources.postgres.relation import NUMBER_UNKNOWN, Relation, RelationColumn
from truecut.sources.postgres.types import table_schema, value_type
from truecut.sources.postgres.values import Unfit

TABLE_MISSING = "TC2120"
COLUMN_MISSING = "TC2121"
COLUMN_RESERVED = "TC2122"
KEY_UNTOLD = "TC2123"
ROUTE_UNTOLD = "TC2124"
KEY_LATE = "TC2127"
SHAPE_UNKNOWN = "TC3054"
WITHIN_TRANSACTION = "TC3052"
REPLACED = "TC3071"


def delivered(relation: Relation) -> TableSchema:
    """Its columns, as sinks see them."""
    return table_schema(relation)


def followed(relation: Relation, table: TableRead) -> Relation:
    """The relation with the columns whose change makes a delete and an insert of an update: the key that the
    sinks have, and the route."""
    route = () if table.route_by is None or table.route_by in table.key else (table.route_by,)
    return replace(relation, key=(*(table.key or relation.key), *route))


def resolved(relation: Relation, before: Relation | None) -> Relation | Fault:
    """With the numbers of columns that the catalog no longer knew when it was asked: those that they had
    before, by name and type. A column that was new then, and is gone or renamed by now, has none."""
    if all(column.number != NUMBER_UNKNOWN for column in relation.columns):
        return relation
    known = {} if before is None else {(c.name, c.type_oid, c.typmod): c for c in before.columns}
    columns = []
    for column in relation.columns:
        old = known.get((column.name, column.type_oid, column.typmod))
        if column.number == NUMBER_UNKNOWN and (old is None or old.number == NUMBER_UNKNOWN):
            return _unknown_column(relation.name, column.name)
        columns.append(column if old is None or column.number else replace(column, number=old.number))
    return replace(relation, columns=tuple(columns))


def alike(one: Relation, other: Relation) -> bool:
    """Whether both have the same columns, as far as their numbers are known."""
    if len(one.columns) != len(other.columns):
        return False
    return all(
        (a.name, a.type_oid, a.typmod) == (b.name, b.type_oid, b.typmod)
        and (NUMBER_UNKNOWN in (a.number, b.number) or a.number == b.number)
        for a, b in zip(one.columns, other.columns, strict=True)
    )


def fault_in(table: TableRead, relation: Relation, modes: frozenset[Mode]) -> Fault | None:
    """Why changes of a table cannot be delivered; None when they can."""
    return next(_faults(table, relation, modes), None)


def _faults(table: TableRead, relation: Relation, modes: frozenset[Mode]) -> Iterator[Fault]:
    columns = {column.name: column for column in relation.columns}
    wanted = [*table.key, *([] if table.route_by is None else [table.route_by])]
    for name in wanted:
        if name not in columns:
            yield _column_missing(table.name, name)
            return
    for name in columns:
        if name.startswith(PREFIX):
            yield _reserved(table.name, name)
    if "mirror" in modes and not (table.key and all(columns[name].identity for name in table.key)):
        yield _key_untold(table)
    if "mirror" in modes and (late := _late(table, relation)):
        yield _key_late(table, late)
    if table.route_by is not None and not columns[table.route_by].identity:
        yield _route_untold(table.name, table.route_by)


def _late(table: TableRead, relation: Relation) -> tuple[str, ...]:
    """What of its key is unique only when that is checked, unless something else tells its rows apart."""
    key = set(table.key)
    if relation.key and set(relation.key) <= key:
        return ()
    return next((names for names in relation.late if set(names) <= key), ())


@dataclass(frozen=True, slots=True)
class Projection:
    """For each column that is delivered, which of a version's columns it is; where there is none, what rows
    of that version have in it: an array of one value."""

    sources: tuple[int | pa.Array, ...]
    names: tuple[str, ...]


def projection(version: Relation, target: Relation) -> Projection | Fault:
    """From a version of a relation to the one that is delivered; a fault where no row of it can be told."""
    if version.oid != target.oid:
        return replaced(target.name)
    found = [_source(version, column) for column in target.columns]
    names = tuple(column.name for column in target.columns)
    for source, name in zip(found, names, strict=True):
        if source is None:
            return _within(target.name, name)
    return Projection(tuple(found), names)


def _source(version: Relation, column: RelationColumn) -> int | pa.Array | None:
    number = _find(version, column)
    if number is None:
        return _initial(column)
    alike = value_type(version.columns[number]).arrow == value_type(column).arrow
    return number if alike else None


def _initial(column: RelationColumn) -> pa.Array | None:
    """None where nobody can tell it, or its type does not hold it: a default of NaN."""
    if column.filled:
        return None
    text = None if column.initial is None else column.initial.encode()
    try:
        return value_type(column).read(pa.array([text], pa.binary()))
    except Unfit:
        return None


def _find(version: Relation, wanted: RelationColumn) -> int | None:
    for number, column in enumerate(version.columns):
        known = NUMBER_UNKNOWN not in (column.number, wanted.number)
        if column.number == wanted.number if known else column.name == wanted.name:
            return number
    return None


# --- in words -------------------------------------------------------------------------------------------


def sql_name(table: TableName) -> str:
    """Quoted."""
    return f"{identifier(table.schema)}.{identifier(table.table)}"


def missing(table: TableName) -> Fault:
    """It is not there, or not published."""
    return Fault(
        TABLE_MISSING,
        f"{table} does not exist at the source, or is not in the publication",
        "Correct its name in the file, take it out, or add it: "
        f"ALTER PUBLICATION … ADD TABLE {sql_name(table)};",
    )


def replaced(table: TableName) -> Fault:
    """Its rows are others, and no log tells how the one became the other."""
    return Fault(
        REPLACED,
        f"{table}: another table has taken its name",
        f"Copy the table anew: truecut resume FILE --table {table}",
    )


def _column_missing(table: TableName, column: str) -> Fault:
    return Fault(
        COLUMN_MISSING,
        f"{table} has no column {column} in the publication",
        "Correct `key` or `route_by` in the file, or publish the column.",
    )


def _reserved(table: TableName, column: str) -> Fault:
    return Fault(
        COLUMN_RESERVED,
        f"{table}: the column {column} begins with {PREFIX}, which is reserved",
        "Rename the column at the source, or leave it out of the publication.",
    )


def _key_untold(table: TableRead) -> Fault:
    named = f"({', '.join(table.key)})" if table.key else "(it has none)"
    return Fault(
        KEY_UNTOLD,
        f"{table.name}: deletes and updates do not tell its key {named}: a mirror cannot follow; "
        f"a primary key mends it, or ALTER TABLE {sql_name(table.name)} REPLICA IDENTITY FULL",
        f"Give it a primary key, or: ALTER TABLE {sql_name(table.name)} REPLICA IDENTITY FULL; and name "
        "`key` in the file; or make it an append table.",
    )


def _key_late(table: TableRead, late: tuple[str, ...]) -> Fault:
    mend = f"CREATE UNIQUE INDEX ON {sql_name(table.name)} ({', '.join(map(identifier, late))})"
    return Fault(
        KEY_LATE,
        f"{table.name}: its key ({', '.join(late)}) is DEFERRABLE: rows share it until it is checked, and a "
        f"mirror would lose one; {mend} mends it",
        f"{mend}; then truecut resume FILE --table {table.name}",
    )


def _route_untold(table: TableName, column: str) -> Fault:
    return Fault(
        ROUTE_UNTOLD,
        f"{table}: deletes and updates do not tell its route column {column}: nobody knows whose they are; "
        f"ALTER TABLE {sql_name(table)} REPLICA IDENTITY FULL mends it",
        f"ALTER TABLE {sql_name(table)} REPLICA IDENTITY FULL; or USING INDEX one that has the column; then "
        f"truecut resume FILE --table {table}",
    )


def _unknown_column(table: TableName, column: str) -> Fault:
    return Fault(
        SHAPE_UNKNOWN,
        f"{table}: the column {column} was changed again before its first change was captured: which one it "
        "is cannot be told any more",
        f"Copy the table anew: truecut resume FILE --table {table}",
    )


def _within(table: TableName, column: str) -> Fault:
    return Fault(
        WITHIN_TRANSACTION,
        f"{table}: a transaction changed the table's rows and then its column {column}; what its rows became "
        "is not in the log",
        f"Copy the table anew: truecut resume FILE --table {table}",
    )
