"""Which rows DuckLake may keep in its catalog: those that it gives back as they were.

DuckLake keeps small inserts in the catalog database, where some values change or become unreadable. Seen on
every type and every kind of catalog: scalars come back bit for bit, but for floating point numbers, which may
lose their last digit in a DuckDB file, and the bits of a NaN in SQLite and PostgreSQL; what is nested may be
damaged; and a column may have a name that the catalog needs for itself. Rows of a table with such a column go
to Parquet however few they are, whatever the lake's own settings say. Those settings are as before
afterwards: they are changed and restored within the order's transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import duckdb

from truecut.lake import literal
from truecut.model.table import Column, TableName, TableSchema
from truecut.sinks.ducklake.pool import Lake

_DEFAULT = "ducklake_default_data_inlining_row_limit"
_OPTION = "data_inlining_row_limit"
# By these the catalogs tell their rows apart: DuckLake, SQLite, PostgreSQL; whatever their case.
_DUCKLAKES_OWN = frozenset(
    {
        *("row_id", "begin_snapshot", "end_snapshot"),
        *("_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"),
    }
)
_POSTGRES_OWN = frozenset({"ctid", "tableoid", "xmin", "xmax", "cmin", "cmax"})
_CATALOGS_OWN = _DUCKLAKES_OWN | _POSTGRES_OWN | {"rowid", "oid", "_rowid_"}


def inlines_exactly(columns: Iterable[Column]) -> bool:
    """Whether a catalog gives rows of these columns back as they were."""
    return not any(
        column.kind != "scalar" or column.parsed.is_float or is_catalogs_own(column.name)
        for column in columns
    )


def is_catalogs_own(name: str) -> bool:
    """Whether some kind of catalog has a column of that name beside the inlined ones."""
    return name.lower() in _CATALOGS_OWN


def refused_name(lake: Lake, table: str, schema: TableSchema) -> str | None:
    """A column because of which DuckLake takes no new table where it would inline. That is by default decided
    when the table is made, but in PostgreSQL only with the commit."""
    late = lake.attachment.address.kind == "postgres"
    names = {column.name.lower(): column.name for column in schema.columns}
    taken = sorted(names.keys() & (_DUCKLAKES_OWN | (_POSTGRES_OWN if late else frozenset())))
    if not taken:
        return None
    limits = [int(limit) for limit in _limits(lake, table).values()]
    by_default = not limits and not _DUCKLAKES_OWN.issuperset(taken)
    return names[taken[0]] if by_default or any(limits) else None


def never_inline(lake: Lake, table: str) -> None:
    """From now on, whoever inserts. Not for a table of this very transaction."""
    _set(lake, _scope_of(TableName.parse(table)), "0")


@contextmanager
def exact_rows(lake: Lake, table: str, schema: TableSchema) -> Iterator[None]:
    """What is inserted inside is kept where it stays as it is."""
    if inlines_exactly(schema.columns):
        yield
        return
    limits = _limits(lake, table)
    with _no_default(lake):
        for scope in limits:
            _set(lake, scope, "0")
        try:
            yield
        finally:
            # After an error the transaction is rolled back, and these with it.
            with suppress(duckdb.Error):
                for scope, limit in limits.items():
                    _set(lake, scope, limit)


_switch = threading.Lock()
_users = [0]  # sinks of this process that need the default off at this moment


@contextmanager
def _no_default(lake: Lake) -> Iterator[None]:
    """DuckLake's default is one setting of the whole process: the last who needs it off restores it."""
    with _switch:
        _users[0] += 1
        lake.connection.execute(f"SET {_DEFAULT} = 0")
    try:
        yield
    finally:
        with _switch, suppress(duckdb.Error):
            _users[0] -= 1
            if not _users[0]:
                lake.connection.execute(f"RESET {_DEFAULT}")


def _limits(lake: Lake, table: str) -> dict[str, str]:
    """What somebody has set for this lake, schema or table: arguments that name it → its limit. What was set
    for a table says nothing of one that this very transaction has made in its place, and DuckLake refuses
    to set anything for that."""
    name = TableName.parse(table)
    schema = f", schema => {literal(name.schema)}"
    scopes: dict[tuple[str, str | None], str] = {
        ("GLOBAL", None): "",
        ("SCHEMA", name.schema): schema,
    }
    if table not in lake.renewed:
        scopes["TABLE", table] = _scope_of(name)
    rows = lake.connection.execute(
        f"SELECT scope, scope_entry, value FROM ducklake_options({literal(lake.attachment.alias)}) "
        f"WHERE option_name = {literal(_OPTION)}"
    ).fetchall()
    return {scopes[scope, entry]: value for scope, entry, value in rows if (scope, entry) in scopes}


def _scope_of(name: TableName) -> str:
    return f", schema => {literal(name.schema)}, table_name => {literal(name.table)}"


def _set(lake: Lake, scope: str, limit: str) -> None:
    lake.connection.execute(f"CALL {lake.name}.set_option({literal(_OPTION)}, {int(limit)}{scope})")
