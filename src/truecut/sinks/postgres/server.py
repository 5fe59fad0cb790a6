"""Sessions with the sink's PostgreSQL: how they are set, and what the server's errors mean.

Every session has the same settings whatever server, role or address say. Messages carry an SQLSTATE, names
of columns and constraints, never the server's own text: that may hold values of rows, or a password.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import conninfo, errors

from truecut import pulse, tls
from truecut.errors import Fault, Retry
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.progress import Progress

Connection = psycopg.Connection[tuple[Any, ...]]

VERSION_MIN = 140000
_progress: WeakKeyDictionary[Connection, Progress] = WeakKeyDictionary()
_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "truecut",
}
# A writer that stops inside its transaction (a paused process, a machine that is gone) gives its locks back.
_SETTINGS = """
SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres';
SET search_path = pg_catalog;
SET lc_monetary = 'C'; SET extra_float_digits = 1; SET xmloption = 'content';
SET standard_conforming_strings = on; SET default_transaction_read_only = off;
SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = '60s';
SET idle_in_transaction_session_timeout = '60s'
"""
_REPLICA = "SET session_replication_role = replica"


def connect(address: PostgresAddress) -> Connection:
    """A session of ours; psycopg.Error when there is none. Each statement is a transaction unless begun."""
    given = {**_DEFAULTS, **conninfo.conninfo_to_dict(address.dsn.reveal()), "client_encoding": "UTF8"}
    pulse.beat()
    text = conninfo.make_conninfo("", **given)
    connection = psycopg.connect(text, autocommit=True)
    try:
        connection.prepare_threshold = None  # tables are dropped and made: nothing is planned ahead
        connection.execute(_SETTINGS)
        with suppress(errors.InsufficientPrivilege):  # triggers and foreign keys then fire: `doctor` says so
            connection.execute(_REPLICA)
    except BaseException:
        connection.close()
        raise
    _progress[connection] = progress = Progress(text, connection.info.backend_pid)
    pulse.follow(progress.read)
    return connection


def run(connection: Connection, sql: str, parameters: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
    """One statement, which is a sign of life; what it does for long is looked at from beside."""
    pulse.beat()
    progress = _progress.get(connection)
    with nullcontext() if progress is None else progress.running():
        return connection.execute(sql.encode(), parameters)


def row(connection: Connection, sql: str, parameters: Any = None) -> tuple[Any, ...]:
    """The one row of a statement."""
    found = run(connection, sql, parameters).fetchone()
    assert found is not None
    return found


def begin(connection: Connection) -> None:
    """Each statement sees what was committed before it: the fence is read anew under its lock."""
    run(connection, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")


def commit(connection: Connection) -> None:
    """All of it, or nothing."""
    run(connection, "COMMIT")


def rollback(connection: Connection) -> None:
    """Nothing of it, also when the session is gone."""
    with suppress(psycopg.Error):
        connection.execute("ROLLBACK")


def identifier(name: str) -> str:
    """A quoted name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A quoted text."""
    return "'" + text.replace("'", "''") + "'"


# --- errors ---------------------------------------------------------------------------------------------


def lost_race(error: psycopg.Error) -> bool:
    """Whether the same transaction, begun again, may go through."""
    state = error.sqlstate or ""
    made = state in ("42P06", "42P07") or (state == "23505" and error.diag.schema_name == "pg_catalog")
    return made or state in ("40001", "40P01")


def fault_of(error: psycopg.Error, address: PostgresAddress, *, what: str) -> Fault:
    """Classify what psycopg raised, by SQLSTATE where the server gave one."""
    state = error.sqlstate or _state_of(str(error))
    given = conninfo.conninfo_to_dict(address.dsn.reveal())
    user = str(given.get("user") or "the role")
    why = tls.disagreement(str(error), sslmode=given.get("sslmode")) if state[:2] in ("", "28") else None
    if why is not None:
        message = f"{what}: its PostgreSQL and its address do not agree upon TLS: {why}"
        fix = (
            "Say in the address what the server wants: sslmode=require for TLS; sslmode=verify-full and "
            "sslrootcert=FILE (or system) to be sure whose it is."
        )
        return Fault("TC4043", message, fix)
    if lost_race(error) or state == "55P03":
        message = f"{what}: somebody else committed at the same time, or holds a lock"
        fix = "None needed: a running pipeline tries again by itself; a command can be repeated."
        return Fault("TC4040", message, fix, Retry.RETRYABLE)
    if state[:2] in ("53", "58"):
        return _full(what, state)
    if state[:2] == "28":
        fix = f"Check user and password, and pg_hba.conf; ALTER ROLE {identifier(user)} LOGIN PASSWORD '…';"
        return Fault("TC4031", f"{what}: its PostgreSQL does not let {user} in", fix)
    if state == "3D000":
        name = str(given.get("dbname") or user)
        return Fault("TC4032", f"{what}: there is no database {name}", f"CREATE DATABASE {identifier(name)};")
    if state == "42501":
        fix = "Run `truecut doctor FILE`: it prints the GRANT that is missing."
        return Fault("TC4033", f"{what}: its PostgreSQL does not permit that", fix)
    if state == "25006":
        return read_only(what)
    if not state or state[:2] in ("08", "57") or state == "25P03":
        return unreachable(what)
    fix = "Its server's log says more; a running pipeline tries again by itself."
    return Fault("TC4035", f"{what}: its PostgreSQL refused (SQLSTATE {state})", fix, Retry.RETRYABLE)


def not_fit(connection: Connection, *, what: str) -> Fault | None:
    """Why no copy can be exact at this database, whatever its role may do."""
    version = connection.info.server_version
    if version < VERSION_MIN:
        message = f"{what}: its PostgreSQL is version {version // 10_000}; 14 or newer is needed"
        return Fault("TC4037", message, "Upgrade the server.")
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        message = (
            f"{what}: its database has the encoding SQL_ASCII, and cuts texts by bytes, not by characters"
        )
        fix = "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0; and name that one in the sink's dsn."
        return Fault("TC4048", message, fix)
    return None


def read_only(what: str) -> Fault:
    """A standby, or a server that somebody closed."""
    fix = "Give the address of the primary, which can be written."
    return Fault("TC4034", f"{what}: its PostgreSQL can only be read (a standby?)", fix)


def unreachable(what: str) -> Fault:
    """No server, no network, or the session has ended."""
    fix = "Check server and network; a running pipeline tries again by itself."
    return Fault("TC4030", f"{what}: no connection to its PostgreSQL", fix, Retry.RETRYABLE)


def _full(what: str, state: str) -> Fault:
    if state in ("53100", "58030"):
        return Fault(
            "TC4039",
            f"{what}: the disk is full",
            "Free space; a running pipeline goes on by itself.",
            Retry.RETRYABLE,
        )
    fix = "Raise max_connections or the server's memory; a running pipeline tries again by itself."
    message = f"{what}: its PostgreSQL has no connection or memory left (SQLSTATE {state})"
    return Fault("TC4036", message, fix, Retry.RETRYABLE)


def _state_of(text: str) -> str:
    """libpq gives no SQLSTATE where a connection fails; its words are looked at, and never shown."""
    if any(word in text for word in ("password authentication", "no password supplied", "pg_hba.conf")):
        return "28000"
    if "does not exist" in text and "role" in text:
        return "28000"
    if "does not exist" in text and "database" in text:
        return "3D000"
    return "53300" if "too many" in text or "remaining connection slots" in text else ""
