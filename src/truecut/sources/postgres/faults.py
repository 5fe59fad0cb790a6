"""What can go wrong with PostgreSQL as a source, in words for its user, with the SQL that mends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from truecut.errors import ExitCode, Fault, Retry, TruecutError
from truecut.model.position import Position
from truecut.model.table import TableName

if TYPE_CHECKING:
    from truecut.sources.postgres.sessions import Shortage

TWO_PHASE = "was made with two_phase: it sends transactions before they commit"


def identifier(name: str) -> str:
    """Quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quoted for SQL."""
    return "'" + text.replace("'", "''") + "'"


def unreachable(reason: str) -> TruecutError:
    """No server, no network, or it is starting."""
    return TruecutError(
        "TC2100",
        f"the source's PostgreSQL cannot be reached ({reason})",
        fix="Check host, port and network; a run tries again by itself.",
        retry=Retry.RETRYABLE,
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def refused(user: str) -> TruecutError:
    """A password, or pg_hba.conf."""
    return TruecutError(
        "TC2101",
        f"the source's PostgreSQL does not let {user} in",
        fix=f"Check user and password, and the lines for it in pg_hba.conf; "
        f"ALTER ROLE {identifier(user)} LOGIN PASSWORD '…';",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def not_encrypted(why: str) -> TruecutError:
    """The address and the server want different things, or the certificate is not believed."""
    return TruecutError(
        "TC2156",
        f"the source's PostgreSQL and its address do not agree upon TLS: {why}",
        fix="Say in the address what the server wants: sslmode=require for TLS; sslmode=verify-full and "
        "sslrootcert=FILE (or system) to be sure whose it is.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def no_database(database: str) -> TruecutError:
    """The server is there, the database is not."""
    return TruecutError(
        "TC2102",
        f"there is no database {database} at the source's PostgreSQL",
        fix="Correct its name in the address.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def too_old(version: int) -> TruecutError:
    """Before 15 the catalog does not say which columns and schemas are published."""
    return TruecutError(
        "TC2103",
        f"the source's PostgreSQL is version {version // 10_000}; 15 or newer is needed",
        fix="Upgrade the server.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def wal_level(found: str) -> TruecutError:
    """Its log does not hold enough."""
    return TruecutError(
        "TC2104",
        f"the source's wal_level is {found}; logical is needed",
        fix="ALTER SYSTEM SET wal_level = logical; then restart the server.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def not_permitted(user: str) -> TruecutError:
    """Slots are for roles with REPLICATION."""
    return TruecutError(
        "TC2105",
        f"{user} may not use replication slots",
        fix=f"ALTER ROLE {identifier(user)} REPLICATION;",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def no_slot_left(maximum: int) -> TruecutError:
    """All are taken."""
    return TruecutError(
        "TC2106",
        f"all {maximum} replication slots of the source are taken",
        fix="Drop one that nobody needs (SELECT slot_name, active FROM pg_replication_slots;), or "
        f"ALTER SYSTEM SET max_replication_slots = {maximum + 5}; and restart the server.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def no_sender_left(maximum: int) -> TruecutError:
    """Streaming needs a process of its own."""
    return TruecutError(
        "TC2107",
        f"all {maximum} WAL senders of the source are taken",
        fix=f"ALTER SYSTEM SET max_wal_senders = {maximum + 5}; and restart the server.",
        retry=Retry.RETRYABLE,
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def few_sessions(found: Shortage) -> TruecutError:
    """Reading units needs one each, and capture and looks theirs."""
    taken = f", and others have {found.taken} of them" if found.taken else ""
    return TruecutError(
        "TC2158",
        f"{found.whose} allows {found.limit} sessions at the source{taken}; a run may need {found.needed}",
        fix=f"{found.sql} Or read fewer units at once: source.backfill.connections_max.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def no_session_left(user: str) -> TruecutError:
    """By the server's limit, the role's or the database's: only somebody who is let in can tell."""
    return TruecutError(
        "TC2159",
        f"the source's PostgreSQL has no session left for {user}",
        fix="SELECT usename, datname, count(*) FROM pg_stat_activity GROUP BY 1, 2; says who has them. Raise "
        "max_connections, or the role's or database's CONNECTION LIMIT; a run tries again by itself.",
        retry=Retry.RETRYABLE,
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def slot_in_use(slot: str, pid: int | None) -> TruecutError:
    """By somebody who is not a capture of ours."""
    who = "another session" if pid is None else f"process {pid}"
    return TruecutError(
        "TC2108",
        f"the slot {slot} is in use by {who} of the source",
        fix="Choose another slot for this pipeline, or end the other one: "
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        f"WHERE slot_name = {literal(slot)};",
        retry=Retry.RETRYABLE,
    )


def wrong_slot(slot: str, what: str) -> TruecutError:
    """It is there, and not of our kind."""
    return TruecutError(
        "TC2109",
        f"the slot {slot} {what}",
        fix=f"Choose another slot for this pipeline, or, if nobody needs it: SELECT "
        f"pg_drop_replication_slot({literal(slot)});",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def no_publication(publication: str, tables: str, why: str) -> TruecutError:
    """It is not there, and we may not make it."""
    return TruecutError(
        "TC2110",
        f"there is no publication {publication}, and it could not be made ({why})",
        fix=f"As the tables' owner: CREATE PUBLICATION {identifier(publication)} {tables};",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def kept_back(publication: str, operations: Sequence[str]) -> TruecutError:
    """A copy without them is another table."""
    return TruecutError(
        "TC2155",
        f"the publication {publication} does not publish {', '.join(operations)}",
        fix=f"ALTER PUBLICATION {identifier(publication)} "
        "SET (publish = 'insert, update, delete, truncate');",
    )


def generated_left_out(
    publication: str, table: str, *, stored: Sequence[str], never: Sequence[str]
) -> TruecutError:
    """The log does not tell them, so no copy has them."""
    if stored:
        more = f"; {', '.join(never)} cannot be published" if never else ""
        fix = (
            f"ALTER PUBLICATION {identifier(publication)} SET (publish_generated_columns = stored); "
            f"the tables are then copied anew{more}."
        )
    else:
        fix = (
            "None at the source: PostgreSQL publishes stored ones from 18 on, and virtual ones never. "
            "Compute them at the sink, or make them ordinary columns."
        )
    return TruecutError(
        "TC2157",
        f"{table}: no copy has its generated columns {', '.join((*stored, *never))}: they are not published",
        fix=fix,
    )


def not_published(publication: str, table: str, sql_name: str) -> TruecutError:
    """Its changes would never come."""
    return TruecutError(
        "TC2111",
        f"the publication {publication} lacks the table {table}",
        fix=f"ALTER PUBLICATION {identifier(publication)} ADD TABLE {sql_name};",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def standby() -> TruecutError:
    """It can neither write a heartbeat nor keep a slot of its own for certain."""
    return TruecutError(
        "TC2116",
        "the source's PostgreSQL is a standby",
        fix="Give the address of its primary; SELECT sender_host, sender_port FROM pg_stat_wal_receiver; "
        "a run goes on by itself once this one is promoted.",
        retry=Retry.RETRYABLE,
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def unreadable(lsn: str, what: str) -> TruecutError:
    """The server sends something that the protocol does not have."""
    return TruecutError(
        "TC2112",
        f"the source's stream behind {lsn} cannot be read: {what}",
        fix="Nothing is lost: the slot stays where it is. Please report it with the server's version.",
    )


def failed(what: str, state: str) -> TruecutError:
    """Anything else that the server refuses."""
    return TruecutError(
        "TC2113",
        f"the source's PostgreSQL refused to {what} (SQLSTATE {state})",
        fix="Its log says why; a run tries again by itself.",
        retry=Retry.RETRYABLE,
    )


def lock_held(what: str) -> TruecutError:
    """An ALTER or a TRUNCATE that takes its time, or a transaction that is waited for."""
    return TruecutError(
        "TC2160",
        f"the source's PostgreSQL could not {what}: somebody there holds a lock",
        fix="End that transaction (pg_locks says whose it is); a run tries again by itself.",
        retry=Retry.RETRYABLE,
    )


def no_room(reason: str) -> TruecutError:
    """A large transaction waits on disk until it commits."""
    return TruecutError(
        "TC2126",
        f"a large transaction of the source cannot be set aside ({reason})",
        fix="Free space in the folder for temporary files (TMPDIR); a run tries again by itself.",
        retry=Retry.RETRYABLE,
    )


def slot_given_up(slot: str, *, held_bytes: int, bytes_max: int) -> TruecutError:
    """By the user's own choice: the source's disk comes first."""
    return TruecutError(
        "TC2115",
        f"the slot {slot} held back {held_bytes:,} bytes of the source's log, more than its {bytes_max:,}, "
        "and was given up",
        fix="Remove what kept capture back, then let it begin again: the tables are copied anew.",
    )


def not_captured_yet() -> TruecutError:
    """Nobody captures it, or has begun to a moment ago."""
    return TruecutError(
        "TC2117",
        "the source's changes are not in the journal yet",
        fix="None needed while `truecut run` or `truecut capture` is running; it says what keeps it.",
        retry=Retry.RETRYABLE,
    )


def trimmed(at: Position, oldest: Position) -> Fault:
    """The journal no longer has what comes next."""
    return Fault(
        "TC2119",
        f"the journal no longer has the changes after {at}; the oldest position is {oldest}",
        "The table is copied anew; keep more in the journal (`journal.bytes_max`, `hold`).",
        Retry.GAP,
    )


def untold(table: TableName, why: str) -> Fault:
    """Rows came or went beside the log."""
    return Fault(
        "TC2153",
        f"{table}: the source's log does not tell all that happened to it: {why}",
        f"None needed for a mirror: it is copied anew. Otherwise: truecut resume FILE --table {table}",
        Retry.GAP,
    )


def strayed(table: TableName, other: TableName) -> Fault:
    """Whether it is back or not: what it got meanwhile is under the other name."""
    return Fault(
        "TC2154",
        f"{table}: it was written to while it was called {other}",
        f"None needed for a mirror: it is copied anew. Otherwise: truecut resume FILE --table {table}",
        Retry.GAP,
    )


def exchanged() -> TruecutError:
    """Its sessions do not end at one server."""
    return TruecutError(
        "TC2152",
        "another server, or another timeline, answered under the source's address than a moment before",
        fix="None needed: a run asks again who it is. If that goes on, the address leads to several servers: "
        "name the primary.",
        retry=Retry.RETRYABLE,
    )
