"""Every value of a table as the very text that its type gives out, which is also what the stream of changes
holds: so both are read by the same readers, and come out alike bit by bit."""

from __future__ import annotations

from psycopg import sql

from truecut.sources.postgres.relation import RelationColumn

# Types whose cast to text is their own output, and cheaper than asking `format` for it.
_NUMBERS = ("int2", "int4", "int8", "oid", "float4", "float8", "numeric")
_TIMES = ("date", "time", "timestamp", "timestamptz", "interval")
_PLAIN = frozenset((*_NUMBERS, *_TIMES, "uuid", "json", "jsonb", "bytea", "text", "varchar"))
_BUILT_IN_MAX = 16383


def text_of(column: RelationColumn) -> sql.Composable:
    """A column's value as its type writes it."""
    name = sql.Identifier(column.name)
    if column.base_name in _PLAIN and not column.dims and column.base_oid <= _BUILT_IN_MAX:
        return sql.SQL("{}::pg_catalog.text").format(name)
    # A composite of NULLs IS NULL, and is a value for all that.
    return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(name)
