"""One unit, read on an executor: under a snapshot of its own, into a file, with the evidence for the splice.

The order is what makes it exact. The table is locked (ACCESS SHARE: nobody but a TRUNCATE or an ALTER waits)
before the snapshot is taken, so that nothing empties or rewrites the table under a snapshot that does not see
it. Snapshot and rows are of one transaction. The end of the log is asked for after the snapshot, so all that
it sees lies before that; and the log is on the server's disk up to there before the unit counts, so that no
crash of the server takes back what it sees (`synchronous_commit = off`), or gives its ids to others.
Promises: the values are those that `decode` gives for the same rows, bit by bit; memory is bounded by a
batch, whatever the unit's size; the file is on disk when the evidence is returned.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
from psycopg import errors, sql

from truecut.cells import batches
from truecut.core.visibility import Snapshot
from truecut.errors import TruecutError
from truecut.failpoint import failpoint
from truecut.model.table import TableName
from truecut.sources.postgres import decode, server, unit_faults
from truecut.sources.postgres.copied import text_of
from truecut.sources.postgres.messages import HEARTBEAT, lsn_of
from truecut.sources.postgres.relation import Relation, RelationColumn
from truecut.sources.postgres.server import (
    Address,
    Connection,
    answering,
    connect,
    fault_of,
    promptly,
    server_of,
    user_of,
)
from truecut.sources.postgres.types import value_type
from truecut.sources.postgres.unit_ledger import UnitRecord
from truecut.sources.postgres.units import Plan, condition, describe, identity_columns
from truecut.sources.postgres.values import Unfit

KEY = "_truecut_key_"  # and a number: the text of a column of the key
LOCK_S = 60

Fits = Callable[[Snapshot], bool]


def read_unit(
    address: Address,
    plan: Plan,
    index: int,
    path: Path,
    *,
    shared: str | None = None,
    fits: Fits = lambda snapshot: True,
    pause: Callable[[int], None] = lambda rows: None,
) -> UnitRecord:
    """Read one part of a plan into a file that is not there yet. `fits` says whether a snapshot will do;
    `shared` is the name of one that somebody holds; `pause` is called after some rows, with their number."""
    connection = connect(address)
    try:
        with answering(address, "read a unit"), permitted(address, plan.relation.name):
            there = server_of(connection, address)
            with _answered(connection):
                snapshot, end = _opened(connection, plan, shared)
            if not fits(snapshot):
                raise unit_faults.snapshot_too_early(plan.relation.name)
            with _answered(connection):
                relation = describe(connection, address, plan.relation.oid)
            if not same_columns(relation, plan.relation):
                raise unit_faults.table_changed(plan.relation.name)
            failpoint("unit_opened")
            rows, digest = _written(path, plan.relation, rows_of(connection, plan, index), pause)
            with _answered(connection):
                connection.execute("COMMIT")
                make_durable(connection)
    finally:
        connection.close()
    return UnitRecord(path.name, snapshot, end - 1, rows, digest, there)


def _answered(connection: Connection) -> AbstractContextManager[None]:
    """A question, whose answer is not waited for for ever: all units of a job would wait with it."""
    return promptly(connection.fileno(), within_s=LOCK_S + server.ANSWER_S)


@contextmanager
def permitted(address: Address, table: TableName) -> Iterator[None]:
    """What only the reading of a table can meet, in its words."""
    try:
        yield
    except errors.LockNotAvailable:
        raise unit_faults.locked(table) from None
    except errors.InsufficientPrivilege:
        raise unit_faults.not_permitted(table, user_of(address)) from None


def same_columns(one: Relation | None, other: Relation) -> bool:
    """Whether rows of both are alike: by number, name and type; and the key is the same."""
    return one is not None and _shape(one) == _shape(other)


def _shape(relation: Relation) -> object:
    columns = [(c.number, c.name, c.type_oid, c.typmod, c.dims, c.base_oid) for c in relation.columns]
    return relation.oid, relation.key, columns


def _opened(connection: Connection, plan: Plan, shared: str | None) -> tuple[Snapshot, int]:
    """The transaction's snapshot, and where the log ended after it was taken."""
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    if shared is not None:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(shared)))
    lock(connection, plan)
    return asked(connection)


def lock(connection: Connection, plan: Plan, *, within_s: int = LOCK_S) -> None:
    """Before the snapshot. Rows that a policy hides are an error, not missing rows."""
    connection.execute("SET LOCAL statement_timeout = 0")
    connection.execute("SET LOCAL row_security = off")
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{within_s}s")))
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(plan.table))


def asked(connection: Connection) -> tuple[Snapshot, int]:
    """The snapshot of the rows that are read next, and the end of the log behind it."""
    row = connection.execute(
        "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
    ).fetchone()
    assert row is not None
    return Snapshot.parse(row[0]), lsn_of(row[1])


def make_durable(connection: Connection) -> None:
    """Whatever is in the server's log is on its disk: a commit of ours behind it is."""
    connection.execute("BEGIN")
    connection.execute("SET LOCAL synchronous_commit = local")
    connection.execute("SELECT pg_logical_emit_message(true, %s, '')", (HEARTBEAT,))
    connection.execute("COMMIT")


@contextmanager
def shared_snapshot(address: Address, plan: Plan) -> Iterator[str]:
    """One snapshot for several readers, as long as it is held: pages mean something within one only."""
    connection = connect(address)
    try:
        with answering(address, "share a snapshot"):
            _opened(connection, plan, None)
            row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        yield str(row[0])
    finally:
        connection.close()


def is_held(address: Address, shared: str) -> bool:
    """Whether somebody still holds a snapshot that was shared."""
    connection = connect(address)
    try:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(shared)))
    except (errors.InvalidParameterValue, errors.UndefinedObject):
        return False
    except psycopg.Error as error:
        raise fault_of(address, "look for a snapshot", error) from None
    finally:
        connection.close()
    return True


def rows_of(connection: Connection, plan: Plan, index: int) -> Iterator[pa.RecordBatch]:
    """Those of one part, under the snapshot of the session's transaction: the columns of `file_schema`."""
    columns = plan.relation.columns
    query = sql.SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(map(text_of, columns)), plan.table, condition(plan, plan.parts[index])
    )
    schema = file_schema(plan.relation)
    keys = [columns.index(column) for column in identity_columns(plan.relation)]
    for texts in _copied(connection, query, columns=len(columns)):
        pairs = zip(texts, columns, strict=True)
        values = [_typed(plan.relation, column, text) for text, column in pairs]
        values += [texts[n].cast(pa.string()) for n in keys]
        yield pa.RecordBatch.from_arrays(values, schema=schema)


def _copied(connection: Connection, query: sql.Composed, *, columns: int) -> Iterator[list[pa.Array]]:
    """What the server copies out, in batches. One may take its time where rows are few and far between."""
    with ExitStack() as stack:
        cursor = stack.enter_context(connection.cursor())
        with promptly(connection.fileno(), within_s=server.WORK_S):
            copy = stack.enter_context(cursor.copy(query))
        come = batches(copy, columns=columns)
        while True:
            with promptly(connection.fileno(), within_s=server.WORK_S):
                texts = next(come, None)
            if texts is None:
                return
            yield texts


def _typed(relation: Relation, column: RelationColumn, texts: pa.Array) -> pa.Array:
    try:
        return value_type(column).read(texts)
    except Unfit as unfit:
        raise TruecutError.of(decode.unfit(relation.name, column.name, unfit.reason)) from None


def file_schema(relation: Relation) -> pa.Schema:
    """The table's columns, then the texts of its key."""
    fields = [pa.field(column.name, value_type(column).arrow) for column in relation.columns]
    keys = [pa.field(f"{KEY}{n}", pa.string()) for n in range(len(identity_columns(relation)))]
    return pa.schema([*fields, *keys])


def _written(
    path: Path, relation: Relation, rows: Iterator[pa.RecordBatch], pause: Callable[[int], None]
) -> tuple[int, str]:
    """How many rows, and the digest of the file, which is on disk."""
    count = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with path.open("wb") as file:
        with pa.ipc.new_stream(file, file_schema(relation), options=options) as writer:
            for batch in rows:
                writer.write_batch(batch)
                count += batch.num_rows
                pause(batch.num_rows)
        file.flush()
        os.fsync(file.fileno())
    failpoint("unit_written")
    return count, digest_of(path)


def digest_of(path: Path) -> str:
    """Of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
