"""The wave: one Spark job that carries a window to all its sinks.

    read tasks ──▶ packets ──▶ shuffle by sink ──▶ apply ──▶ receipts

Where there is one executor, a shuffle would only hand packets from one Python process of a machine to
another: one task reads and applies, unless the window is more than it may hold.

Executors may be on other machines: a closure holds settings and orders, never a path of this process
or an open connection. A sink's trouble comes back as its receipt; only the loss of a worker fails the
job, and then every cursor is read again.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from truecut.config.settings import SinkSettings
from truecut.model.order import Receipt
from truecut.spark.session import executors, python_of
from truecut.spark.wave import packet
from truecut.spark.wave.apply import Attempt, Takeover, run_attempts, run_takeovers
from truecut.spark.wave.packet import Parcel
from truecut.spark.wave.reading import Reading, TooMuch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HELD_BYTES_MAX = 256 << 20  # rows of a window in a task that reads and applies
RESULT_DDL = "sink int, payload binary"
_UNROUTED, _TOO_MUCH = -1, -2  # results that are no sink's


@dataclass(frozen=True, slots=True)
class WaveJob:
    """Everything an executor needs. `sinks` are those of the orders."""

    pipeline: str
    reading: Reading
    sinks: tuple[SinkSettings, ...]
    slots: int  # sinks in work at once, over all executors
    deadline_ms: int
    aside: bool = False  # long or doubtful work: not in the processes that serve the ordinary waves
    held_bytes_max: int = HELD_BYTES_MAX


@dataclass(frozen=True, slots=True)
class WaveResult:
    """What came of it. A sink that is not in `receipts` had nothing in the window."""

    receipts: Sequence[Receipt]
    unrouted: Mapping[str, int] = field(default_factory=dict)


def run_wave(spark: SparkSession, job: WaveJob) -> WaveResult:
    """Run the job and wait for it. Only receipts reach the driver."""
    if job.reading.pieces == 0:
        return WaveResult(())
    alone = executors(spark) == 1 and not job.aside
    received = _in_one_task(spark, job).collect() if alone else None
    if received is None or any(row.sink == _TOO_MUCH for row in received):
        received = _by_shuffle(spark, job, tasks=executors(spark)).collect()
    receipts = [pickle.loads(row.payload) for row in received if row.sink >= 0]
    unrouted: dict[str, int] = {}
    for row in received:
        if row.sink == _UNROUTED:
            table, count = pickle.loads(row.payload)
            unrouted[table] = unrouted.get(table, 0) + count
    return WaveResult(receipts, unrouted)


def _in_one_task(spark: SparkSession, job: WaveJob) -> DataFrame:
    def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            try:
                parcels = job.reading.read_all(bytes_max=job.held_bytes_max, deadline_ms=job.deadline_ms)
            except TooMuch:  # nothing has been applied yet
                yield _result(_TOO_MUCH, b"")
            else:
                yield from _apply(job, parcels, threads=job.slots)

    with python_of(spark, "sinks"):
        return spark.range(1).coalesce(1).mapInArrow(carry, RESULT_DDL)


def _by_shuffle(spark: SparkSession, job: WaveJob, *, tasks: int) -> DataFrame:
    def read_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                read = job.reading.read(piece, deadline_ms=job.deadline_ms)
                yield from packet.to_batches(read, tasks)

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _apply(job, packet.from_batches(batches), threads=-(-job.slots // tasks))

    pieces = job.reading.pieces
    packets = (
        spark.range(0, pieces, 1, pieces)
        .mapInArrow(read_pieces, packet.DDL)
        .repartitionById(tasks, "slot")
        .sortWithinPartitions(*packet.ORDER)
    )
    with python_of(spark, "aside" if job.aside else "sinks"):
        return packets.mapInArrow(apply, RESULT_DDL)


def _apply(job: WaveJob, parcels: Iterable[Parcel], *, threads: int) -> Iterator[pa.RecordBatch]:
    unrouted: list[Parcel] = []
    attempts = _attempts(job, parcels, unrouted)
    for sink, receipt in run_attempts(attempts, threads=threads, deadline_ms=job.deadline_ms):
        yield _result(sink, pickle.dumps(receipt))
    for one in unrouted:
        yield _result(_UNROUTED, pickle.dumps((job.reading.tables[one.table], one.content)))


def _attempts(job: WaveJob, parcels: Iterable[Parcel], unrouted: list[Parcel]) -> Iterator[Attempt]:
    reading = job.reading
    for sink, group in groupby(parcels, key=lambda one: one.sink):
        if sink < 0:
            unrouted.extend(group)
        else:
            yield Attempt(sink, reading.orders[sink], job.sinks[sink], job.pipeline, reading.tables, group)


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
