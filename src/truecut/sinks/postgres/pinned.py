"""A database at one moment, cursor and content together: what verification reads.

One session holds a snapshot (REPEATABLE READ) and exports it; pieces are read under it, by sessions of their
own, in PostgreSQL's binary form. Nothing that writes is shared. Promises: nothing is written; the values are
those that the sink holds, in the neutral types that they came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import errors

from truecut.cells import batches
from truecut.config.settings import SinkSettings
from truecut.errors import Retry, TruecutError
from truecut.model.change import OP, POSITION, SEQ, UNCHANGED
from truecut.model.cursor import Cursor
from truecut.model.table import Column, Mode
from truecut.sinks.contract import PinnedRead
from truecut.sinks.copies import NO_TABLE, TableStop, apart
from truecut.sinks.postgres.address import PostgresAddress, postgres_of
from truecut.sinks.postgres.cursor import read_cursor
from truecut.sinks.postgres.decode import AnotherShape, Reader, reader
from truecut.sinks.postgres.schema import APPEND_COLUMNS, Place, existing_columns
from truecut.sinks.postgres.server import Connection, connect, fault_of, identifier, literal, row, run
from truecut.sinks.postgres.types import target

_APPENDED = (
    Column(0, POSITION, "VARCHAR"),
    Column(0, SEQ, "VARCHAR"),
    Column(0, OP, "VARCHAR"),
    Column(0, UNCHANGED, "VARCHAR[]"),
)
_NO_TABLE = """
SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind NOT IN ('r', 'p')
"""
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(frozen=True, slots=True)
class PinnedDatabase:
    """What `pin` gives, as long as its session holds the snapshot."""

    sink: str
    address: PostgresAddress
    snapshot: str
    version: str
    cursor: Cursor | None

    def altered(self, table: str, columns: Sequence[Column], *, mode: Mode) -> str | None:
        """By the server's catalog, under the snapshot."""
        place = Place(table, self.address.table(table))
        try:
            own = [(one.name, one.type) for one in (target(table, column) for column in columns)]
        except TableStop as stop:
            raise TruecutError(stop.code, stop.message, fix="Copy the table again.") from None
        with _session(self.sink, self.address) as connection:
            enter(connection, self)
            there = existing_columns(connection, place)
            if run(connection, _NO_TABLE, place.words).fetchone() is not None:
                return NO_TABLE
        wanted = [*(APPEND_COLUMNS if mode == "append" else ()), *own]
        return apart(wanted, None if there is None else dict(there))

    def content(
        self, table: str, columns: Sequence[Column], *, key: Sequence[str], mode: Mode, pieces: int
    ) -> Sequence[PinnedRead]:
        """By a hash of the key's text: any key has one, and no two pieces share a row."""
        asked = (*(_APPENDED if mode == "append" else ()), *columns)
        by = (POSITION, SEQ) if mode == "append" else tuple(key)
        return [PieceOfDatabase(self, table, asked, by, number, pieces) for number in range(pieces)]


@dataclass(frozen=True, slots=True)
class PieceOfDatabase:
    """The rows of a table whose keys have one remainder."""

    pinned: PinnedDatabase
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    number: int
    pieces: int

    def read(self) -> Iterator[pa.RecordBatch]:
        """As the server sends them."""
        readers = self._readers()
        names = [column.name for column in self.columns]
        with _session(self.pinned.sink, self.pinned.address) as connection:
            enter(connection, self.pinned)
            self._require_untouched(connection)
            with connection.cursor() as cursor, cursor.copy(self._sql(readers).encode()) as copy:
                for cells in batches(copy, columns=len(readers)):
                    pairs = zip(cells, readers, strict=True)
                    yield pa.RecordBatch.from_arrays(self._typed(pairs), names=names)

    def _require_untouched(self, connection: Connection) -> None:
        """A table that a run has made anew or rewritten since looks empty under the snapshot. The catalog
        tells as of the snapshot, functions as of now, and nobody rewrites it while it is locked."""
        place = Place(self.table, self.pinned.address.table(self.table))
        run(connection, f"LOCK TABLE {place.sql} IN ACCESS SHARE MODE")
        (untouched,) = row(
            connection,
            "SELECT coalesce(bool_and(relfilenode = pg_relation_filenode(oid)), false) FROM pg_class "
            f"WHERE oid = to_regclass({literal(place.sql)})",
        )
        if not untouched:
            raise TruecutError(
                "TC4047",
                f"sink {self.pinned.sink}: {self.table} was made anew or rewritten while it was to be read",
                fix="Verify again.",
                retry=Retry.RETRYABLE,
            )

    def _typed(self, pairs: Iterable[tuple[pa.Array, Reader]]) -> list[pa.Array]:
        try:
            return [one.read(raw) for raw, one in pairs]
        except AnotherShape:
            raise TruecutError(
                "TC4044",
                f"sink {self.pinned.sink}: an array of {self.table} has other dimensions, or another lower "
                "bound, than a run writes: somebody else wrote it",
                fix="Copy the table again.",
            ) from None

    def _readers(self) -> list[Reader]:
        try:
            return [reader(column, target(self.table, column)) for column in self.columns]
        except TableStop as stop:
            raise TruecutError(stop.code, stop.message, fix="Copy the table again.") from None

    def _sql(self, readers: Sequence[Reader]) -> str:
        place = Place(self.table, self.pinned.address.table(self.table))
        asked = ", ".join(
            one.sql(identifier(column.name)) for one, column in zip(readers, self.columns, strict=True)
        )
        return f"COPY (SELECT {asked} FROM {place.sql}{self._share()}) TO STDOUT (FORMAT binary)"

    def _share(self) -> str:
        if self.pieces == 1:
            return ""
        texts = ", ".join(f"{identifier(name)}::text" for name in self.key)
        return f" WHERE abs(hashtext(row({texts})::text)::bigint) % {self.pieces} = {self.number}"


def enter(connection: Connection, pinned: PinnedDatabase) -> None:
    """The snapshot, for as long as the session reads."""
    run(connection, _BEGIN)
    try:
        run(connection, f"SET TRANSACTION SNAPSHOT {literal(pinned.snapshot)}")
    except (errors.InvalidParameterValue, errors.UndefinedObject):
        raise TruecutError(
            "TC4042",
            f"sink {pinned.sink}: the session that held its snapshot has ended",
            fix="Verify again.",
            retry=Retry.RETRYABLE,
        ) from None


@contextmanager
def pin(sink: SinkSettings, *, pipeline: str) -> Iterator[PinnedDatabase]:
    """The database as it is now."""
    address = postgres_of(sink.address)
    with _session(sink.name, address) as connection:
        # The session waits while pieces are read, however long that takes.
        run(connection, "SET idle_in_transaction_session_timeout = 0")
        run(connection, _BEGIN)
        snapshot, version = row(connection, "SELECT pg_export_snapshot(), pg_current_snapshot()::text")
        cursor = read_cursor(connection, pipeline, sink.name)
        yield PinnedDatabase(sink.name, address, snapshot, version, cursor)


@contextmanager
def _session(sink: str, address: PostgresAddress) -> Iterator[Connection]:
    try:
        with closing(connect(address)) as connection:
            run(connection, "SET row_security = off")  # rows that a policy hides are an error, never missing
            yield connection
    except psycopg.Error as error:
        raise TruecutError.of(fault_of(error, address, what=f"sink {sink}")) from None
