"""A connection to the source, and what capture asks of it: its identity, the slot, the publication.

Promises: whatever the driver raises comes out as a TruecutError that holds none of its text (it may repeat
the address); every session writes values in one and the same text form.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import conninfo, errors, sql
from psycopg.rows import TupleRow, dict_row

from truecut import tls
from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.model.table import TableName
from truecut.sources.postgres import faults
from truecut.sources.postgres.lineage import Look, Publication, Slot, server_name
from truecut.sources.postgres.messages import HEARTBEAT, lsn_of, lsn_text
from truecut.sources.postgres.session import TEXT_FORM

VERSION_MIN = 150_000
FAILOVER_SLOTS_FROM = 170_000
PUBLISHED_GENERATED_FROM = 180_000
CONNECT_S = 10
ANSWER_S = 60.0  # for what a server knows without looking for it
WORK_S = 1800.0  # for what it has to read its log for, or to wait for transactions
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
    witness: str | None = None  # a second slot, which keeps the log for whoever verifies

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
    try:
        _require_new(connection)
    except TruecutError:
        connection.close()
        raise
    return connection


def _require_new(connection: Connection) -> None:
    if connection.info.server_version < VERSION_MIN:
        raise faults.too_old(connection.info.server_version)


@contextmanager
def answering(address: Address, what: str) -> Iterator[None]:
    """What the driver raises, in our words."""
    try:
        yield
    except psycopg.Error as error:
        raise fault_of(address, what, error) from None


@contextmanager
def asking(
    connection: Connection, address: Address, what: str, *, within_s: float | None = None
) -> Iterator[None]:
    """A question, whose answer is not waited for for ever."""
    limit = ANSWER_S if within_s is None else within_s
    with answering(address, what), promptly(connection.fileno(), within_s=limit):
        yield


@contextmanager
def promptly(line_of: int, *, within_s: float) -> Iterator[None]:
    """A server that acknowledges and never answers is not waited for: the session is ended, which whoever
    waits for it sees as one that was lost. `line_of`: the session's socket."""
    over = threading.Lock()
    line = socket.socket(fileno=os.dup(line_of))

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
    if (error.sqlstate or "28")[:2] == "28" and (why := _untrusting(given, text)) is not None:
        return faults.not_encrypted(why)
    if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification):
        return faults.refused(user)
    if isinstance(error, errors.InvalidCatalogName):
        return faults.no_database(str(given.get("dbname")))
    if isinstance(error, errors.InsufficientPrivilege):
        return faults.not_permitted(user)
    if isinstance(error, errors.LockNotAvailable):
        return faults.lock_held(what)
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
    if (why := _untrusting(given, text)) is not None:
        return faults.not_encrypted(why)
    if "password authentication failed" in text or "no password supplied" in text or "pg_hba.conf" in text:
        return faults.refused(user)
    if "database" in text and "does not exist" in text:
        return faults.no_database(str(given.get("dbname")))
    if "role" in text and "does not exist" in text:
        return faults.refused(user)
    if "must be superuser or replication role" in text or "permission denied to start WAL sender" in text:
        return faults.not_permitted(user)
    if (senders := _NO_SENDER.search(text)) is not None:
        return faults.no_sender_left(int(senders[1]))
    if any(words in text for words in _NO_SESSION):
        return faults.no_session_left(user)
    return faults.unreachable(f"{given.get('host') or 'local socket'}, port {given.get('port') or 5432}")


_NO_SENDER = re.compile(r"exceeds \"?max_wal_senders\"? \(currently (\d+)\)")
_NO_SESSION = ("too many clients", "too many connections", "remaining connection slots")


def _untrusting(given: Mapping[str, object], text: str) -> str | None:
    return tls.disagreement(text, sslmode=given.get("sslmode"))


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
  jsonb_build_array(puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot)::text,
  xmin::text, array_remove(ARRAY[CASE WHEN NOT pubinsert THEN 'insert' END,
    CASE WHEN NOT pubupdate THEN 'update' END, CASE WHEN NOT pubdelete THEN 'delete' END,
    CASE WHEN NOT pubtruncate THEN 'truncate' END], NULL) AS kept_back
FROM pg_publication WHERE pubname = %s
"""
_UNPUBLISHED = """
SELECT n.nspname, c.relname, pg_has_role(p.pubowner, 'USAGE') AND pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_publication p
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
    """Which server, on which timeline: what does not change while a session lives. All of it is told in one
    session; `started` lets others be known to be at the same: of one system two may have been promoted."""

    system: str
    timeline: int
    switches: dict[int, int]
    started: str


def identify(address: Address) -> Identity:
    """Asked of the replication protocol, which knows the timeline at once after a promotion."""
    with (
        answering(address, "tell who it is"),
        psycopg.connect(parameters(address, replication="database"), autocommit=True) as connection,
        promptly(connection.fileno(), within_s=ANSWER_S),
    ):
        _require_new(connection)
        system, timeline, *_ = _one(connection, "IDENTIFY_SYSTEM")
        history = b"" if int(timeline) == 1 else _one(connection, f"TIMELINE_HISTORY {int(timeline)}")[1]
        (started,) = _one(connection, STARTED)
    return Identity(str(system), int(timeline), _switches(history), str(started))


STARTED = "SELECT pg_postmaster_start_time()::text"
_WHO = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
  pg_walfile_name(pg_current_wal_insert_lsn()), pg_postmaster_start_time()::text
"""


def require_same(connection: Connection, address: Address, identity: Identity) -> None:
    """A session of its own may end at another server than the one that was asked who it is: behind one
    address there may be several, and one may have taken over meanwhile."""
    with asking(connection, address, "tell who it is"):
        _require_primary(connection)
        system, file, started = _one(connection, _WHO)
    if (system, int(file[:8], 16), started) != (identity.system, identity.timeline, identity.started):
        raise faults.exchanged()


def _require_primary(connection: Connection) -> None:
    if _one(connection, "SELECT pg_is_in_recovery()")[0]:
        raise faults.standby()


def server_of(connection: Connection, address: Address) -> str:
    """At which server a session is, and on which timeline: both stay as they are while it lives."""
    with asking(connection, address, "tell who it is"):
        system, file, _ = _one(connection, _WHO)
    return server_name(system, int(file[:8], 16))


def _switches(history: bytes | str) -> dict[int, int]:
    """Of a history file: where each timeline before this one ended."""
    text = history if isinstance(history, str) else history.decode()
    fields = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return {int(one[0]): lsn_of(one[1]) for one in fields}


def look(connection: Connection, address: Address, identity: Identity) -> Look:
    """Everything that decides whether its log goes on where the journal ends."""
    with asking(connection, address, "tell its state"):
        _require_primary(connection)
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
    return Publication(row[0], row[1], dict(sorted(tables)), row[2])


def kept_back(connection: Connection, address: Address) -> list[str]:
    """Operations that the publication does not publish; [] also where there is none."""
    with asking(connection, address, "tell what is published"):
        row = connection.execute(_PUBLICATION, (address.publication,)).fetchone()
    return [] if row is None else list(row[3])


def existing(connection: Connection, address: Address, oids: Sequence[int]) -> frozenset[int]:
    """Those of some tables that are still there."""
    query = "SELECT oid::int8 FROM pg_class WHERE oid = ANY(%s::int8[]::oid[])"
    with asking(connection, address, "look for tables"):
        return frozenset(row[0] for row in connection.execute(query, (list(oids),)).fetchall())


# --- what it is asked to do -----------------------------------------------------------------------------


def create_publication(connection: Connection, address: Address) -> None:
    """For the tables of the pipeline, or for all; partitions under their root's name."""
    what = published(address.tables, connection.info.server_version)
    statement = f"CREATE PUBLICATION {faults.identifier(address.publication)} {what}"
    try:
        with promptly(connection.fileno(), within_s=ANSWER_S):
            connection.execute(statement.encode())
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
    with connection, asking(connection, address, "drop slot and publication"):
        slot = _slot(connection, address.slot)
        if slot is not None and slot.active_pid is not None:
            raise faults.slot_in_use(address.slot, slot.active_pid)
        if slot is not None and slot.plugin == PLUGIN:
            drop_slot(connection, address)
            gone.append(f"slot {address.slot}")
        gone += _drop_witness(connection, address)
        said = connection.execute(_COMMENT, (address.publication,)).fetchone()
        if said is not None and said[0] == OURS:
            connection.execute(f"DROP PUBLICATION {faults.identifier(address.publication)}".encode())
            gone.append(f"publication {address.publication}")
        elif said is not None:
            kept.append(f"publication {address.publication}")
    return gone, kept


def _drop_witness(connection: Connection, address: Address) -> Iterator[str]:
    """The second slot, if it is there and one that we could have made."""
    slot = None if address.witness is None else _slot(connection, address.witness)
    if address.witness is None or slot is None or slot.plugin != PLUGIN:
        return
    if slot.active_pid is not None:
        raise faults.slot_in_use(address.witness, slot.active_pid)
    drop_slot(connection, replace(address, slot=address.witness))
    yield f"witness slot {address.witness}"


def witness_slot(connection: Connection, address: Address) -> Slot | None:
    """The second slot as it is, if it is there; `address` names one."""
    assert address.witness is not None
    with asking(connection, address, "tell of the witness slot"):
        return _slot(connection, address.witness)


def to_be_published(connection: Connection, address: Address) -> frozenset[TableName]:
    """Tables of the pipeline that `publish_more` would add: it may alter the publication, and owns them."""
    arguments = {"name": address.publication, "ours": OURS}
    with asking(connection, address, "tell what is published"):
        rows = connection.execute(_UNPUBLISHED, arguments).fetchall()
    return frozenset(TableName(*name) for *name, may in rows if may).intersection(address.tables)


def publish_more(connection: Connection, address: Address) -> None:
    """Tables that were added to the pipeline, into a publication that is ours. One that cannot be added is
    told of by whoever finds it missing."""
    arguments = {"name": address.publication, "ours": OURS}
    with asking(connection, address, "add tables to the publication"):
        rows = connection.execute(_UNPUBLISHED, arguments).fetchall()
        for schema, table, _ in rows:
            if TableName(schema, table) in address.tables:
                statement = f"ALTER PUBLICATION {faults.identifier(address.publication)} ADD TABLE "
                with suppress(psycopg.Error):
                    name = f"{faults.identifier(schema)}.{faults.identifier(table)}"
                    connection.execute(f"{statement}{name}".encode())


def published(tables: Sequence[TableName], version: int) -> str:
    """As CREATE PUBLICATION says it; with the columns that the server computes, where it has them."""
    names = (f"{faults.identifier(one.schema)}.{faults.identifier(one.table)}" for one in tables)
    what = "FOR TABLE " + ", ".join(names) if tables else "FOR ALL TABLES"
    computed = ", publish_generated_columns = stored" if version >= PUBLISHED_GENERATED_FROM else ""
    return f"{what} WITH (publish_via_partition_root{computed})"


def create_slot(connection: Connection, address: Address, *, within_s: float | None = None) -> None:
    """With the server's failover slots where it has them: a standby that keeps up can then take over."""
    failover = ", failover => true" if connection.info.server_version >= FAILOVER_SLOTS_FROM else ""
    statement = f"SELECT pg_create_logical_replication_slot(%s, %s{failover})".encode()
    try:
        with promptly(connection.fileno(), within_s=WORK_S if within_s is None else within_s):
            connection.execute(statement, (address.slot, PLUGIN))
    except errors.ConfigurationLimitExceeded:
        raise faults.no_slot_left(int(_one(connection, "SHOW max_replication_slots")[0])) from None
    except errors.ObjectNotInPrerequisiteState:
        raise faults.wal_level(str(_one(connection, "SHOW wal_level")[0])) from None
    except psycopg.Error as error:
        raise fault_of(address, "make a slot", error) from None


def drop_slot(connection: Connection, address: Address) -> None:
    """It is of no use any more."""
    with asking(connection, address, "drop the slot"):
        connection.execute("SELECT pg_drop_replication_slot(%s)", (address.slot,))


def advance(connection: Connection, address: Address, lsn: int) -> None:
    """The source may forget what the journal has."""
    with asking(connection, address, "advance the slot", within_s=WORK_S):
        connection.execute(
            "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (address.slot, lsn_text(lsn))
        )


def beat(connection: Connection, address: Address) -> None:
    """A message without a table: an idle slot moves with it."""
    with asking(connection, address, "write a message"):
        connection.execute("SELECT pg_logical_emit_message(false, %s, '')", (HEARTBEAT,))


def end_others(connection: Connection, address: Address) -> None:
    """Sessions of a capture that no longer has the lease: it cannot move the slot any more."""
    others = sql.SQL(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = %s AND pid <> pg_backend_pid() AND usename = current_user"
    )
    with asking(connection, address, "end the sessions of the capture before"):
        connection.execute(others, (address.application,))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
