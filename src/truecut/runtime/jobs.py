"""The Spark jobs of a runner: taking sinks over, and carrying a wave from plan to receipts.

Called in the background, never by the loop itself: planning asks the source, and a job takes its time.
Nothing here knows or changes the delivery machine's state; what came of a job is returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from truecut.certificate.folding import Claim, Folding
from truecut.config.settings import Level, Pipeline
from truecut.core.delivery import Recover, Wave
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Receipt
from truecut.runtime.orders import Planner
from truecut.sources.contract import Source, Window
from truecut.spark.fold import run_foldings
from truecut.spark.session import slots
from truecut.spark.wave.job import RecoverJob, WaveResult, run_recover, run_wave
from truecut.spark.wave.progress import fraction_done, name_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from truecut.runtime.checked import Checked

SEED_DEADLINE_MS = 600_000  # without any progress


class Jobs:
    """One pipeline's jobs in one Spark session."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, *, runner: str) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._runner = runner

    def of(self, pipeline: Pipeline) -> Jobs:
        """The jobs of the pipeline as it is now. What has begun goes on as it began."""
        return Jobs(pipeline, self._spark, runner=self._runner)

    def take_over(self, effect: Recover) -> list[Receipt]:
        """One job raises the fence of all these sinks and reads their cursors."""
        settings = {sink.name: sink for sink in self._pipeline.sinks}
        job = RecoverJob(
            self._pipeline.name,
            tuple((settings[name], epoch, token) for name, (epoch, token) in effect.sinks.items()),
            slots=slots(self._spark),
            deadline_ms=self._pipeline.batch.deadline_ms,
        )
        return run_recover(self._spark, job)

    def fold(self, foldings: Sequence[Folding]) -> list[Claim]:
        """One job brings the ledgers of these copies up to date."""
        name_job(self._spark, f"{self._runner}-ledgers")
        return run_foldings(self._spark, foldings)

    def verify(self, level: Level, ended: Event) -> list[Checked]:
        """All copies, with a quarter of the slots."""
        from truecut.runtime.looking_over import looked_over

        name_job(self._spark, f"{self._runner}-verification")
        return looked_over(self._pipeline, self._spark, level, runner=self._runner, ended=ended)

    def carry(
        self, wave: Wave, source: Source, *, source_identity: str, certificate: str = ""
    ) -> tuple[Window, WaveResult]:
        """Plan, run, come back. Late sinks get a quarter of the slots."""
        planner = Planner(self._pipeline, source_identity, certificate)
        room = slots(self._spark)
        allowed = max(1, room // 4) if wave.late else room
        name_job(self._spark, self._group(wave))
        try:
            window = planner.window(source, wave, parallelism=allowed)
        except TruecutError as error:
            return unplanned(wave, error.fault)
        if window.lost:
            return window, untouched(wave, {})
        deadline_ms = SEED_DEADLINE_MS if wave.kind == "seed" else self._pipeline.batch.deadline_ms
        job = planner.job(wave, window, slots=allowed, deadline_ms=deadline_ms)
        return window, run_wave(self._spark, job)

    def fraction_done(self, wave: Wave) -> float:
        """How far a wave is, 0 to 1."""
        return fraction_done(self._spark, self._group(wave))

    def _group(self, wave: Wave) -> str:
        return f"{self._runner}-wave-{wave.id}"


def unplanned(wave: Wave, fault: Fault) -> tuple[Window, WaveResult]:
    """Nobody could say what there is to read: whatever it was, it is looked at again."""
    fault = replace(fault, retry=Retry.RETRYABLE)
    nothing = Window(wave.after or wave.upto_max, 0, (), {}, 0)
    return nothing, untouched(wave, dict.fromkeys(wave.tables, fault))


def untouched(wave: Wave, unread: Mapping[str, Fault]) -> WaveResult:
    """The answer for every sink of a wave that was not read."""
    return WaveResult(
        [Receipt(name, sink.epoch, "aborted", unread=unread) for name, sink in wave.sinks.items()]
    )


def lost_tables(window: Window, receipts: Sequence[Receipt]) -> dict[str, Fault]:
    """Tables that cannot be read from where they stand, as the plan or a reader has found."""
    found = {table: fault for receipt in receipts for table, fault in receipt.unread.items()}
    planned = {str(name): window.faults[name] for name in window.lost}
    return planned | {table: fault for table, fault in found.items() if fault.retry is Retry.GAP}
