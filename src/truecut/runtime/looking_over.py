"""One look at all copies from within a run: the certificates' files, then source and sinks.

Uses the run's own Spark, and little of it. The files are examined by an executor: that takes the processor,
and the loop of the run needs its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa

from truecut.config.settings import Level, Pipeline
from truecut.errors import TruecutError
from truecut.runtime.certificate_files import examined
from truecut.runtime.certificate_lease import alone
from truecut.runtime.certified import claims_of
from truecut.runtime.checked import Checked, asked_by
from truecut.runtime.claims import Claims
from truecut.runtime.verification import Verification, reread_of
from truecut.spark.session import python_of, slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0
ARRIVAL_S = 90.0  # for sinks to come to where a server is read: an idle one is made durable every half minute


def looked_over(
    pipeline: Pipeline, spark: SparkSession, level: Level, *, runner: str, ended: Event
) -> list[Checked]:
    """What was found, check by check."""
    files = _files(pipeline, spark, runner)
    if level == "files":
        return files
    tables = frozenset(str(table.name) for table in pipeline.tables)
    sinks = frozenset(sink.name for sink in pipeline.sinks)
    claims = Claims(pipeline)
    claims.freeze()  # before the source tells the place where it is read
    try:
        with ExitStack() as stack:
            try:
                reread = stack.enter_context(reread_of(pipeline))
            except TruecutError as error:  # it is asked again after the interval: nobody issues any meanwhile
                return [*files, Checked("", "", "unknown", error.fault.message, level="V4")]
            asked = Verification(
                pipeline,
                spark,
                reread,
                tables,
                sinks,
                claims=claims,
                wait_s=ARRIVAL_S,
                ended=ended,
                tasks_max=max(1, slots(spark) // 4),
            )
            return [*files, *asked_by(level, claims_of(pipeline, asked).run())]
    finally:
        claims.release()


def _files(pipeline: Pipeline, spark: SparkSession, runner: str) -> list[Checked]:
    """Where something is wrong with them they are looked at again while nobody issues or trims any: they come
    and go meanwhile."""
    assert pipeline.certificate is not None
    folder = pipeline.certificate.path
    found = _examined_apart(folder, spark)
    if all(one.verdict != "fail" for one in found):
        return found
    with alone(pipeline, f"{runner}-examiner", patience_s=PATIENCE_S) as is_ours:
        if is_ours is not None:
            return _examined_apart(folder, spark)
    why = "they could not be looked at while nobody issues any"
    return [replace(one, verdict="unknown", detail=why) if one.verdict == "fail" else one for one in found]


def _examined_apart(folder: Path, spark: SparkSession) -> list[Checked]:
    def examine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                payload = pickle.dumps(examined(folder))
                yield pa.RecordBatch.from_arrays([pa.array([payload], pa.binary())], names=["payload"])

    with python_of(spark, "verify"):
        (row,) = spark.range(0, 1, 1, 1).mapInArrow(examine, "payload binary").collect()
    told: list[Checked] = pickle.loads(row.payload)
    return told
