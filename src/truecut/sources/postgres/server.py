"""A connection to the source, and what capture asks of it: its identity, the slot, the publication.

Promises: whatever the driver raises comes out as a TruecutError that holds none of its text (it may repeat
the address); every session writes values in one and the same text form.
"""

from __future__ import annotations

import os
import socket
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo, errors, sql
from psycopg.rows import TupleRow, dict_row

from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.model.table import TableName
from truecut.sources.postgres import faults
from truecut.sources.postgres.lineage import Look, Publication, Slot
from truecut.sources.postgres.messages import HEARTBEAT, lsn_of, lsn_text
from truecut.sources.postgres.session import TEXT_FORM

VERSION_MIN = 150_000
FAILOVER_SLOTS_FROM = 170_000
CONNECT_S = 10
ANSWER_S = 60.0  # for what a server knows without looking for it
PLUGIN = "pgoutput"
_NAME_MAX = 63  # bytes; the server cuts off what is longer, and two slots may begin alike

Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the changes are, and under which names they are kept there."""

    conninfo: Secret
    slot: str
    publication: str
    tables: tuple[TableName, ...] = ()  # that a publication is made for when there is none; () is all
    purpose: str = "capture"

    @property
    def application(self) -> str:
        """What the server shows of our sessions: by it one capture finds those of another, and ends them."""
        name = f"truecut {self.purpose} {self.slot}"
        return name if len(name) <= _NAME_MAX else f"{name[:50]} {zlib.crc32(name.encode()):08x}"


def parameters(address: Address, **more: str) -> str:
    """The address with the settings of our sessions, for libpq. Holds the password."""
    settings = " ".join(f"-c {name}={_escaped(value)}" for name, value in TEXT_FORM.items())
    given = conninfo.conninfo_to_dict(address.conninfo.reveal())
    options = f"{given.pop('options', '') or ''} {settings}".strip()
    fixed = {"application_name": address.application, "connect_timeout": str(CONNECT_S), "options": options}
    alive = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
    alive["tcp_user_timeout"] = "30000"  # while something is unanswered nothing is kept alive
    return conninfo.make_conninfo("", **{**alive, **given, **fixed, **more})


def connect(address: Address) -> Connection:
    """A session for questions and gulps."""
    with answering(address, "connect"):
        connection = psycopg.connect(parameters(address), autocommit=True)
    if connection.info.server_version < VERSION_MIN:
        version = connection.info.server_version
        connection.close()
        raise faults.too_old(version)
    return connection


@contextmanager
def answering(address: Address, what: str) -> Iterator[None]:
    """What the driver raises, in our words."""
    try:
        yield
    except psycopg.Error as error:
        raise fault_of(address, what, error) from None


@contextmanager
def promptly(connection: Connection, *, within_s: float) -> Iterator[None]:
    """A server that acknowledges and never answers is not waited for: the session is ended, which whoever
    waits for it sees as one that was lost."""
    over = threading.Lock()
    line = socket.socket(fileno=os.dup(connection.fileno()))

    def end() -> None:
        if over.acquire(blocking=False):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(within_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        over.acquire(blocking=False)  # too late to end it
        line.close()


def user_of(address: Address) -> str:
    """As whom we connect, as far as the address says."""
    return str(conninfo.conninfo_to_dict(address.conninfo.reveal()).get("user") or "the user")


def fault_of(address: Address, what: str, error: psycopg.Error) -> TruecutError:
    given = conninfo.conninfo_to_dict(address.conninfo.reveal())
    user = str(given.get("user") or "the user")
    text = str(error)
    if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification):
        return faults.refused(user)
    if isinstance(error, errors.InvalidCatalogName):
        return faults.no_database(str(given.get("dbname")))
    if isinstance(error, errors.InsufficientPrivilege):
        return faults.not_permitted(user)
    if isinstance(error, errors.ObjectInUse):
        return faults.slot_in_use(address.slot, None)
    if _is_gone(error):
        return connecting(address, text)
    return faults.failed(what, error.sqlstate or "")


def _is_gone(error: psycopg.Error) -> bool:
    """No connection, or not any more."""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def connecting(address: Address, text: str) -> TruecutError:
    """libpq gives no SQLSTATE where a connection fails; its words are looked at, and never shown."""
    given = conninfo.conninfo_to_dict(address.conninfo.reveal())
    user = str(given.get("user") or "the user")
    if "password authentication failed" in text or "no password supplied" in text or "pg_hba.conf" in text:
        return faults.refused(user)
    if "database" in text and "does not exist" in text:
        return faults.no_database(str(given.get("dbname")))
    if "role" in text and "does not exist" in text:
        return faults.refused(user)
    if "must be superuser or replication role" in text or "permission denied to start WAL sender" in text:
        return faults.not_permitted(user)
    return faults.unreachable(f"{given.get('host') or 'local socket'}, port {given.get('port') or 5432}")


# --- what it says ---------------------------------------------------------------------------------------

_STATE = """
SELECT current_database(), pg_current_wal_flush_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text
"""
_SLOT = """
SELECT confirmed_flush_lsn::text AS confirmed, restart_lsn::text AS restart,
  coalesce(pg_current_wal_lsn() - restart_lsn, 0)::int8 AS retained, safe_wal_size AS safe, plugin, database,
  active_pid, wal_status, to_jsonb(s) AS rest
FROM pg_replication_slots s WHERE slot_name = %s
"""
_PUBLICATION = """
SELECT oid::int8,
  jsonb_build_array(puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot)::text
FROM pg_publication WHERE pubname = %s
"""
_UNPUBLISHED = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_publication p
WHERE p.pubname = %(name)s AND NOT p.puballtables AND obj_description(p.oid, 'pg_publication') = %(ours)s
  AND c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_publication_tables t
    WHERE t.pubname = p.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname)
"""
_COMMENT = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
_PUBLISHED = """
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), (to_jsonb(r) - 'prpubid')::text
FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.prpubid = %(oid)s
UNION ALL
SELECT quote_ident(n.nspname) || '.*', (to_jsonb(r) - 'pnpubid')::text FROM pg_publication_namespace r
JOIN pg_namespace n ON n.oid = r.pnnspid WHERE r.pnpubid = %(oid)s
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which server, on which timeline: what does not change while a session lives."""

    system: str
    timeline: int
    switches: dict[int, int]


def identify(address: Address) -> Identity:
    """Asked of the replication protocol, which knows the timeline at once after a promotion."""
    with (
        answering(address, "tell who it is"),
        psycopg.connect(parameters(address, replication="database"), autocommit=True) as connection,
    ):
        system, timeline, *_ = _one(connection, "IDENTIFY_SYSTEM")
        history = b"" if int(timeline) == 1 else _one(connection, f"TIMELINE_HISTORY {int(timeline)}")[1]
    return Identity(str(system), int(timeline), _switches(history))


_WHO = """
SELECT (SELECT system_identifier FROM pg_control_system())::text, pg_walfile_name(pg_current_wal_insert_lsn())
"""


def require_same(connection: Connection, address: Address, identity: Identity) -> None:
    """A session of its own may end at another server than the one that was asked who it is: behind one
    address there may be several, and one may have taken over meanwhile."""
    with answering(address, "tell who it is"), promptly(connection, within_s=ANSWER_S):
        system, file = _one(connection, _WHO)
    if (system, int(file[:8], 16)) != (identity.system, identity.timeline):
        raise faults.exchanged()


def _switches(history: bytes | str) -> dict[int, int]:
    """Of a history file: where each timeline before this one ended."""
    text = history if isinstance(history, str) else history.decode()
    fields = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return {int(one[0]): lsn_of(one[1]) for one in fields}


def look(connection: Connection, address: Address, identity: Identity) -> Look:
    """Everything that decides whether its log goes on where the journal ends."""
    with answering(address, "tell its state"), promptly(connection, within_s=ANSWER_S):
        database, flushed, xid_next = _one(connection, _STATE)
        return Look(
            identity.system,
            identity.timeline,
            identity.switches,
            database,
            lsn_of(flushed),
            int(xid_next),
            _slot(connection, address.slot),
            _publication(connection, address.publication),
            connection.info.server_version,
        )


def _one(connection: Connection, statement: str) -> Any:
    row = connection.execute(statement.encode()).fetchone()
    return row if row is not None else ()


def _slot(connection: Connection, name: str) -> Slot | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_SLOT, (name,)).fetchone()
    if row is None:
        return None
    rest = row["rest"]  # what only some versions have
    reason = rest.get("invalidation_reason") or ("conflict" if rest.get("conflicting") else None)
    if reason is None and row["wal_status"] == "lost":
        reason = "its log was removed"
    return Slot(
        confirmed=lsn_of(row["confirmed"] or "0/0"),
        restart=lsn_of(row["restart"]) if row["restart"] else None,
        retained_bytes=row["retained"],
        safe_bytes=row["safe"],
        plugin=row["plugin"] or "none: it is a physical one",
        database=row["database"] or "",
        two_phase=bool(rest.get("two_phase")),
        active_pid=row["active_pid"],
        invalid=reason,
        failover=bool(rest.get("failover")),
    )


def _publication(connection: Connection, name: str) -> Publication | None:
    row = connection.execute(_PUBLICATION, (name,)).fetchone()
    if row is None:
        return None
    tables = connection.execute(_PUBLISHED, {"oid": row[0]}).fetchall()
    return Publication(row[0], row[1], dict(sorted(tables)))


def existing(connection: Connection, address: Address, oids: Sequence[int]) -> frozenset[int]:
    """Those of some tables that are still there."""
    query = "SELECT oid::int8 FROM pg_class WHERE oid = ANY(%s::int8[]::oid[])"
    with answering(address, "look for tables"), promptly(connection, within_s=ANSWER_S):
        return frozenset(row[0] for row in connection.execute(query, (list(oids),)).fetchall())


# --- what it is asked to do -----------------------------------------------------------------------------


def create_publication(connection: Connection, address: Address) -> None:
    """For the tables of the pipeline, or for all; partitions under their root's name."""
    what = published(address.tables)
    statement = f"CREATE PUBLICATION {faults.identifier(address.publication)} {what}"
    try:
        connection.execute(f"{statement} WITH (publish_via_partition_root)".encode())
        name = faults.identifier(address.publication)
        connection.execute(f"COMMENT ON PUBLICATION {name} IS {faults.literal(OURS)}".encode())
    except psycopg.Error as error:
        if _is_gone(error):
            raise fault_of(address, "make a publication", error) from None
        raise faults.no_publication(address.publication, what, type(error).__name__) from None


OURS = "made by truecut"  # a comment on a publication; slots have none


def drop_made(address: Address) -> tuple[list[str], list[str]]:
    """Remove slot and publication; returns what is gone, and what stays because somebody else has made it."""
    gone, kept = [], []
    connection = connect(address)
    with connection, answering(address, "drop slot and publication"):
        slot = _slot(connection, address.slot)
        if slot is not None and slot.active_pid is not None:
            raise faults.slot_in_use(address.slot, slot.active_pid)
        if slot is not None and slot.plugin == PLUGIN:
            drop_slot(connection, address)
            gone.append(f"slot {address.slot}")
        said = connection.execute(_COMMENT, (address.publication,)).fetchone()
        if said is not None and said[0] == OURS:
            connection.execute(f"DROP PUBLICATION {faults.identifier(address.publication)}".encode())
            gone.append(f"publication {address.publication}")
        elif said is not None:
            kept.append(f"publication {address.publication}")
    return gone, kept


def publish_more(connection: Connection, address: Address) -> None:
    """Tables that were added to the pipeline, into a publication that is ours. One that cannot be added is
    told of by whoever finds it missing."""
    for schema, table in connection.execute(
        _UNPUBLISHED, {"name": address.publication, "ours": OURS}
    ).fetchall():
        if TableName(schema, table) in address.tables:
            statement = f"ALTER PUBLICATION {faults.identifier(address.publication)} ADD TABLE "
            with suppress(psycopg.Error):
                name = f"{faults.identifier(schema)}.{faults.identifier(table)}"
                connection.execute(f"{statement}{name}".encode())


def published(tables: Sequence[TableName]) -> str:
    """As CREATE PUBLICATION says it."""
    if not tables:
        return "FOR ALL TABLES"
    names = (f"{faults.identifier(one.schema)}.{faults.identifier(one.table)}" for one in tables)
    return "FOR TABLE " + ", ".join(names)


def create_slot(connection: Connection, address: Address) -> None:
    """With the server's failover slots where it has them: a standby that keeps up can then take over."""
    failover = ", failover => true" if connection.info.server_version >= FAILOVER_SLOTS_FROM else ""
    statement = f"SELECT pg_create_logical_replication_slot(%s, %s{failover})".encode()
    try:
        connection.execute(statement, (address.slot, PLUGIN))
    except errors.ConfigurationLimitExceeded:
        raise faults.no_slot_left(int(_one(connection, "SHOW max_replication_slots")[0])) from None
    except errors.ObjectNotInPrerequisiteState:
        raise faults.wal_level(str(_one(connection, "SHOW wal_level")[0])) from None
    except psycopg.Error as error:
        raise fault_of(address, "make a slot", error) from None


def drop_slot(connection: Connection, address: Address) -> None:
    """It is of no use any more."""
    with answering(address, "drop the slot"):
        connection.execute("SELECT pg_drop_replication_slot(%s)", (address.slot,))


def advance(connection: Connection, address: Address, lsn: int) -> None:
    """The source may forget what the journal has."""
    with answering(address, "advance the slot"):
        connection.execute(
            "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (address.slot, lsn_text(lsn))
        )


def beat(connection: Connection, address: Address) -> None:
    """A message without a table: an idle slot moves with it."""
    with answering(address, "write a message"), promptly(connection, within_s=ANSWER_S):
        connection.execute("SELECT pg_logical_emit_message(false, %s, '')", (HEARTBEAT,))


def end_others(connection: Connection, address: Address) -> None:
    """Sessions of a capture that no longer has the lease: it cannot move the slot any more."""
    others = sql.SQL(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = %s AND pid <> pg_backend_pid() AND usename = current_user"
    )
    with (
        answering(address, "end the sessions of the capture before"),
        promptly(connection, within_s=ANSWER_S),
    ):
        connection.execute(others, (address.application,))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
