"""Units of tables, read by executors: one Spark job with so many readers at once.

A unit's trouble comes back as data; only the loss of a worker fails the job, and then what has its record is
not read again. Knows nothing of the source: a piece of work is told to run.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from truecut.errors import Fault, TruecutError
from truecut.spark.session import python_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DDL = "work int, payload binary"


class Work(Protocol):
    """A picklable piece of work."""

    def run(self) -> int:
        """How many rows it read. Raises TruecutError."""
        ...


class Done(NamedTuple):
    """What came of a piece of work, by its number."""

    work: int
    rows: int
    fault: Fault | None


def run_units(spark: SparkSession, work: Sequence[Work], *, readers: int) -> list[Done]:
    """All of it, by so many readers; each takes its share one after another."""
    if not work:
        return []

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _result(number, _run(work[number]))

    with python_of(spark, "units"):
        found = spark.range(0, len(work), 1, min(readers, len(work))).mapInArrow(read, _DDL).collect()
    return [Done(row.work, *pickle.loads(row.payload)) for row in found]


def _run(one: Work) -> tuple[int, Fault | None]:
    try:
        return one.run(), None
    except TruecutError as error:
        return 0, error.fault


def _result(number: int, came: tuple[int, Fault | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([number], pa.int32()), pa.array([pickle.dumps(came)], pa.binary())],
        names=["work", "payload"],
    )
