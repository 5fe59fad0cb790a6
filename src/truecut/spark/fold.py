"""Ledgers, brought up to date or extended by executors: one Spark job, a task for each copy."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from truecut.certificate.extension import Extended, Extension
from truecut.certificate.folding import Claim, Folding, unforeseen
from truecut.spark.session import python_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_MAX = 64
Work = TypeVar("Work")
Answer = TypeVar("Answer")


def run_foldings(spark: SparkSession, foldings: Sequence[Folding]) -> list[Claim]:
    """What can be claimed of each."""
    return _run(spark, foldings, folded)


def run_extensions(spark: SparkSession, extensions: Sequence[Extension]) -> list[tuple[Extended, ...] | str]:
    """What is certified at the places of each, or why nobody can say."""
    return _run(spark, extensions, extended)


def _run(spark: SparkSession, works: Sequence[Work], do: Callable[[Work], Answer]) -> list[Answer]:
    if not works:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                payload = pickle.dumps(do(works[number]))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([payload], pa.binary())],
                    names=["number", "payload"],
                )

    with python_of(spark, "ledgers"):
        numbers = spark.range(0, len(works), 1, min(TASKS_MAX, len(works)))
        found = numbers.mapInArrow(run, "number int, payload binary").collect()
    answers: dict[int, Answer] = {row.number: pickle.loads(row.payload) for row in found}
    return [answers[number] for number in range(len(works))]


def folded(folding: Folding) -> Claim:
    """One copy's trouble is its own: the other copies are certified."""
    try:
        return folding.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the claim is unknown
        return unforeseen(error)


def extended(extension: Extension) -> tuple[Extended, ...] | str:
    """One copy's trouble is its own."""
    try:
        return extension.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing is claimed
        return f"its evidence could not be extended: unexpected {type(error).__name__}"
