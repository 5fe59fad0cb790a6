"""Ledgers, brought up to date by executors: one Spark job, a task for each copy, aside of the waves."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from truecut.certificate.folding import Claim, Folding, unforeseen
from truecut.spark.session import python_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_MAX = 64


def run_foldings(spark: SparkSession, foldings: Sequence[Folding]) -> list[Claim]:
    """What can be claimed of each."""
    if not foldings:
        return []

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                payload = pickle.dumps(folded(foldings[number]))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([payload], pa.binary())],
                    names=["number", "payload"],
                )

    with python_of(spark, "ledgers"):
        numbers = spark.range(0, len(foldings), 1, min(TASKS_MAX, len(foldings)))
        found = numbers.mapInArrow(fold, "number int, payload binary").collect()
    claims = {row.number: pickle.loads(row.payload) for row in found}
    return [claims[number] for number in range(len(foldings))]


def folded(folding: Folding) -> Claim:
    """One copy's trouble is its own: the other copies are certified."""
    try:
        return folding.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the claim is unknown
        return unforeseen(error)
