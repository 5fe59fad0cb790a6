"""An order's packets, on this side of the lake: in memory while they are few, on local disk when not.

Everything is staged, resolved and checked for itself before the lake's transaction begins. So the
transaction is short whatever the source does, and it can be redone from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from truecut.errors import require
from truecut.model.change import TRANSACTION, UNCHANGED
from truecut.model.order import Order, Rejected, TableOrder
from truecut.sinks import stops as reasons
from truecut.sinks.arrivals import Arrivals
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake.resolve import Changes, Net, is_plain, key_faults, resolve

_OPTIONAL_TYPES = {TRANSACTION: "VARCHAR", UNCHANGED: "VARCHAR[]"}
MEMORY_BYTES_MAX = 64 << 20  # of one table's rows; more go to a temporary table, which spills


@dataclass(frozen=True, slots=True)
class Files:
    """Rows of one table that others have written into the lake's data path."""

    paths: tuple[str, ...]
    rows: int  # that were told
    found: int  # that are there


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of an order, as relations of one connection or as files, by table; and the tables that must
    stop."""

    connection: duckdb.DuckDBPyConnection
    relations: Mapping[str, str]
    nets: Mapping[str, Net]  # for the changes of a mirror
    stops: Mapping[str, tuple[str, str]]  # code and message
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)
    bytes: int = 0
    files: Mapping[str, Files] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()  # none: what does not fit stops its table

    def close(self) -> None:
        """Let the rows go."""
        self.connection.close()


def stage(connection: duckdb.DuckDBPyConnection, order: Order, packets: Iterator[Packet]) -> Staged:
    """Take in all packets. What follows a fault of the same table is dropped."""
    stops: dict[str, tuple[str, str]] = {}
    buffers: dict[str, _Buffer] = {}
    for packet in packets:
        require(packet.table in order.tables, "packets belong to tables of their order")
        if packet.fault is not None:
            stops[packet.table] = (packet.fault.code, packet.fault.message)
        elif packet.rows is not None and packet.rows.num_rows and packet.table not in stops:
            if packet.table not in buffers:
                compared = _compared(order.tables[packet.table])
                buffers[packet.table] = _Buffer(connection, f"staged_{len(buffers)}", compared)
            buffers[packet.table].add(packet.rows)
    kept = {table: buffer for table, buffer in buffers.items() if table not in stops}
    relations = {table: buffer.relation() for table, buffer in kept.items()}
    nets = {}
    for table, buffer in kept.items():
        net, stop = _examine(connection, table, order.tables[table], buffer)
        if net is not None:
            nets[table] = net
        if stop is not None:
            stops[table] = stop
    arrivals = {table: buffer.arrivals for table, buffer in kept.items()}
    size = sum(buffer.taken for buffer in buffers.values())
    return Staged(connection, relations, nets, stops, arrivals, size)


def _examine(
    connection: duckdb.DuckDBPyConnection, table: str, wanted: TableOrder, buffer: _Buffer
) -> tuple[Net | None, tuple[str, str] | None]:
    if wanted.kind == "replace":  # a key that is there twice tells no change of its rows
        if buffer.arrivals.absent and wanted.mode == "mirror":
            return None, reasons.values_absent(table, buffer.rows).stop
        nulls, repeated = key_faults(connection, buffer.name, key=wanted.key)
        return None, reasons.seed_stop(table, nulls=nulls, repeated=repeated)
    if wanted.mode == "append":  # keeps every change as it comes
        return None, None
    assert wanted.schema is not None
    changes = Changes(connection, table, buffer.name, wanted.key, wanted.schema, buffer.arrivals)
    return resolve(changes, in_memory=buffer.in_memory)


def _compared(wanted: TableOrder) -> bool:
    """Whether rows are looked for among the staged ones by values that Python does not have.

    DuckDB may look for keys in an Arrow table by Python's own values: without infinity, years before Christ,
    nanoseconds or 24:00. It then misses rows, or fails. In a table of its own it compares by itself.
    """
    if wanted.mode == "append" or wanted.kind == "replace" or wanted.schema is None:
        return False
    return any(column.name in wanted.key and not is_plain(column) for column in wanted.schema.columns)


@dataclass(slots=True)
class _Buffer:
    connection: duckdb.DuckDBPyConnection
    name: str
    compared: bool = False  # its rows must stand in a table of DuckDB's own
    held: list[pa.Table] = field(default_factory=list)
    bytes: int = 0  # of those
    taken: int = 0  # bytes of all that came
    rows: int = 0
    spilled: bool = False
    in_memory: pa.Table | None = None  # all rows, if they were few
    arrivals: Arrivals = field(default_factory=Arrivals)

    def add(self, rows: pa.Table) -> None:
        self.arrivals.see(rows)
        self.held.append(rows)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes
        self.taken += rows.nbytes
        if self.bytes > MEMORY_BYTES_MAX:
            self._spill()

    def relation(self) -> str:
        """The name to select from, once everything has come."""
        if self.spilled or self.compared:
            self._spill()
        else:
            self.in_memory = _joined(self.held)
            self.connection.register(self.name, self.in_memory)
        return self.name

    def _spill(self) -> None:
        if not self.held:
            return
        arriving = _joined(self.held)
        self.connection.register("arriving", arriving)
        for name in _OPTIONAL_TYPES.keys() & set(arriving.column_names) if self.spilled else ():
            column = f"{name} {_OPTIONAL_TYPES[name]}"
            self.connection.execute(f"ALTER TABLE temp.{self.name} ADD COLUMN IF NOT EXISTS {column}")
        into = (
            f"INSERT INTO temp.{self.name} BY NAME" if self.spilled else f"CREATE TEMP TABLE {self.name} AS"
        )
        self.connection.execute(f"{into} SELECT * FROM arriving")
        self.connection.unregister("arriving")
        self.held, self.bytes, self.spilled = [], 0, True


def _joined(held: list[pa.Table]) -> pa.Table:
    """Packets may differ in their optional columns."""
    return pa.concat_tables(held, promote_options="default")
