"""The reading side of a wave: from a piece of the window to parcels for the sinks that want its rows.

Promises: what goes wrong travels as parcels, too; a piece gives the same parcels every time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Order
from truecut.sources.contract import ReadTask
from truecut.spark import packet
from truecut.spark.packet import Parcel
from truecut.spark.route import TableRoute, route

PACKET_BYTES_MAX = 16 << 20


class TooMuch(Exception):
    """More rows than one task may hold."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read, and for whom. Tables are indexes into `tables`, sinks into `orders`."""

    tasks: tuple[ReadTask, ...]
    tables: tuple[str, ...]
    routes: tuple[TableRoute, ...]
    orders: tuple[Order, ...]
    commit_all: bool = False  # also sinks without rows (seeds, idle cursors)

    @property
    def pieces(self) -> int:
        """How many parts it has, none of which needs another; the last one may be the markers."""
        return len(self.tasks) + (1 if self.commit_all else 0)

    def read(self, piece: int, *, weigh: Callable[[int], None] = lambda _: None) -> Iterator[Parcel]:
        """The parcels of one piece. `weigh` is told the bytes of the rows, as they come."""
        if piece == len(self.tasks):
            yield from (Parcel(sink, -1, packet.MARKER, 0) for sink in range(len(self.orders)))
            return
        task = self.tasks[piece]
        table = self.tables.index(str(task.table))
        try:
            for part, rows in enumerate(_chunks(task.read())):
                weigh(rows.nbytes)
                yield from self._route(table, (piece << 32) + part, rows)
        except TruecutError as error:
            retryable = error.fault.retry is Retry.RETRYABLE
            yield from self._to_all(table, packet.ABORT if retryable else packet.FAULT, error.fault)

    def read_all(self, *, bytes_max: int) -> list[Parcel]:
        """Everything at once, by as many threads as there are cores, in the order in which it is applied."""
        lock, held = threading.Lock(), 0

        def weigh(size: int) -> None:
            nonlocal held
            with lock:
                held += size
                if held > bytes_max:
                    raise TooMuch

        def read(piece: int) -> list[Parcel]:
            return list(self.read(piece, weigh=weigh))

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            parcels = [one for piece in threads.map(read, range(self.pieces)) for one in piece]
        return sorted(parcels, key=lambda one: one.place)

    def _route(self, table: int, part: int, rows: pa.Table) -> Iterator[Parcel]:
        how = self.routes[table]
        routed = route(rows, how)
        if routed.unrouted and how.stop_unrouted:
            yield from self._to_all(table, packet.FAULT, _unrouted_fault(self.tables[table]))
            return
        if routed.unrouted:
            yield Parcel(-1, table, packet.NOTE, part, routed.unrouted)
        yield from (Parcel(sink, table, packet.ROWS, part, share) for sink, share in routed.shares)

    def _to_all(self, table: int, kind: int, fault: Fault) -> Iterator[Parcel]:
        # A window that could not be read is nobody's: it aborts the sinks that lack other tables, too.
        aborts = kind == packet.ABORT
        sinks: Iterable[int] = range(len(self.orders)) if aborts else self.routes[table].sinks
        yield from (Parcel(sink, -1 if aborts else table, kind, 0, fault) for sink in sinks)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches gathered into packets of a good size."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= PACKET_BYTES_MAX:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _unrouted_fault(table: str) -> Fault:
    return Fault(
        "TC3003",
        f"{table} has rows that match no sink, and the pipeline says `unrouted: stop`",
        "Add a sink for them, or say `unrouted: count`; then run `truecut resume FILE --table`.",
    )
