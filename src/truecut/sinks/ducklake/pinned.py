"""A lake as it was at one snapshot, cursor and content together: what verification reads.

Read by plain DuckDB, with an attachment of its own for each piece: nothing that writes is shared, and
nothing is remembered from a commit. Promises: nothing is written; a catalog that is a file is let go between
pieces; what maintenance has taken away, or a restored catalog no longer has, is an error, never fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from truecut import pulse
from truecut.config.settings import SinkSettings
from truecut.errors import Retry, TruecutError
from truecut.lake import (
    LakeAddress,
    attach,
    connect,
    fault_of,
    identifier,
    lake_of,
    literal,
    read_versions_exactly,
)
from truecut.model.change import OP, POSITION, SEQ, UNCHANGED
from truecut.model.cursor import Cursor
from truecut.model.table import Column, Mode, TableName
from truecut.patience import patiently
from truecut.sinks.contract import PinnedRead
from truecut.sinks.copies import NO_TABLE, apart
from truecut.sinks.ducklake.cursor import find_cursor
from truecut.sinks.ducklake.schema import APPEND_COLUMNS

BATCH_ROWS = 65_536
_ALIAS = "pinned"
_METADATA = f"__ducklake_metadata_{_ALIAS}"
_APPENDED = (POSITION, SEQ, OP, UNCHANGED)


@dataclass(frozen=True, slots=True)
class Moment:
    """One snapshot of one lake: a number, and the time that tells it from its namesake in a restored one."""

    sink: str
    address: LakeAddress
    snapshot: int
    taken_at: str


@dataclass(frozen=True, slots=True)
class PinnedLake:
    """What `pin` gives. A snapshot needs nobody to hold it."""

    moment: Moment
    cursor: Cursor | None

    @property
    def version(self) -> str:
        """The snapshot's number."""
        return str(self.moment.snapshot)

    def altered(self, table: str, columns: Sequence[Column], *, mode: Mode) -> str | None:
        """By the types that DuckDB tells of the snapshot."""
        name, moment = TableName.parse(table), self.moment
        place = f"{_ALIAS}.{identifier(name.schema)}.{identifier(name.table)}"
        own = [(column.name, column.type) for column in columns]
        wanted = [*(APPEND_COLUMNS if mode == "append" else ()), *own]
        types = ", ".join(f"typeof(CAST(NULL AS {kind}))" for _, kind in wanted)
        with _attached(moment.sink, moment.address) as connection:
            spelled = connection.execute(f"SELECT {types}").fetchone()
            assert spelled is not None
            try:
                asked = f"DESCRIBE SELECT * FROM {place} AT (VERSION => {moment.snapshot})"
                there: dict[str, str] | None = {
                    row[0]: row[1] for row in connection.execute(asked).fetchall()
                }
            except duckdb.CatalogException:
                there = None
            if there is not None and not _is_table(connection, name, moment.snapshot):
                return NO_TABLE
        return apart(zip((name for name, _ in wanted), spelled, strict=True), there)

    def content(
        self, table: str, columns: Sequence[Column], *, key: Sequence[str], mode: Mode, pieces: int
    ) -> Sequence[PinnedRead]:
        """By a hash of the key: any key has one, and no two pieces share a row."""
        names = (*(_APPENDED if mode == "append" else ()), *(column.name for column in columns))
        by = (POSITION, SEQ) if mode == "append" else tuple(key)
        return [PieceOfLake(self.moment, TableName.parse(table), names, by, n, pieces) for n in range(pieces)]


@dataclass(frozen=True, slots=True)
class PieceOfLake:
    """The rows of a table whose keys have one remainder."""

    moment: Moment
    table: TableName
    names: tuple[str, ...]
    key: tuple[str, ...]
    number: int
    pieces: int

    def read(self) -> Iterator[pa.RecordBatch]:
        """As plain DuckDB gives them."""
        with _attached(self.moment.sink, self.moment.address) as connection:
            self._require_same_lake(connection)
            for batch in connection.sql(self._sql()).to_arrow_reader(BATCH_ROWS):
                pulse.beat()
                yield batch

    def _sql(self) -> str:
        names = ", ".join(map(identifier, self.names))
        table = f"{_ALIAS}.{identifier(self.table.schema)}.{identifier(self.table.table)}"
        keys = ", ".join(map(identifier, self.key))
        share = f" WHERE hash({keys}) % {self.pieces} = {self.number}" if self.pieces > 1 else ""
        return f"SELECT {names} FROM {table} AT (VERSION => {self.moment.snapshot}){share}"

    def _require_same_lake(self, connection: duckdb.DuckDBPyConnection) -> None:
        if _time_of(connection, self.moment.snapshot) != self.moment.taken_at:
            raise TruecutError(
                "TC4017",
                f"sink {self.moment.sink}: snapshot {self.moment.snapshot} is gone; it expired, or the "
                "catalog was restored",
                fix="Verify again.",
                retry=Retry.RETRYABLE,
            )


@contextmanager
def pin(sink: SinkSettings, *, pipeline: str) -> Iterator[PinnedLake]:
    """The lake's newest snapshot."""
    yield patiently(lambda: _pinned(sink, pipeline))


def _pinned(sink: SinkSettings, pipeline: str) -> PinnedLake:
    address = lake_of(sink.address)
    with _attached(sink.name, address) as connection:
        connection.execute("BEGIN")  # all of it from one snapshot
        found = connection.execute(f"FROM ducklake_current_snapshot({literal(_ALIAS)})").fetchone()
        assert found is not None
        snapshot = int(found[0])
        moment = Moment(sink.name, address, snapshot, _time_of(connection, snapshot))
        cursor = find_cursor(connection, _ALIAS, pipeline)
        connection.execute("ROLLBACK")
    return PinnedLake(moment, cursor)


def _is_table(connection: duckdb.DuckDBPyConnection, name: TableName, snapshot: int) -> bool:
    found = connection.execute(
        f"SELECT 1 FROM {_METADATA}.ducklake_table t JOIN {_METADATA}.ducklake_schema s USING (schema_id) "
        f"WHERE lower(schema_name) = lower({literal(name.schema)}) "
        f"AND lower(table_name) = lower({literal(name.table)}) "
        f"AND t.begin_snapshot <= {snapshot} AND coalesce({snapshot} < t.end_snapshot, true)"
    )
    return found.fetchone() is not None


def _time_of(connection: duckdb.DuckDBPyConnection, snapshot: int) -> str:
    found = connection.execute(
        f"SELECT snapshot_time::VARCHAR FROM {_METADATA}.ducklake_snapshot WHERE snapshot_id = {snapshot}"
    ).fetchone()
    return "" if found is None else str(found[0])


@contextmanager
def _attached(sink: str, address: LakeAddress) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        with closing(connect()) as connection:
            pulse.watch(connection)
            read_versions_exactly(connection)
            attach(connection, address, _ALIAS, read_only=True, trust_data_path=True)
            yield connection
    except (duckdb.Error, OSError) as error:
        raise TruecutError.of(fault_of(error, what=f"sink {sink}")) from None
