"""A server read once more, now, at a place of its log that is known exactly.

A temporary slot tells the place (its consistent point) and exports the snapshot of exactly what committed
before it. Tables are locked first (ACCESS SHARE: only a TRUNCATE or an ALTER waits): a snapshot that is older
than a TRUNCATE would find the table empty. Rows come by plain COPY, not by the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

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
from truecut.sources.postgres.server import Address, Connection, answering, connect, parameters
from truecut.sources.postgres.source import CapturedSource
from truecut.sources.postgres.types import row_type
from truecut.sources.postgres.unit_read import lock, rows_of, same_columns
from truecut.sources.postgres.units import Plan, describe, plan

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


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
    plans: Mapping[TableName, Plan]
    identity: str
    frontier: Position
    copied: frozenset[TableName]  # of the others only changes are wanted

    def plan(self, table: TableRead, *, at: Position, parallelism: int) -> Window:
        """In the units that a backfill would read."""
        found = self.plans.get(table.name)
        if at != self.frontier:
            raise TruecutError(
                "TC7052",
                f"{table.name} stands at {at}, and the server can be read at {self.frontier} only",
                fix="Stop the run that moves it, and verify again.",
            )
        if found is None:
            raise TruecutError.of(shape.missing(table.name))
        if table.name not in self.copied:
            raise TruecutError(
                "TC7053",
                f"{table.name} began empty (`backfill: none`), so it is not what the source holds",
                fix="None needed: only its certificate can be checked.",
            )
        fault = shape.fault_in(table, found.relation, frozenset())
        tasks = [PresentRows(self.moment, found, number) for number in range(len(found.parts))]
        schemas = {table.name: shape.delivered(found.relation)}
        faults = {} if fault is None else {table.name: fault}
        return Window(at, 0, tasks, schemas, len(found.parts) * 500_000, faults, identity=self.identity)


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
        connection.execute(_BEGIN)
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.moment.snapshot)))
        lock(connection, self.of)
        oid = self.of.relation.oid
        if not same_columns(describe(connection, self.moment.address, oid), self.of.relation):
            raise unit_faults.table_changed(self.of.relation.name)


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
    with closing(connect(address)) as holder, answering(address, "be read once more"):
        plans = _locked(holder, address)
        with _exported(address) as (lsn, snapshot):
            moment = Moment(address, snapshot, lsn - 1)
            frontier = Position(generation, lsn - 1)
            yield ServerReread(moment, plans, seen.identity, frontier, copied)


def _locked(holder: Connection, address: Address) -> dict[TableName, Plan]:
    """Every published table, cut into parts, and nobody rewrites it from now on."""
    relations: dict[TableName, Relation] = relations_of(holder, address)
    holder.execute("SET idle_in_transaction_session_timeout = 0")
    holder.execute("BEGIN")
    plans = {name: plan(holder, address, relation) for name, relation in relations.items()}
    for one in plans.values():
        lock(holder, one)
    return plans


@contextmanager
def _exported(address: Address) -> Iterator[tuple[int, str]]:
    """What the slot exports is gone with its session's next step: a session of ours takes it over, and the
    slot goes."""
    name = f"truecut_reread_{secrets.token_hex(6)}"
    with closing(connect(address)) as holder:
        holder.execute("SET idle_in_transaction_session_timeout = 0")
        with psycopg.connect(parameters(address, replication="database"), autocommit=True) as session:
            made = session.execute(
                f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')".encode()
            ).fetchone()
            assert made is not None
            holder.execute(_BEGIN)
            holder.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(made[2])))
            shared = holder.execute("SELECT pg_export_snapshot()").fetchone()
        assert shared is not None
        yield lsn_of(made[1]), str(shared[0])
