"""A server read once more, now, at a place of its log that is known exactly.

A temporary slot tells the place (its consistent point) and exports the snapshot of exactly what committed
before it. Rows come by plain COPY, not by the log. Promises: the source is never kept waiting. While somebody
waits for a copy to come to the place, the snapshot is held and no table is locked; a part is read under a
lock of its own (ACCESS SHARE), which is given up soon where it cannot be had. A snapshot that is older than
a TRUNCATE or a rewrite would find other rows than were there: such a table is told, and not read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import errors, sql

from truecut.config.settings import SourceSettings
from truecut.errors import TruecutError
from truecut.model.change import CONTROL_FIELDS, READ
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import Rows, TableRead, Window
from truecut.sources.postgres import shape, unit_faults
from truecut.sources.postgres.address import server_address
from truecut.sources.postgres.messages import lsn_of
from truecut.sources.postgres.published import relations_of
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.server import (
    ANSWER_S,
    Address,
    Connection,
    answering,
    connect,
    existing,
    parameters,
    promptly,
)
from truecut.sources.postgres.source import CapturedSource
from truecut.sources.postgres.types import row_type
from truecut.sources.postgres.unit_read import lock, permitted, rows_of, same_columns
from truecut.sources.postgres.units import Plan, describe, plan

LOCK_S = 5  # for the lock of a table: who holds it against us is at work on it
SLOT_S = 30  # for transactions that are open when the place is chosen

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_UNTOUCHED = """
WITH RECURSIVE tree AS (
  SELECT %(oid)s::oid AS oid
  UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree t ON i.inhparent = t.oid
    JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'p'
), stood AS (
  SELECT c.oid, nullif(c.relfilenode, 0) AS file FROM tree t JOIN pg_class c ON c.oid = t.oid
), stands AS (
  SELECT %(oid)s::oid AS oid UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass)
)
SELECT to_regclass(%(name)s)::oid = %(oid)s::oid
  AND (SELECT array_agg((oid, file) ORDER BY oid) FROM stood)
    IS NOT DISTINCT FROM (SELECT array_agg((oid, pg_relation_filenode(oid)) ORDER BY oid) FROM stands)
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot that somebody holds, and the place that it is of."""

    address: Address
    snapshot: str
    place: int


@dataclass(frozen=True, slots=True)
class ServerReread:
    """What `reread` gives."""

    moment: Moment
    relations: Mapping[TableName, Relation]
    identity: str
    frontier: Position
    copied: frozenset[TableName]  # of the others only changes are wanted

    def plan(self, table: TableRead, *, at: Position, parallelism: int) -> Window:
        """In the units that a backfill would read."""
        relation = self.relations.get(table.name)
        if at != self.frontier:
            raise TruecutError(
                "TC7052",
                f"{table.name} stands at {at}, and the server can be read at {self.frontier} only: "
                "a run moves it",
                fix="Stop the run that moves it, or let it issue certificates, and verify again.",
            )
        if relation is None:
            raise TruecutError.of(shape.missing(table.name))
        if table.name not in self.copied:
            raise TruecutError(
                "TC7053",
                f"{table.name} began empty (`backfill: none`), so it is not what the source holds",
                fix="None needed: only its certificate can be checked.",
            )
        fault = shape.fault_in(table, relation, frozenset())
        found = self._cut(relation)
        tasks = [PresentRows(self.moment, found, number) for number in range(len(found.parts))]
        schemas = {table.name: shape.delivered(relation)}
        faults = {} if fault is None else {table.name: fault}
        return Window(at, 0, tasks, schemas, len(found.parts) * 500_000, faults, identity=self.identity)

    def _cut(self, relation: Relation) -> Plan:
        """As it is now: whatever the bounds, together they are the whole table."""
        address = self.moment.address
        with closing(connect(address)) as connection, answering(address, "be read once more"):
            connection.execute(f"SET lock_timeout = '{LOCK_S}s'".encode())
            if not existing(connection, address, [relation.oid]):
                raise unit_faults.rewritten(relation.name)
            return plan(connection, address, relation)


@dataclass(frozen=True, slots=True)
class PresentRows:
    """One part of a table, under the snapshot that is held."""

    moment: Moment
    of: Plan
    part: int

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (self.of.relation.name,)

    def read(self) -> Iterator[Rows]:
        """As READ rows."""
        relation = self.of.relation
        schema = pa.schema([*CONTROL_FIELDS, *row_type(relation)])
        width = len(relation.columns)
        address = self.moment.address
        with closing(connect(address)) as connection, answering(address, "be read once more"):
            self._enter(connection)
            for batch in rows_of(connection, self.of, self.part):
                columns = [*_control(batch.num_rows, self.moment.place), *batch.columns[:width]]
                yield Rows(relation.name, pa.RecordBatch.from_arrays(columns, schema=schema))

    def _enter(self, connection: Connection) -> None:
        address, relation = self.moment.address, self.of.relation
        connection.execute(_BEGIN)
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.moment.snapshot)))
        with permitted(address, relation.name):
            lock(connection, self.of, within_s=LOCK_S)
        if not _is_untouched(connection, relation):
            raise unit_faults.rewritten(relation.name)
        if not same_columns(describe(connection, address, relation.oid), relation):
            raise unit_faults.table_changed(relation.name)


def _is_untouched(connection: Connection, relation: Relation) -> bool:
    """Whether the files that hold its rows are those of the snapshot, and its name is still its own. What is
    asked of `pg_class` and `pg_inherits` is told as of the snapshot, what functions tell is of now."""
    name = sql.Identifier(relation.name.schema, relation.name.table).as_string(connection)
    row = connection.execute(_UNTOUCHED, {"oid": relation.oid, "name": name}).fetchone()
    return row is not None and row[0] is True


def _control(count: int, place: int) -> list[pa.Array]:
    return [
        pa.array(np.full(count, READ, np.uint8)),
        pa.array(np.full(count, place, np.uint64)),
        pa.array(np.arange(count, dtype=np.int64)),
        pa.nulls(count, CONTROL_FIELDS[3].type),
    ]


@contextmanager
def reread(settings: SourceSettings, *, generation: int) -> Iterator[ServerReread]:
    """The server as it is now, for as long as the block takes."""
    address = replace(server_address(settings), purpose="verify")
    seen = CapturedSource(settings, generation=generation).observe()
    copied = frozenset(table.name for table in settings.tables if table.backfill != "none")
    with answering(address, "be read once more"):
        with closing(connect(address)) as connection:
            relations = relations_of(connection, address)
        with _exported(address) as (lsn, snapshot):
            moment = Moment(address, snapshot, lsn - 1)
            frontier = Position(generation, lsn - 1)
            yield ServerReread(moment, relations, seen.identity, frontier, copied)


@contextmanager
def _exported(address: Address) -> Iterator[tuple[int, str]]:
    """What the slot exports is gone with its session's next step: a session of ours takes it over, and the
    slot goes."""
    name = f"truecut_reread_{secrets.token_hex(6)}"
    with closing(connect(address)) as holder:
        holder.execute("SET idle_in_transaction_session_timeout = 0")
        with psycopg.connect(parameters(address, replication="database"), autocommit=True) as session:
            made = _made(session, name)
            holder.execute(_BEGIN)
            holder.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(made[2])))
            shared = holder.execute("SELECT pg_export_snapshot()").fetchone()
        assert shared is not None
        yield lsn_of(made[1]), str(shared[0])


def _made(session: Connection, name: str) -> tuple[str, ...]:
    """The slot waits for open transactions. By a limit of the server's own: a session that is only left goes
    on waiting, and all the while the log is kept for it."""
    statement = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
    session.execute(f"SET lock_timeout = '{SLOT_S}s'".encode())
    try:
        with promptly(session.fileno(), within_s=SLOT_S + ANSWER_S):
            made = session.execute(statement.encode()).fetchone()
    except errors.LockNotAvailable:
        raise unit_faults.never_quiet(SLOT_S) from None
    assert made is not None
    return made
