"""How far a Spark job is, by its tasks: for progress bars, never for decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def name_job(spark: SparkSession, group: str) -> None:
    """Jobs that this thread starts belong to the group."""
    spark.sparkContext.setJobGroup(group, group)


def fraction_done(spark: SparkSession, group: str) -> float:
    """Finished tasks of all tasks that Spark knows of; 0 before it knows any, and when it does not answer."""
    try:
        return _fraction_done(spark, group)
    except Exception:  # noqa: BLE001 - the JVM has gone in many ways; its jobs tell
        return 0.0


def _fraction_done(spark: SparkSession, group: str) -> float:
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        stages = [] if info is None else [tracker.getStageInfo(stage) for stage in info.stageIds]
        done += sum(stage.numCompletedTasks for stage in stages if stage is not None)
        total += sum(stage.numTasks for stage in stages if stage is not None)
    return done / total if total else 0.0
