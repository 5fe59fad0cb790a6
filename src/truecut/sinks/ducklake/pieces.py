"""A seed that many tasks stage: each writes Parquet files into the lake's data path and tells of them.

`PieceWriter` is the task's side. It holds a bounded share of the rows and writes it as a file of one row
group: DuckLake puts the statistics of several together as if all values were texts. `gather` is the side of
whoever commits: it compares keys where the files' ranges do not tell that they differ, and reads nothing else
of them. `sweep` removes files that runs of this seed have left and nobody knows.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from truecut import pulse
from truecut.errors import Fault, require
from truecut.failpoint import failpoint
from truecut.lake import identifier, literal
from truecut.model.change import OPTIONAL_NAMES
from truecut.model.cursor import Cursor
from truecut.model.order import Order, TableOrder
from truecut.object_store import is_remote
from truecut.sinks import parts as told
from truecut.sinks import stops as reasons
from truecut.sinks.arrivals import Arrivals
from truecut.sinks.contract import Packet
from truecut.sinks.copies import Stop
from truecut.sinks.ducklake.landing import of_files, rows_in, unknown_to
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.resolve import is_ranged, key_faults
from truecut.sinks.ducklake.schema import wanted_columns
from truecut.sinks.ducklake.stage import Files, Staged
from truecut.sinks.ducklake.write import ABOUT_ROWS, control_values
from truecut.sinks.parts import KeySpan, Landing, Part, StagedPlace, StagedTable

FILE_BYTES_MAX = 32 << 20  # rows held before they become a file
_ARRIVING = "arriving_piece"


@dataclass(slots=True)
class _Held:
    """Rows of one table that are in no file yet, and the files that were written."""

    rows: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    places: list[StagedPlace] = field(default_factory=list)
    arrivals: Arrivals = field(default_factory=Arrivals)
    stop: Stop | None = None


@dataclass(slots=True)
class PieceWriter:
    """Writes one piece of the reading for one sink."""

    connection: duckdb.DuckDBPyConnection
    pipeline: str
    order: Order
    landing: Landing
    piece: int
    held: dict[str, _Held] = field(default_factory=dict)
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def write(self, packets: Iterator[Packet]) -> Part:
        """All of it; the files are whole when it returns."""
        for packet in packets:
            require(packet.table in self.order.tables, "packets belong to tables of their order")
            if packet.rows is not None and packet.rows.num_rows:
                self._add(packet.table, packet.rows)
        for table in self.held:
            self._flush(table)
        failpoint("after_piece_staged")
        return Part(self.piece, {table: self._told(held) for table, held in self.held.items()})

    def discard(self) -> None:
        """It will not be told: what is on a disk of ours is taken away."""
        _remove(place.name for held in self.held.values() for place in held.places)

    def _add(self, table: str, rows: pa.Table) -> None:
        held = self.held.setdefault(table, _Held())
        held.arrivals.see(rows)
        held.rows.append(rows)
        held.bytes += rows.nbytes
        if sum(one.bytes for one in self.held.values()) > FILE_BYTES_MAX:
            self._flush(max(self.held, key=lambda name: self.held[name].bytes))

    def _flush(self, table: str) -> None:
        held, wanted = self.held[table], self.order.tables[table]
        rows, held.rows, held.bytes = held.rows, [], 0
        if not rows or held.stop is not None:
            return
        joined = pa.concat_tables(rows, promote_options="default")
        self.connection.register(_ARRIVING, joined)
        try:
            held.places.append(self._file(table, wanted, joined))
        except ABOUT_ROWS as error:  # the same rows would be refused again
            held.stop = reasons.not_taken(table, type(error).__name__).stop
        finally:
            self.connection.unregister(_ARRIVING)

    def _file(self, table: str, wanted: TableOrder, rows: pa.Table) -> StagedPlace:
        first = told.family_of(self.pipeline, self.order.sink, table)
        number = len(self.held[table].places)
        name = told.place_name(first, self.order, table, piece=self.piece, nonce=f"{self.nonce}-{number}")
        folder = self.landing.places[table]
        if not is_remote(folder):
            os.makedirs(folder, exist_ok=True)
        path = f"{folder}{name}.parquet"
        values = _values(wanted, set(OPTIONAL_NAMES) & set(rows.column_names))
        pulse.beat()
        self.connection.execute(
            f"COPY (SELECT {values} FROM {_ARRIVING}) TO {literal(path)} "
            f"(FORMAT parquet, ROW_GROUP_SIZE {max(2048, -(-rows.num_rows // 2048) * 2048)}, "
            f"KV_METADATA {{writer: {literal(f'{socket.gethostname()}/{os.getpid()}')}}})"
        )
        return StagedPlace(path, rows.num_rows, rows.nbytes, _span(self.connection, wanted, _ARRIVING))

    def _told(self, held: _Held) -> StagedTable:
        return StagedTable(tuple(held.places), bool(held.arrivals.absent), held.stop)


def _values(wanted: TableOrder, optional: Set[str]) -> str:
    """The columns of the file, each under its name and of the type that the table's has."""
    schema = wanted.schema
    assert schema is not None
    columns = wanted_columns(schema, wanted.mode)
    own = [identifier(column.name) for column in schema.columns]
    control = list[str]()
    if wanted.mode == "append":
        control = control_values(wanted.leaves.at.generation, optional)
    values = zip([*control, *own], columns, strict=True)
    return ", ".join(f"CAST({value} AS {kind}) AS {identifier(name)}" for value, (name, kind) in values)


def _span(connection: duckdb.DuckDBPyConnection, wanted: TableOrder, rows: str) -> KeySpan:
    """What the file shows of its keys. Of several columns the first tells the range."""
    keys = [identifier(name) for name in wanted.key]
    if not keys:
        return KeySpan(clean=True)
    assert wanted.schema is not None
    first = wanted.schema.column(wanted.key[0])
    bounds = f"min({keys[0]}), max({keys[0]})" if first is not None and is_ranged(first) else "NULL, NULL"
    null = " OR ".join(f"{key} IS NULL" for key in keys)
    whole = keys[0] if len(keys) == 1 else f"row({', '.join(keys)})"
    found = connection.execute(
        f"SELECT count(*) FILTER ({null}), count(*) - count(DISTINCT {whole}), {bounds} FROM {rows}"
    ).fetchone()
    assert found is not None
    return KeySpan(found[0] == 0 and found[1] == 0, found[2], found[3])


# --- whoever commits ------------------------------------------------------------------------------------


def gather(
    connection: duckdb.DuckDBPyConnection, order: Order, parts: Sequence[Part], stops: Mapping[str, Fault]
) -> Staged:
    """The files of all parts, by table, and the tables that must stop."""
    failpoint("before_pieces_gathered")
    held = {table: (fault.code, fault.message) for table, fault in stops.items()}
    held |= {table: stop for table, stop in told.stops_of(parts).items() if table not in held}
    files: dict[str, Files] = {}
    for table, wanted in order.tables.items():
        places = told.places_of(parts, table)
        if not places or table in held:
            continue
        files[table] = _files(connection, places)
        if files[table].found != files[table].rows:
            continue  # another run of the order may be done with them: its transaction finds out
        absent = any(part.tables[table].absent for part in parts if table in part.tables)
        stop = _examine(connection, table, wanted, places, absent=absent)
        if stop is not None:
            held[table] = stop
    return Staged(connection, {}, {}, held, files=files)


def _files(connection: duckdb.DuckDBPyConnection, places: Sequence[StagedPlace]) -> Files:
    paths, rows = tuple(place.name for place in places), sum(place.rows for place in places)
    try:
        found = rows_in(connection, paths)
    except duckdb.IOException:
        if is_remote(paths[0]):  # a store has many reasons, and each its own words
            raise
        found = rows_in(connection, [path for path in paths if os.path.exists(path)])
    return Files(paths, rows, found)


def _examine(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    wanted: TableOrder,
    places: Sequence[StagedPlace],
    *,
    absent: bool,
) -> Stop | None:
    rows = sum(place.rows for place in places)
    if absent and wanted.mode == "mirror":
        return reasons.values_absent(table, rows).stop
    if not wanted.key or told.keys_differ([place.span for place in places]):
        return None
    shares = told.passes(rows)
    keys = ", ".join(identifier(name) for name in wanted.key)
    source = of_files(place.name for place in places)
    nulls = repeated = 0
    for share in range(shares):
        pulse.beat()
        relation = f"(SELECT {keys} FROM {source} WHERE hash({keys}) % {shares} = {share})"
        found = key_faults(connection, relation, key=wanted.key)
        nulls, repeated = nulls + found[0], repeated + found[1]
    return reasons.seed_stop(table, nulls=nulls, repeated=repeated)


# --- what nobody needs ----------------------------------------------------------------------------------


def sweep(lake: Lake, pipeline: str, order: Order, landing: Mapping[str, str], cursor: Cursor) -> int:
    """Remove the files in these folders that earlier runs of these seeds have left: of older owners, or of
    seeds that the `cursor` says are over; never one that the catalog knows. On disks of ours alone. How
    many."""
    removed = 0
    for table, folder in landing.items():
        first = told.family_of(pipeline, order.sink, table)
        edition = cursor.copies[table].edition  # of a seed that stopped, the next one has the number again
        over = [
            f"{folder}{name}"
            for name in _names(folder)
            if told.is_over(name, first, token=order.token, edition=edition)
        ]
        removed += _remove(unknown_to(lake, over)) if over else 0
    return removed


def _names(folder: str) -> list[str]:
    if is_remote(folder):
        return []
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _remove(paths: Iterable[str]) -> int:
    count = 0
    for path in paths:
        if not is_remote(path):
            with suppress(OSError):
                os.unlink(path)
                count += 1
    return count


def folders_of(staged: Staged) -> dict[str, str]:
    """Where the files of what is staged lie, by table."""
    return {table: found.paths[0].rpartition("/")[0] + "/" for table, found in staged.files.items()}
