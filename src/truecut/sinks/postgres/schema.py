"""A table at the sink follows the source's columns: what to alter, and what cannot be followed.

Columns are compared by the source's own ids. Added ones are added, dropped ones are kept but emptied, renamed
ones renamed, widened ones widened; anything else, or a re-created table, stops that table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from truecut.model.change import APPLIED_AT, COMMITTED_AT, OP, POSITION, SEQ, TRANSACTION, UNCHANGED
from truecut.model.cursor import CopyState
from truecut.model.order import TableOrder
from truecut.model.table import Column, Mode, TableName, TableSchema
from truecut.sinks import stops
from truecut.sinks.copies import beside
from truecut.sinks.postgres.server import Connection, identifier, row, run
from truecut.sinks.postgres.types import Target, check_name, target, targets, widens

_INSTANT = "timestamp with time zone"
APPEND_COLUMNS = (
    (OP, "text"),
    (POSITION, "text"),
    (SEQ, "text"),
    (TRANSACTION, "text"),
    (COMMITTED_AT, _INSTANT),
    (APPLIED_AT, _INSTANT),
    (UNCHANGED, "text[]"),
)
_LITERAL = re.compile(r"'(?:[^'\\\x00]|'')*'")
_PASSING = "_truecut_renamed_"  # a column on its way to a name that another one still has
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_EXISTS = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = %s AND c.relname = %s)
"""
_KEY = """
SELECT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
WHERE n.nspname = %s AND c.relname = %s AND i.indisprimary
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A table of the order, and where it is at the sink."""

    table: str  # as orders name it
    name: TableName

    @property
    def sql(self) -> str:
        """The quoted name."""
        return f"{identifier(self.name.schema)}.{identifier(self.name.table)}"

    @property
    def words(self) -> tuple[str, str]:
        """For questions to the catalog."""
        return self.name.schema, self.name.table


def exists(connection: Connection, place: Place) -> bool:
    """Whether anything of that name stands there."""
    return bool(row(connection, _EXISTS, place.words)[0])


def existing_columns(connection: Connection, place: Place) -> list[tuple[str, str]] | None:
    """Names and types as the sink has them; None when there is no such table."""
    found = run(connection, _COLUMNS, place.words).fetchall()
    if not found and not exists(connection, place):
        return None
    return [(name, kind) for name, kind in found]


def check_columns(connection: Connection, place: Place, copy: CopyState) -> None:
    """The table is as this pipeline left it; somebody may have added columns of their own."""
    there = dict(existing_columns(connection, place) or ())
    control = list(APPEND_COLUMNS) if copy.mode == "append" else []
    wanted = [*control, *((one.name, one.type) for one in _targets_of(place, copy.columns))]
    if any(there.get(name) != kind for name, kind in wanted):
        raise stops.altered(place.table)


def fits(connection: Connection, place: Place, columns: Sequence[Target], key: tuple[str, ...]) -> bool:
    """Whether a mirror stands there with exactly these columns and this key."""
    if existing_columns(connection, place) != [(one.name, one.type) for one in columns]:
        return False
    found = {name for (name,) in run(connection, _KEY, place.words)}
    return found == set(_indexed(columns, key))


def create_table(
    connection: Connection, place: Place, columns: Sequence[Target], mode: Mode, key: tuple[str, ...]
) -> None:
    """Create schema and table. A mirror gets its key as primary key: changes find their rows by it."""
    for name in place.words:
        check_name(place.table, name)
    control = list(APPEND_COLUMNS) if mode == "append" else []
    named = [*control, *((one.name, one.type) for one in columns)]
    parts = [f"{identifier(name)} {kind}" for name, kind in named]
    indexed = _indexed(columns, key) if mode == "mirror" else ()
    if indexed:
        parts.append(f"PRIMARY KEY ({', '.join(map(identifier, indexed))})")
    if not row(connection, "SELECT to_regnamespace(%s) IS NOT NULL", (identifier(place.name.schema),))[0]:
        run(connection, f"CREATE SCHEMA {identifier(place.name.schema)}")
    run(connection, f"CREATE TABLE {place.sql} ({', '.join(parts)})")


def _indexed(columns: Sequence[Target], key: tuple[str, ...]) -> tuple[str, ...]:
    """The key, unless PostgreSQL has no index for one of its types."""
    known = {one.name: one for one in columns}
    return key if all(known[name].comparable for name in key) else ()


def drop_table(connection: Connection, place: Place) -> None:
    """Remove the table."""
    run(connection, f"DROP TABLE {place.sql}")


def follow_schema(
    connection: Connection, place: Place, wanted: TableOrder, copy: CopyState | None
) -> CopyState:
    """The table as the order needs it: created, or altered from how this pipeline left it."""
    schema = wanted.schema
    assert schema is not None
    if copy is None or not copy.columns:
        create_table(connection, place, targets(place.table, schema), wanted.mode, wanted.key)
        return CopyState(wanted.mode, schema.id, schema.columns)
    check_columns(connection, place, copy)
    if copy.table_id == schema.id and copy.columns == schema.columns:
        return CopyState(wanted.mode, schema.id, schema.columns, copy.retired_columns, **beside(copy))
    clauses, retired = evolution(place, copy, schema)
    for clause in clauses:
        run(connection, f"ALTER TABLE {place.sql} {clause}")
    return CopyState(wanted.mode, schema.id, schema.columns, retired, **beside(copy))


def evolution(place: Place, copy: CopyState, schema: TableSchema) -> tuple[list[str], tuple[str, ...]]:
    """What brings the sink's columns to the source's, and which ones the source no longer has; TableStop when
    nothing safe does."""
    table = place.table
    if copy.table_id != schema.id:
        raise stops.recreated(table)
    before = {column.id: column for column in copy.columns}
    after = {column.id: column for column in schema.columns}
    gone = [column for column in copy.columns if column.id not in after]
    kept = [(before[column.id], column) for column in schema.columns if column.id in before]
    new = [column for column in schema.columns if column.id not in before]
    names = set(schema.names)
    # A column that is gone makes room at once for one that takes its name; otherwise it stays, emptied.
    making_room = [name for name in (*copy.retired_columns, *(c.name for c in gone)) if name in names]
    emptied = [column for column in gone if column.name not in names]
    clauses = [f"DROP COLUMN {identifier(name)}" for name in making_room]
    for column in emptied:
        clauses += [f"DROP COLUMN {identifier(column.name)}", f"ADD COLUMN {_declared(place, column)}"]
    clauses += _renames(kept)
    for old, column in kept:
        clauses += _widened(place, old, column)
    for column in new:
        clauses += _added(place, column)
    retired = [name for name in copy.retired_columns if name not in names]
    return clauses, (*retired, *(column.name for column in emptied))


def _renames(kept: Sequence[tuple[Column, Column]]) -> list[str]:
    """By way of names that nobody has: two columns may have changed theirs for each other's."""
    renamed = [(old, new) for old, new in kept if old.name != new.name]
    away = [f"RENAME COLUMN {identifier(old.name)} TO {_PASSING}{old.id}" for old, _ in renamed]
    return away + [f"RENAME COLUMN {_PASSING}{old.id} TO {identifier(new.name)}" for old, new in renamed]


def _widened(place: Place, old: Column, column: Column) -> list[str]:
    was, now = target(place.table, old).type, target(place.table, column).type
    if was == now:
        return []
    if not widens(was, now):
        raise stops.not_followed(place.table)
    return [f"ALTER COLUMN {identifier(column.name)} TYPE {now}"]


def _added(place: Place, column: Column) -> list[str]:
    if column.untold:
        raise stops.default_not_copied(place.table)
    if column.initial is None:
        return [f"ADD COLUMN {_declared(place, column)}"]
    if _LITERAL.fullmatch(column.initial) is None or column.kind != "scalar" or column.type == "BLOB":
        raise stops.default_not_copied(place.table)
    # Old rows hold the default from now on; new rows always come with a value of their own.
    return [
        f"ADD COLUMN {_declared(place, column)} DEFAULT {column.initial}",
        f"ALTER COLUMN {identifier(column.name)} DROP DEFAULT",
    ]


def _declared(place: Place, column: Column) -> str:
    return f"{identifier(column.name)} {target(place.table, column).type}"


def _targets_of(place: Place, columns: Sequence[Column]) -> tuple[Target, ...]:
    return tuple(target(place.table, column) for column in columns)
