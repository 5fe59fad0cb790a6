"""The wave: one Spark job that carries a window to all its sinks.

    read tasks ──▶ packets ──▶ shuffle by sink ──▶ apply ──▶ receipts

Executors may be on other machines: a closure holds settings and orders, never a path of this process
or an open connection. A sink's trouble comes back as its receipt; only the loss of a worker fails the
job, and then every cursor is read again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from truecut.config.settings import SinkSettings
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Order, Receipt
from truecut.sources.contract import ReadTask
from truecut.spark import packet
from truecut.spark.apply import Attempt, Takeover, run_attempts, run_takeovers
from truecut.spark.packet import PacketRow
from truecut.spark.route import TableRoute, route
from truecut.spark.session import executors, python_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKET_BYTES_MAX = 16 << 20
RESULT_DDL = "sink int, payload binary"


@dataclass(frozen=True, slots=True)
class WaveJob:
    """Everything an executor needs. Sinks and tables are indexes into `orders` and `tables`."""

    pipeline: str
    tasks: tuple[ReadTask, ...]
    tables: tuple[str, ...]
    routes: tuple[TableRoute, ...]
    orders: tuple[Order, ...]
    sinks: tuple[SinkSettings, ...]
    slots: int  # sinks in work at once, over all executors
    deadline_ms: int
    aside: bool = False  # long or doubtful work: not in the processes that serve the ordinary waves
    commit_all: bool = False  # also sinks without rows (seeds, idle cursors)


@dataclass(frozen=True, slots=True)
class WaveResult:
    """What came of it. A sink that is not in `receipts` had nothing in the window."""

    receipts: Sequence[Receipt]
    unrouted: Mapping[str, int] = field(default_factory=dict)


def run_wave(spark: SparkSession, job: WaveJob) -> WaveResult:
    """Run the job and wait for it. Only receipts reach the driver."""
    pieces = len(job.tasks) + (1 if job.commit_all else 0)  # the last one emits the markers
    if pieces == 0:
        return WaveResult(())
    tasks = executors(spark)
    packets = (
        spark.range(0, pieces, 1, pieces)
        .mapInArrow(_reader(job, tasks), packet.DDL)
        .repartitionById(tasks, "slot")
        .sortWithinPartitions("sink", "table", "kind", "part")
    )
    with python_of(spark, "aside" if job.aside else "sinks"):
        receipts_of = packets.mapInArrow(_applier(job, threads=-(-job.slots // tasks)), RESULT_DDL)
    received = receipts_of.collect()
    receipts = [pickle.loads(row.payload) for row in received if row.sink >= 0]
    unrouted: dict[str, int] = {}
    for row in received:
        if row.sink < 0:
            table, count = pickle.loads(row.payload)
            unrouted[table] = unrouted.get(table, 0) + count
    return WaveResult(receipts, unrouted)


# --- the reading side ---------------------------------------------------------------------------------


def _reader(job: WaveJob, slots: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                yield from packet.to_batches(_read_piece(job, piece), slots)

    return read


def _read_piece(job: WaveJob, piece: int) -> Iterator[PacketRow]:
    if piece == len(job.tasks):
        return _markers(job)
    return _read_task(job, piece, job.tasks[piece])


def _markers(job: WaveJob) -> Iterator[PacketRow]:
    for sink in range(len(job.orders)):
        yield PacketRow(sink, -1, packet.MARKER, 0, b"")


def _read_task(job: WaveJob, piece: int, task: ReadTask) -> Iterator[PacketRow]:
    """Packets of one task. What goes wrong travels as packets, too: to all sinks of the table."""
    table = job.tables.index(str(task.table))
    try:
        for part, rows in enumerate(_chunks(task.read())):
            yield from _route_chunk(job, table, (piece << 32) + part, rows)
    except TruecutError as error:
        retryable = error.fault.retry is Retry.RETRYABLE
        yield from _to_all(job, table, packet.ABORT if retryable else packet.FAULT, error.fault)


def _route_chunk(job: WaveJob, table: int, part: int, rows: pa.Table) -> Iterator[PacketRow]:
    how = job.routes[table]
    routed = route(rows, how)
    if routed.unrouted and how.stop_unrouted:
        yield from _to_all(job, table, packet.FAULT, _unrouted_fault(job.tables[table]))
        return
    if routed.unrouted:
        note = pickle.dumps((job.tables[table], routed.unrouted))
        yield PacketRow(-1, table, packet.NOTE, part, note)
    encoded: tuple[pa.Table, bytes] | None = None
    for sink, share in routed.shares:
        # Sinks that get the very same rows share one encoding.
        if encoded is None or encoded[0] is not share:
            encoded = share, packet.encode(share)
        yield PacketRow(sink, table, packet.ROWS, part, encoded[1])


def _to_all(job: WaveJob, table: int, kind: int, fault: Fault) -> Iterator[PacketRow]:
    payload = packet.encode_fault(fault)
    # A window that could not be read is nobody's: it aborts the sinks that lack other tables, too.
    aborts = kind == packet.ABORT
    sinks: Iterable[int] = range(len(job.orders)) if aborts else job.routes[table].sinks
    for sink in sinks:
        yield PacketRow(sink, -1 if aborts else table, kind, 0, payload)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches gathered into packets of a good size."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= PACKET_BYTES_MAX:
            yield packet.concat(gathered)
            gathered, size = [], 0
    if gathered:
        yield packet.concat(gathered)


def _unrouted_fault(table: str) -> Fault:
    return Fault(
        "TC3003",
        f"{table} has rows that match no sink, and the pipeline says `unrouted: stop`",
        "Add a sink for them, or say `unrouted: count`; then run `truecut resume FILE --table`.",
    )


# --- the applying side --------------------------------------------------------------------------------


def _applier(job: WaveJob, *, threads: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        notes: list[bytes] = []
        attempts = _attempts(job, packet.from_batches(batches), notes)
        for receipt in run_attempts(attempts, threads=threads, deadline_ms=job.deadline_ms):
            yield _result(receipt[0], pickle.dumps(receipt[1]))
        yield from (_result(-1, note) for note in notes)

    return apply


def _attempts(job: WaveJob, rows: Iterator[PacketRow], notes: list[bytes]) -> Iterator[Attempt]:
    for sink, group in groupby(rows, key=lambda row: row.sink):
        if sink < 0:
            notes.extend(row.payload for row in group)
        else:
            yield Attempt(sink, job.orders[sink], job.sinks[sink], job.pipeline, job.tables, group)


def _result(sink: int, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([sink], pa.int32()), pa.array([payload], pa.binary())], names=["sink", "payload"]
    )


# --- taking sinks over --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecoverJob:
    """Take over many sinks at once: (settings, epoch, token) each."""

    pipeline: str
    sinks: tuple[tuple[SinkSettings, int, int], ...]
    slots: int  # sinks in work at once, over all executors
    deadline_ms: int


def run_recover(spark: SparkSession, job: RecoverJob) -> list[Receipt]:
    """One job, whatever the number of sinks."""

    def recover(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = (i for batch in batches for i in batch.column(0).to_pylist())
        takeovers = (Takeover(i, job.pipeline, *job.sinks[i]) for i in wanted)
        for sink, receipt in run_takeovers(takeovers, threads=threads, deadline_ms=job.deadline_ms):
            yield _result(sink, pickle.dumps(receipt))

    tasks = executors(spark)
    threads = -(-job.slots // tasks)
    numbers = spark.range(0, len(job.sinks), 1, min(tasks, len(job.sinks)))
    with python_of(spark, "sinks"):
        recovered = numbers.mapInArrow(recover, RESULT_DDL)
    return [pickle.loads(row.payload) for row in recovered.collect()]
