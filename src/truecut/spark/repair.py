"""A repair, as a Spark job: the rows that differ are read once more on both sides, and applied as one order.

    pieces ──▶ changes of the keys that differ ──▶ one task: the sink's order ──▶ receipt

The driver knows the digests of these keys, and sees no row. A piece that cannot be read aborts the order
before the sink was touched.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from truecut.certificate.digest import Keyed
from truecut.config.settings import SinkSettings
from truecut.errors import TruecutError
from truecut.model.order import Order, Receipt
from truecut.spark.comparison import Piece, Side, unforeseen
from truecut.spark.session import python_of
from truecut.spark.wave import packet
from truecut.spark.wave.apply import Attempt, run_attempts
from truecut.spark.wave.packet import Parcel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECEIPT_DDL = "payload binary"


@dataclass(frozen=True, slots=True)
class Repair:
    """Of one copy: an order whose one table gets the rows that differ between two sides."""

    pipeline: str
    sink: SinkSettings
    order: Order
    pieces: Sequence[Piece]
    keyed: Keyed
    sides: frozenset[Side]
    wanted: Collection[bytes]  # digests of the keys that differ
    deadline_ms: int

    @property
    def table(self) -> str:
        """Its one table."""
        (table,) = self.order.tables
        return table

    def read(self, number: int) -> Iterator[Parcel]:
        """The changes of one piece, or that it could not be read."""
        try:
            found = self.pieces[number].repairs(self.keyed, self.wanted, place=self.order.upto.place)
            for side, rows in found:
                if side in self.sides and rows.num_rows:
                    yield Parcel(0, 0, packet.ROWS, number, rows)
        except TruecutError as error:
            yield Parcel(0, -1, packet.ABORT, 0, error.fault)
        except Exception as error:  # noqa: BLE001 - a reader's bug must not fail the job without a word
            yield Parcel(0, -1, packet.ABORT, 0, unforeseen(error))

    def attempt(self, parcels: Iterator[Parcel]) -> Attempt:
        """All of them, in their order: one that forbids the rest comes first, then the source's."""
        return Attempt(0, self.order, self.sink, self.pipeline, (self.table,), _alike(parcels))


def _alike(parcels: Iterator[Parcel]) -> Iterator[Parcel]:
    """The rows in the Arrow types of those that come first, the source's: a client may have others for the
    same values."""
    schema: pa.Schema | None = None
    for one in parcels:
        if isinstance(one.content, pa.Table):
            schema = schema or one.content.schema
            one = replace(one, content=one.content.select(schema.names).cast(schema))
        yield one


def run_repair(spark: SparkSession, repair: Repair) -> Receipt:
    """Carry it out. A receipt that is neither `applied` nor `already` tells why nothing was changed, or that
    nobody knows whether it was (`late`)."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from packet.to_batches(repair.read(number), 1)

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = repair.attempt(packet.from_batches(batches))
        for _, receipt in run_attempts([attempt], threads=1, deadline_ms=repair.deadline_ms):
            yield pa.RecordBatch.from_arrays(
                [pa.array([pickle.dumps(receipt)], pa.binary())], names=["payload"]
            )

    pieces = len(repair.pieces)
    with python_of(spark, "verify"):
        changes = spark.range(0, pieces, 1, pieces).mapInArrow(read, packet.DDL)
    with python_of(spark, "sinks"):
        answered = (
            changes.repartition(1)
            .sortWithinPartitions(*packet.ORDER)
            .mapInArrow(apply, _RECEIPT_DDL)
            .collect()
        )
    receipt: Receipt = pickle.loads(answered[0].payload)
    return receipt
