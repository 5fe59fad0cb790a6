"""The wave: one Spark job that carries a window to all its sinks.

    read tasks ──▶ packets ──▶ shuffle by sink ──▶ apply ──▶ receipts

A large seed is staged by the tasks that read it: what they have left goes through the shuffle, not its rows.
Where there is one executor, a shuffle would only hand packets from one Python process of a machine to
another: one task reads and applies, unless the window is more than it may hold.

Executors may be on other machines: a closure holds settings and orders, never a path of this process
or an open connection. A sink's trouble comes back as its receipt; only the loss of a worker fails the
job, and then every cursor is read again.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from truecut.certificate.segment import Wanted
from truecut.certificate.unit_evidence import Pieces, ReadInUnits, Units, gathered
from truecut.config.settings import SinkSettings
from truecut.errors import Fault, Retry, require
from truecut.model.order import Receipt
from truecut.sinks.registry import open_sink
from truecut.spark.session import executors, python_of
from truecut.spark.wave import packet
from truecut.spark.wave.apart import ROWS_MIN, staged_apart
from truecut.spark.wave.apply import Attempt, Takeover, run_attempts, run_takeovers
from truecut.spark.wave.packet import Parcel
from truecut.spark.wave.reading import Reading, TooMuch
from truecut.spark.wave.staging import Apart, Staging, landing_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HELD_BYTES_MAX = 256 << 20  # rows of a window in a task that reads and applies
RESULT_DDL = "sink int, payload binary"
_UNROUTED, _TOO_MUCH, _ROUTED = -1, -2, -3  # results that are no sink's


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
    rows_estimate: int = 0
    evidence: Wanted | None = None  # of certificates


@dataclass(frozen=True, slots=True)
class WaveResult:
    """What came of it. A sink that is not in `receipts` had nothing: every piece has said so."""

    receipts: Sequence[Receipt]
    unrouted: Mapping[str, int] = field(default_factory=dict)


def run_wave(spark: SparkSession, job: WaveJob) -> WaveResult:
    """Run the job and wait for it. Only receipts reach the driver."""
    if job.reading.pieces == 0:
        return WaveResult(())
    alone = executors(spark) == 1 and not job.aside
    received = _in_one_task(spark, job).collect() if alone else None
    if received is None or any(row.sink == _TOO_MUCH for row in received):
        tasks = executors(spark)
        received = _by_shuffle(spark, job, _apart(spark, job, tasks=tasks), tasks=tasks).collect()
    receipts = [pickle.loads(row.payload) for row in received if row.sink >= 0]
    counted = [pickle.loads(row.payload) for row in received if row.sink == _ROUTED]
    receipts += _unanswered(job.reading, receipts, counted)
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


def _apart(spark: SparkSession, job: WaveJob, *, tasks: int) -> dict[int, Apart]:
    """The orders that reading tasks stage. Their sinks are asked where, by one job."""
    reading = job.reading
    if job.rows_estimate < ROWS_MIN:
        return {}
    able = [open_sink(sink, pipeline=job.pipeline).capabilities.stages_apart for sink in job.sinks]
    wanted = staged_apart(reading.orders, reading.routes, able, rows=job.rows_estimate)
    if not wanted:
        return {}

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for sink in (wanted[n] for batch in batches for n in batch.column(0).to_pylist()):
            landing = landing_of(reading.orders[sink], job.sinks[sink], pipeline=job.pipeline)
            yield _result(sink, pickle.dumps(landing))

    with python_of(spark, "aside"):
        asked = spark.range(0, len(wanted), 1, min(tasks, len(wanted))).mapInArrow(ask, RESULT_DDL)
    landings = {row.sink: pickle.loads(row.payload) for row in asked.collect()}
    return {
        sink: Apart(reading.orders[sink], job.sinks[sink], landing)
        for sink, landing in landings.items()
        if landing is not None
    }


def _by_shuffle(spark: SparkSession, job: WaveJob, apart: dict[int, Apart], *, tasks: int) -> DataFrame:
    pieces = job.reading.pieces

    def read_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                read = job.reading.read(piece, deadline_ms=job.deadline_ms)
                if apart and piece < len(job.reading.tasks):
                    tables = job.reading.tables
                    to = Staging(job.pipeline, tables, apart, piece, job.deadline_ms, job.evidence)
                    read = to.parcels(read)
                yield from packet.to_batches(read, tasks)

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels = packet.from_batches(batches)
        yield from _apply(job, parcels, threads=-(-job.slots // tasks), apart=frozenset(apart))

    packets = (
        spark.range(0, pieces, 1, pieces)
        .mapInArrow(read_pieces, packet.DDL)
        .repartitionById(tasks, "slot")
        .sortWithinPartitions(*packet.ORDER)
    )
    with python_of(spark, "aside" if job.aside else "sinks"):
        return packets.mapInArrow(apply, RESULT_DDL)


def _apply(
    job: WaveJob, parcels: Iterable[Parcel], *, threads: int, apart: frozenset[int] = frozenset()
) -> Iterator[pa.RecordBatch]:
    noted: list[Parcel] = []
    attempts = _attempts(job, parcels, noted, apart)
    for sink, receipt in run_attempts(attempts, threads=threads, deadline_ms=job.deadline_ms):
        yield _result(sink, pickle.dumps(receipt))
    for one in noted:
        if one.kind == packet.NOTE:
            yield _result(_UNROUTED, pickle.dumps((job.reading.tables[one.table], one.content)))
    yield _result(_ROUTED, pickle.dumps(Counted.of(noted)))


def _attempts(
    job: WaveJob, parcels: Iterable[Parcel], noted: list[Parcel], apart: frozenset[int]
) -> Iterator[Attempt]:
    """What is nobody's comes first: a sink's attempt knows how many rows there are for it."""
    reading = job.reading
    counted, read = Counted(frozenset(), {}), dict[str, ReadInUnits]()
    for sink, group in groupby(parcels, key=lambda one: one.sink):
        if sink < 0:
            noted.extend(group)
            counted = Counted.of(noted)
            read = gathered(one.content for one in noted if isinstance(one.content, Pieces))
            continue
        routed = {reading.tables[table]: rows for (to, table), rows in counted.routed.items() if to == sink}
        whole = counted.is_whole(reading)
        yield Attempt(
            sink,
            reading.orders[sink],
            job.sinks[sink],
            job.pipeline,
            reading.tables,
            group if whole else _unheard(sink, reading),
            routed,
            job.evidence,
            len(reading.tasks) if sink in apart else None,
            Units(read, {name: one for name in read if (one := reading.route_of(sink, name)) is not None}),
        )


# --- nothing is proved by counts, not by silence ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counted:
    """Which pieces of a window have said how many rows they had for whom, and how many these are."""

    pieces: frozenset[int]
    routed: Mapping[tuple[int, int], int]

    @classmethod
    def of(cls, parcels: Iterable[Parcel]) -> Counted:
        """What they have said."""
        said = [one for one in parcels if one.kind == packet.COUNTS]
        routed: Counter[tuple[int, int]] = Counter()
        for one in said:
            assert isinstance(one.content, dict)
            routed.update(one.content)
        pieces = [one.part for one in said]
        require(len(set(pieces)) == len(pieces), "a piece is read once")
        return cls(frozenset(pieces), dict(routed))

    def is_whole(self, reading: Reading) -> bool:
        """Whether all have."""
        return self.pieces == frozenset(range(reading.pieces))

    def rows_for(self, sink: int) -> int:
        """Of all tables."""
        return sum(rows for (to, _), rows in self.routed.items() if to == sink)


def _unheard(sink: int, reading: Reading) -> Iterator[Parcel]:
    """In place of a sink's parcels where a piece is missing: nobody knows whether they are all."""
    for table in range(len(reading.tables)):
        yield Parcel(sink, -1, packet.ABORT, table, _UNHEARD)


def _unanswered(reading: Reading, receipts: Sequence[Receipt], counted: Sequence[Counted]) -> list[Receipt]:
    """Failures of the sinks that should have had rows and have not answered, or of which nobody knows."""
    answered = {receipt.sink for receipt in receipts}
    whole = bool(counted) and all(one.is_whole(reading) for one in counted)
    return [
        Receipt(order.sink, order.epoch, "failed", fault=_UNHEARD)
        for number, order in enumerate(reading.orders)
        if order.sink not in answered and not (whole and counted[0].rows_for(number) == 0)
    ]


_UNHEARD = Fault(
    "TC5082",
    "not every piece of the window has said what it had for whom; nothing was written",
    "None needed, it is read again; report it if it persists.",
    Retry.RETRYABLE,
)


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
