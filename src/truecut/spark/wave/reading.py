"""The reading side of a wave: from a piece of the window to parcels for the sinks that want its rows.

Promises: what goes wrong travels as parcels, too; a piece gives the same parcels every time.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import pyarrow as pa

from truecut.certificate.segment import Wanted
from truecut.certificate.unit_evidence import Basis, UnitEvidence
from truecut.config.kinds import SourceWords
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Order
from truecut.model.table import TableName
from truecut.sources.contract import OfUnits, ReadTask, Rows, Stopped
from truecut.spark.wave import packet
from truecut.spark.wave.packet import Parcel
from truecut.spark.wave.route import TableRoute, as_text, route
from truecut.threads import Late, refusal, within

PACKET_BYTES_MAX = 16 << 20
DEADLINE_MS = 600_000  # without any progress


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
    evidence: Wanted | None = None  # of certificates
    words: SourceWords = field(default_factory=SourceWords)

    @property
    def pieces(self) -> int:
        """How many parts it has, none of which needs another; the last one may be the markers."""
        return len(self.tasks) + (1 if self.commit_all else 0)

    def read(
        self, piece: int, *, deadline_ms: int = DEADLINE_MS, weigh: Callable[[int], None] = lambda _: None
    ) -> Iterator[Parcel]:
        """The parcels of one piece, and at the end how many rows it had for whom. `weigh` is told the bytes
        of the rows, as they come.

        A source that gives nothing, and of which DuckDB tells no progress, for a deadline: the window could
        not be read, as with any other trouble that may pass.
        """
        if piece == len(self.tasks):
            yield from (Parcel(sink, -1, packet.MARKER, 0) for sink in range(len(self.orders)))
            yield Parcel(-1, -1, packet.COUNTS, piece, {})
            return
        routed: Counter[tuple[int, int]] = Counter()
        witness = self._witness(piece)
        aborted = False
        for parcel in self._parcels(piece, deadline_ms, weigh, witness):
            if isinstance(parcel.content, pa.Table):
                routed[parcel.sink, parcel.table] += parcel.content.num_rows
            aborted |= parcel.kind in (packet.ABORT, packet.FAULT)
            yield parcel
        if witness is not None and not aborted:
            yield Parcel(-1, -1, packet.UNITS, piece, witness.finish())
        yield Parcel(-1, -1, packet.COUNTS, piece, dict(routed))

    def _witness(self, piece: int) -> UnitEvidence | None:
        """Who keeps evidence of the units that this piece reads, for the copies that they are the base of."""
        if self.evidence is None or not isinstance(self.tasks[piece], OfUnits):
            return None
        bases: dict[str, Basis] = {}
        for number in self._tables_of(piece):
            name = self.tables[number]
            found = [one for order in self.orders if (one := Basis.of(order, name)) is not None]
            bases |= {name: max(found, key=lambda one: one.mirrored)} if found else {}
        if len(bases) < len(self.tasks[piece].tables):
            return None
        columns = {name: self.routes[self.tables.index(name)].column for name in bases}
        routes = {name: partial(as_text, column=one) for name, one in columns.items() if one is not None}
        return UnitEvidence(self.evidence, bases, routes)

    def route_of(self, sink: int, table: str) -> str | None:
        """The text that rows of this copy have in their route column; "": it has all rows; None: several."""
        how = self.routes[self.tables.index(table)]
        if how.column is None or sink in how.everywhere:
            return ""
        texts = [text for text, sinks in how.by_value.items() if sink in sinks]
        return texts[0] if len(texts) == 1 and texts[0] else None

    def _parcels(
        self, piece: int, deadline_ms: int, weigh: Callable[[int], None], witness: UnitEvidence | None
    ) -> Iterator[Parcel]:
        tables = [self.tables[table] for table in self._tables_of(piece)]
        who = f"reading {', '.join(tables)}"
        fault = refusal(who)
        if fault is None:
            try:
                yield from within(
                    who, lambda: self._read(piece, weigh, witness), deadline_s=deadline_ms / 1000
                )
            except Late:
                fault = _late(tables, deadline_ms, self.words)
        if fault is not None:
            yield from self._aborted(piece, fault)

    def _tables_of(self, piece: int) -> tuple[int, ...]:
        return tuple(self.tables.index(str(table)) for table in self.tasks[piece].tables)

    def _read(
        self, piece: int, weigh: Callable[[int], None], witness: UnitEvidence | None
    ) -> Iterator[Parcel]:
        numbers = {name: number for number, name in enumerate(self.tables)}
        task = self.tasks[piece]
        try:
            found = task.read() if witness is None else cast("OfUnits", task).read_witnessed(witness)
            for part, (table, rows) in enumerate(_chunks(found)):
                weigh(rows.nbytes)
                yield from self._route(numbers[str(table)], (piece << 32) + part, rows)
        except Stopped as stopped:
            for table, fault in stopped.faults.items():
                yield from self._stopped(numbers[str(table)], fault)
        except TruecutError as error:
            fault = error.fault
            if fault.retry in (Retry.RETRYABLE, Retry.GAP):
                yield from self._aborted(piece, fault)
                return
            for number in self._tables_of(piece):
                yield from self._stopped(number, fault)

    def read_all(self, *, bytes_max: int, deadline_ms: int = DEADLINE_MS) -> list[Parcel]:
        """Everything at once, by as many threads as there are cores, in the order in which it is applied."""
        lock, held = threading.Lock(), 0

        def weigh(size: int) -> None:
            nonlocal held
            with lock:
                held += size
                if held > bytes_max:
                    raise TooMuch

        def read(piece: int) -> list[Parcel]:
            return list(self.read(piece, deadline_ms=deadline_ms, weigh=weigh))

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            parcels = [one for piece in threads.map(read, range(self.pieces)) for one in piece]
        return sorted(parcels, key=lambda one: one.place)

    def _route(self, table: int, part: int, rows: pa.Table) -> Iterator[Parcel]:
        how = self.routes[table]
        routed = route(rows, how)
        if routed.unrouted and how.stop_unrouted:
            yield from self._stopped(table, _unrouted_fault(self.tables[table]))
            return
        if routed.unrouted:
            yield Parcel(-1, table, packet.NOTE, part, routed.unrouted)
        yield from (Parcel(sink, table, packet.ROWS, part, share) for sink, share in routed.shares)

    def _stopped(self, table: int, fault: Fault) -> Iterator[Parcel]:
        yield from (Parcel(sink, table, packet.FAULT, 0, fault) for sink in self.routes[table].sinks)

    def _aborted(self, piece: int, fault: Fault) -> Iterator[Parcel]:
        # A window that could not be read is nobody's: it aborts the sinks that lack other tables, too.
        for table in self._tables_of(piece):
            yield from (Parcel(sink, -1, packet.ABORT, table, fault) for sink in range(len(self.orders)))


def _chunks(rows: Iterator[Rows]) -> Iterator[tuple[TableName, pa.Table]]:
    """Batches gathered into packets of a good size, for each table. Some may lack an optional column."""
    gathered: dict[TableName, list[pa.RecordBatch]] = {}
    sizes: Counter[TableName] = Counter()
    ended: Stopped | None = None
    try:
        for table, batch in rows:
            gathered.setdefault(table, []).append(batch)
            sizes[table] += batch.nbytes
            if sizes[table] >= PACKET_BYTES_MAX:
                yield table, _joined(gathered.pop(table))
                del sizes[table]
    except Stopped as stopped:  # the other tables' rows are all there
        ended = stopped
    for table, batches in gathered.items():
        yield table, _joined(batches)
    if ended is not None:
        raise ended


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    if all(batch.schema.equals(batches[0].schema) for batch in batches):
        return pa.Table.from_batches(batches)
    return pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")


def _late(tables: Sequence[str], deadline_ms: int, words: SourceWords) -> Fault:
    table = ", ".join(tables)
    return Fault(
        "TC3041",
        f"{table} could not be read: the source made no progress for {deadline_ms / 1000:g} s",
        f"Check {words.behind}; it is tried again by itself.",
        Retry.RETRYABLE,
    )


def _unrouted_fault(table: str) -> Fault:
    return Fault(
        "TC3003",
        f"{table} has rows that match no sink, and the pipeline says `unrouted: stop`",
        f"Add a sink for them, or say `unrouted: count`; then run `truecut resume FILE --table {table}`.",
    )
