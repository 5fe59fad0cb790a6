"""One run of a pipeline: from the first look, over Spark's start and the loops, to the stopped Spark.

Promises: what it starts it ends, however it comes out; a signal or a deadline is heeded also while things
start; nothing is started where nothing is lacking.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING

from truecut.cli.signals import Interrupted, Signals
from truecut.errors import ExitCode, Retry, TruecutError
from truecut.events import tell, tell_fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from truecut.cli.live import Show
    from truecut.config.settings import Pipeline
    from truecut.runtime.capture_start import CaptureThread
    from truecut.runtime.control import ControlStore
    from truecut.runtime.joining_tables import TableWatch
    from truecut.runtime.run_report import View
    from truecut.runtime.runner import Runner
    from truecut.runtime.until import Outcome, Until
    from truecut.serving.listener import Told
    from truecut.spark.session import Starting

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """How it came out; `view` is None where the loop never turned."""

    outcome: Outcome
    view: View | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run, from the first look to the stopped Spark."""

    pipeline: Pipeline
    until: Until
    accept: bool
    show: Show
    told: Told | None
    signals: Signals
    began: float
    written: Pipeline | None = None  # as the file says it, with its wildcards; None: nobody looks again

    def run(self) -> Ending:
        from truecut.runtime.until import Outcome

        with ExitStack() as stack:
            try:
                ready = self.signals.waiting_for(lambda: self._begin(stack), deadline=self._deadline)
            except Interrupted:
                tell(_log, logging.INFO, "stopped before it had begun")
                return Ending(Outcome(reached=False), None)
            except TimeoutError:
                late = {sink.name: "Spark has not started in time" for sink in self.pipeline.sinks}
                return Ending(Outcome(reached=False, stragglers=late), None)
            return ready if isinstance(ready, Ending) else self._carry(stack, *ready)

    @property
    def _deadline(self) -> float | None:
        limit_ms = self.until.timeout_ms if self.until.finite else None
        return None if limit_ms is None else self.began + limit_ms / 1000

    def _begin(
        self, stack: ExitStack
    ) -> Ending | tuple[Starting, SparkSession, ControlStore, CaptureThread | None]:
        """Everything that comes before the loop: slow, and perhaps in vain. `stack` ends what it starts."""
        from truecut.runtime.control import open_control
        from truecut.spark.settings import refused_master

        unfit = refused_master(self.pipeline)
        if unfit is not None:
            raise TruecutError.of(unfit, ExitCode.UNFIT_ENVIRONMENT)
        finite = self.until.finite and self.until.answer is None
        if finite and (view := self._nothing_to_do(stack)) is not None:
            from truecut.runtime.until import Outcome

            return Ending(Outcome(reached=True), view)
        self.show.note("starting Spark: its JVM")
        starting = self._start()
        stack.callback(starting.end)
        self.signals.before_leaving(starting.kill)
        if self.signals.received:  # nobody waits for us any more
            starting.kill()
            raise Interrupted
        control = open_control(self.pipeline.control, pipeline=self.pipeline.name)
        stack.callback(control.close)
        _look_at(self.pipeline)
        capture = self._capture(stack)
        return starting, self._session(starting), control, capture

    def _capture(self, stack: ExitStack) -> CaptureThread | None:
        """Beside the run, where the source keeps no history of its own."""
        from truecut.runtime.capture_start import CaptureThread, is_captured

        if not is_captured(self.pipeline):
            return None
        capture = CaptureThread(self.pipeline, owner=_own_name()).start()
        stack.callback(capture.stop)
        return capture

    def _nothing_to_do(self, stack: ExitStack) -> View | None:
        """Where everything stands, if all of it is where it shall be. Spark is not needed to see that, nor
        that it has gone further already."""
        from truecut.runtime.certified import is_behind
        from truecut.runtime.dry_run import look_ahead, passed_by
        from truecut.runtime.nothing_to_do import nothing_to_do
        from truecut.runtime.run_report import View

        try:
            outlook = look_ahead(self.pipeline)
        except TruecutError as error:
            if error.fault.retry is not Retry.RETRYABLE:
                raise
            return None  # busy: the run waits for it
        if self.until.position is not None and (refusal := passed_by(outlook, self.until.position)):
            raise refusal
        stop = Event()
        stack.callback(stop.set)
        settled = nothing_to_do(self.pipeline, outlook, self.until.position, stop, owner=_own_name())
        if settled is None:
            return None
        outlook = settled
        durable = {
            (table, name): str(copy.durable.at)
            for name, sink in outlook.state.sinks.items()
            for table, copy in sink.copies.items()
            if copy.durable is not None
        }
        if is_behind(self.pipeline, durable):
            return None  # killed before it was certified
        view = View(self.pipeline)
        view.observed(outlook.seen)
        view.refresh(outlook.state)
        view.unrouted = outlook.known.unrouted
        return view

    def _start(self) -> Starting:
        from truecut.spark.session import Starting

        return Starting.of(self.pipeline)

    def _session(self, starting: Starting) -> SparkSession:
        from truecut.spark.jvm import JvmEnded
        from truecut.spark.settings import refused

        try:
            return starting.session(self.show.note)
        except JvmEnded as ended:
            raise refused(self.pipeline, ended.said) from None
        except Exception as error:  # noqa: BLE001 - Spark raises many kinds
            raise refused(self.pipeline, str(error)) from None

    def _carry(
        self,
        stack: ExitStack,
        starting: Starting,
        spark: SparkSession,
        control: ControlStore,
        capture: CaptureThread | None,
    ) -> Ending:
        """Until it ends; where tables have come that the file means, the loops begin again with them."""
        now = self
        try:
            while True:
                ending, following = now._carry_these(starting, spark, control, capture)
                if following is None or self.signals.received:
                    return ending
                now = following
                if capture is not None:
                    capture.stop()
                    capture = now._capture(stack)
        finally:
            if not starting.ended:
                spark.stop()  # ends what runs: a run that ends by an error does not wait for its jobs either

    def _carry_these(
        self, starting: Starting, spark: SparkSession, control: ControlStore, capture: CaptureThread | None
    ) -> tuple[Ending, Run | None]:
        """With the tables of now. Returns how it ended, and what to go on with, if there is something."""
        from truecut.config.kinds import SOURCES
        from truecut.runtime.backfill import Backfill
        from truecut.runtime.jobs import Jobs
        from truecut.runtime.pipeline_file import PipelineFile
        from truecut.runtime.prompt_source import PromptSource
        from truecut.runtime.runner import Runner
        from truecut.runtime.trace import Trace
        from truecut.sources.registry import open_source

        pipeline = self.pipeline
        name = _own_name()
        backfill = None if capture is None else Backfill(spark, pipeline.source).start()
        runner = Runner(
            pipeline,
            name=name,
            jobs=Jobs(pipeline, spark, runner=name),
            open_source=lambda g: PromptSource(
                open_source(pipeline.source, generation=g),
                pipeline.batch.deadline_ms,
                SOURCES[pipeline.source.type].words,
            ),
            control=control,
            trace=Trace.from_environment(),
            until=self._until_left(),
            accept=self.accept,
            on_view=lambda view: self._update(view, capture),
            on_turn=lambda: _require_alive(starting, capture),
            on_unseeded=lambda tables, paused: (
                None if backfill is None else backfill.want(tables, paused=paused)
            ),
            on_again=lambda table, asked: None if backfill is None else backfill.ask_again(table, asked),
            file=None if self.written is None else PipelineFile(self.written, os.environ),
        )
        self._announce(name)
        watch = self._watch(runner)
        try:
            with self.signals.calling(lambda: self._stop(runner)):
                outcome = runner.run()
        finally:
            if watch is not None:
                watch.close()
            if backfill is not None:
                backfill.stop()
        return Ending(outcome, self.show.view), self._following(watch, runner)

    def _following(self, watch: TableWatch | None, runner: Runner) -> Run | None:
        """With the tables that have come, and the sinks that the file has by now: as it was carried out, for
        it may be broken at the moment. What was to be replaced was asked for when the run began."""
        from truecut.runtime.joining_tables import with_sinks_now

        if watch is None or watch.joined is None:
            return None
        joined = with_sinks_now(watch.joined, runner.taken)
        return replace(self, pipeline=joined.pipeline, written=joined.file, accept=False)

    def _watch(self, runner: Runner) -> TableWatch | None:
        """Looks for tables that come, in a run without an end."""
        from truecut.runtime.joining_tables import TableWatch

        if self.until.finite or self.written is None:
            return None
        return TableWatch(lambda: runner.taken, self.pipeline, runner.stop)

    def _until_left(self) -> Until:
        """The time that the start has taken counts."""
        limit_ms = self.until.timeout_ms
        if limit_ms is None:
            return self.until
        passed_ms = int((time.monotonic() - self.began) * 1000)
        return replace(self.until, timeout_ms=max(0, limit_ms - passed_ms))

    def _announce(self, name: str) -> None:
        from truecut.cli.output import counted

        tables, sinks = len(self.pipeline.tables), len(self.pipeline.sinks)
        what = f"{counted(tables, 'table')}, {counted(sinks, 'sink')}"
        tell(_log, logging.INFO, f"started {self.pipeline.name} as {name}: {what}")

    def _update(self, view: View, capture: CaptureThread | None) -> None:
        view.retained_bytes = None if capture is None else capture.retained_bytes
        self.show.update(view)
        if self.told is not None:
            self.told.update(view)

    def _stop(self, runner: Runner) -> None:
        runner.stop()
        # In a thread: the signal may have come in the middle of a line.
        Thread(target=self.show.stopping, daemon=True).start()


def _own_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _require_alive(starting: Starting, capture: CaptureThread | None) -> None:
    """Every job would fail from now on, or nothing new would come: whoever watches over the run starts
    another."""
    if capture is not None:
        capture.check()
    if starting.ended:
        raise TruecutError(
            "TC5009",
            "Spark's JVM has ended",
            fix="Start the run again: it goes on where the sinks stand. Check memory (`spark.driver.memory`, "
            "the machine's own); spark.log in the state folder may say more.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        )


def _look_at(pipeline: Pipeline) -> None:
    """A source that cannot be read at all is better said before Spark starts; a busy one is waited for."""
    from truecut.sources.registry import survey_source

    survey = survey_source(pipeline.source)
    try:
        findings = survey.check(survey.observe()).findings
    except TruecutError as error:
        if error.fault.retry is not Retry.RETRYABLE:
            raise
        return
    for finding in findings:
        if finding.severity == "error":
            raise TruecutError.of(finding.fault, ExitCode.UNFIT_ENVIRONMENT)
        tell_fault(_log, finding.fault)
