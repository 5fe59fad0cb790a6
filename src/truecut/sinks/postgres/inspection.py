"""A look at databases that leaves no trace: their cursors and tables, and whether a run may write there.

Promises: nothing is created or changed and no fence is raised. What cannot be read comes back as a fault;
what is missing comes with the SQL that mends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg

from truecut.config.settings import SinkSettings
from truecut.errors import Fault, TruecutError
from truecut.model.cursor import Cursor
from truecut.model.finding import Finding
from truecut.patience import patiently
from truecut.sinks.contract import SinkLook
from truecut.sinks.copies import foreign_table
from truecut.sinks.postgres.address import postgres_of
from truecut.sinks.postgres.cursor import SCHEMA, TABLE, read_cursor
from truecut.sinks.postgres.schema import Place, exists
from truecut.sinks.postgres.server import (
    Connection,
    connect,
    fault_of,
    identifier,
    not_fit,
    read_only,
    row,
    run,
)

THREADS = 8
_SESSION = """
SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE'),
  has_database_privilege(current_database(), 'TEMPORARY'), pg_is_in_recovery(),
  current_setting('session_replication_role') = 'replica'
"""
_SCHEMA = """
SELECT n.oid IS NOT NULL, coalesce(has_schema_privilege(n.oid, 'CREATE'), false)
FROM (SELECT to_regnamespace(%s)) w(oid) LEFT JOIN pg_namespace n USING (oid)
"""
_FIRING = """
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal)
  OR EXISTS (SELECT FROM pg_constraint WHERE contype = 'f'
    AND (conrelid = to_regclass(%(table)s) OR confrelid = to_regclass(%(table)s)))
"""
_OWNED = """
SELECT coalesce(bool_and(pg_has_role(relowner, 'USAGE')), true) FROM pg_class WHERE oid = to_regclass(%s)
"""


def look_at(sinks: Sequence[SinkSettings], *, pipeline: str) -> dict[str, SinkLook]:
    """Every sink, by name."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="look") as pool:
        looks = pool.map(lambda sink: _look(sink, pipeline), sinks)
        return {sink.name: look for sink, look in zip(sinks, looks, strict=True)}


def _look(sink: SinkSettings, pipeline: str) -> SinkLook:
    try:
        return patiently(lambda: _once(sink, pipeline))
    except TruecutError as error:
        return SinkLook(fault=error.fault)


def _once(sink: SinkSettings, pipeline: str) -> SinkLook:
    try:
        with closing(connect(postgres_of(sink.address))) as connection:
            return _contents(connection, sink, pipeline)
    except psycopg.Error as error:
        raise TruecutError.of(_fault(error, sink)) from None


def _contents(connection: Connection, sink: SinkSettings, pipeline: str) -> SinkLook:
    cursor = read_cursor(connection, pipeline, sink.name)
    present = frozenset(table for table in sink.modes if exists(connection, _place(sink, table)))
    missing = () if cursor is not None else (("table", TABLE),)
    return SinkLook(cursor, present, _refused(sink, cursor, present), missing)


def _refused(sink: SinkSettings, cursor: Cursor | None, present: frozenset[str]) -> dict[str, Fault]:
    """Tables that stand where ours shall, and that this pipeline did not make."""
    if sink.existing == "replace":
        return {}
    ours = {} if cursor is None else cursor.copies
    foreign = [table for table in sorted(present) if table not in ours or not ours[table].columns]
    return {table: foreign_table(sink.name, table) for table in foreign}


def _place(sink: SinkSettings, table: str) -> Place:
    return Place(table, postgres_of(sink.address).table(table))


def _fault(error: psycopg.Error, sink: SinkSettings) -> Fault:
    return fault_of(error, postgres_of(sink.address), what=f"sink {sink.name}")


# --- whether a run may write ----------------------------------------------------------------------------


def unfit(sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
    """Why a run could not write there: no session, permissions, tables of somebody else."""
    if look.fault is not None:
        yield Finding(sink.name, look.fault)
        return
    try:
        with closing(connect(postgres_of(sink.address))) as connection:
            yield from _permissions(connection, sink, look)
    except psycopg.Error as error:
        yield Finding(sink.name, _fault(error, sink))
    for fault in look.refused.values():
        yield Finding(sink.name, fault)


def _permissions(connection: Connection, sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
    user, database, creates, temporary, standby, replica = row(connection, _SESSION)
    role = identifier(user)
    if standby:
        yield Finding(sink.name, read_only(f"sink {sink.name}"))
        return
    if (fault := not_fit(connection, what=f"sink {sink.name}")) is not None:
        yield Finding(sink.name, fault)
        return
    if not temporary:
        fix = f"GRANT TEMPORARY ON DATABASE {identifier(database)} TO {role};"
        yield _forbidden(sink, f"{user} may not make temporary tables", fix)
    for schema in sorted({SCHEMA, *(_place(sink, table).name.schema for table in sink.modes)}):
        there, allowed = row(connection, _SCHEMA, (identifier(schema),))
        if not there and not creates:
            fix = f"CREATE SCHEMA {identifier(schema)} AUTHORIZATION {role};"
            yield _forbidden(sink, f"there is no schema {schema}, and {user} may not make one", fix)
        if there and not allowed:
            fix = f"GRANT USAGE, CREATE ON SCHEMA {identifier(schema)} TO {role};"
            yield _forbidden(sink, f"{user} may not make tables in the schema {schema}", fix)
    for table in sorted(look.tables - set(look.refused)):
        place = _place(sink, table).sql
        if not row(connection, _OWNED, (place,))[0]:
            yield _forbidden(sink, f"{table} is not owned by {user}", f"ALTER TABLE {place} OWNER TO {role};")
    if not replica:
        yield from _firing(connection, sink, look, role)


def _firing(connection: Connection, sink: SinkSettings, look: SinkLook, role: str) -> Iterator[Finding]:
    """Triggers and foreign keys that somebody gave our tables: each change of a row would set them off."""
    for table in sorted(look.tables):
        if run(connection, _FIRING, {"table": _place(sink, table).sql}).fetchone() == (True,):
            fault = Fault(
                "TC4038",
                f"sink {sink.name}: triggers or foreign keys of {table} fire for what a run writes",
                f"GRANT SET ON PARAMETER session_replication_role TO {role}; (from PostgreSQL 15 on), "
                "or drop them: a mirror takes what the source says.",
            )
            yield Finding(sink.name, fault, "warning")


def _forbidden(sink: SinkSettings, what: str, sql: str) -> Finding:
    return Finding(sink.name, Fault("TC4041", f"sink {sink.name}: {what}", f"As the database's owner: {sql}"))
