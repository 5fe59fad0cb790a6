"""`truecut run`: carry changes to every sink until stopped, or until caught up."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from truecut.cli.parameters import ADDRESS, DURATION, POSITION, pipeline_argument
from truecut.cli.signals import Interrupted, Signals, received_signals
from truecut.errors import ExitCode, Retry, TruecutError
from truecut.events import tell, tell_fault
from truecut.model.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from truecut.cli.live import Show
    from truecut.config.settings import Pipeline
    from truecut.runtime.capturing import CaptureThread
    from truecut.runtime.control import ControlStore
    from truecut.runtime.joining import TableWatch
    from truecut.runtime.run_report import View
    from truecut.runtime.runner import Runner
    from truecut.runtime.until import Outcome, Until
    from truecut.serving.listener import Told
    from truecut.spark.session import Starting

TOKEN_VARIABLE = "TRUECUT_LISTEN_TOKEN"
_log = logging.getLogger(__name__)


@click.command()
@pipeline_argument
@click.option(
    "--until-caught-up", is_flag=True, help="Carry everything up to the source's head now, then exit."
)
@click.option(
    "--until-position", type=POSITION, metavar="P", help="Stop every sink exactly there, then exit."
)
@click.option("--timeout", type=DURATION, metavar="10m", help="Give up after this long (exit 1).")
@click.option("--accept", is_flag=True, help="Allow replacing data at a sink that already holds some.")
@click.option(
    "--listen", type=ADDRESS, metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz meanwhile."
)
@click.option("--log-file", type=click.Path(path_type=Path, dir_okay=False), help="Log there, not to stderr.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON (truecut.run/v1) on stdout.")
@click.pass_context
def command(
    context: click.Context,
    file: Path,
    until_caught_up: bool,
    until_position: Position | str | None,
    timeout: int | None,
    accept: bool,
    listen: str | None,
    log_file: Path | None,
    as_json: bool,
) -> None:
    """Run the pipeline in FILE.

    Runs until stopped with Ctrl-C, which stops cleanly; the next run resumes. Several runners of one
    pipeline share its sinks between them.
    """
    began = time.monotonic()
    if until_caught_up and until_position is not None:
        raise click.UsageError("--until-caught-up and --until-position exclude each other")
    with received_signals() as signals:  # also while we import and load
        from truecut.cli.live import live_view
        from truecut.cli.output import set_up_logging
        from truecut.config.load import load
        from truecut.runtime.tables import settled_patiently
        from truecut.runtime.until import Until

        if log_file is not None:
            options = context.find_root().params
            set_up_logging(level=options["log_level"], form=options["log_format"], file=log_file)
        written = load(file, environ=os.environ)
        until = Until(
            until_caught_up, until_position if isinstance(until_position, Position) else None, timeout
        )
        finite = until.finite or until_position is not None
        deadline = began + timeout / 1000 if finite and timeout is not None else None
        try:
            pipeline = signals.waiting_for(lambda: settled_patiently(written, time.sleep), deadline=deadline)
            if isinstance(until_position, str):
                place = partial(_position, pipeline, until_position)
                until = replace(until, position=signals.waiting_for(place, deadline=deadline))
        except Interrupted:
            tell(_log, logging.INFO, "stopped before it had begun")
            raise SystemExit(128 + signals.received[0] if finite else 0) from None
        except TimeoutError:
            raise _could_not_follow({"source": "it has not answered in time"}) from None
        _prepare_state(pipeline.state)
        with _told(pipeline, listen) as told, live_view(pipeline) as show:
            ending = Run(pipeline, until, accept, show, told, signals, began, written).run()
        _end(ending, until, signals, as_json=as_json, seconds=time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Ending:
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

    def run(self) -> _Ending:
        from truecut.runtime.until import Outcome

        with ExitStack() as stack:
            try:
                ready = self.signals.waiting_for(lambda: self._begin(stack), deadline=self._deadline)
            except Interrupted:
                tell(_log, logging.INFO, "stopped before it had begun")
                return _Ending(Outcome(reached=False), None)
            except TimeoutError:
                late = {sink.name: "Spark has not started in time" for sink in self.pipeline.sinks}
                return _Ending(Outcome(reached=False, stragglers=late), None)
            return ready if isinstance(ready, _Ending) else self._carry(stack, *ready)

    @property
    def _deadline(self) -> float | None:
        limit_ms = self.until.timeout_ms if self.until.finite else None
        return None if limit_ms is None else self.began + limit_ms / 1000

    def _begin(
        self, stack: ExitStack
    ) -> _Ending | tuple[Starting, SparkSession, ControlStore, CaptureThread | None]:
        """Everything that comes before the loop: slow, and perhaps in vain. `stack` ends what it starts."""
        from truecut.runtime.control import open_control
        from truecut.spark.settings import refused_master

        unfit = refused_master(self.pipeline)
        if unfit is not None:
            raise TruecutError.of(unfit, ExitCode.UNFIT_ENVIRONMENT)
        if self.until.finite and (view := self._nothing_to_do()) is not None:
            from truecut.runtime.until import Outcome

            return _Ending(Outcome(reached=True), view)
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
        from truecut.runtime.capturing import CaptureThread, is_captured

        if not is_captured(self.pipeline):
            return None
        capture = CaptureThread(self.pipeline, owner=_own_name()).start()
        stack.callback(capture.stop)
        return capture

    def _nothing_to_do(self) -> View | None:
        """Where everything stands, if all of it is where it shall be. Spark is not needed to see that, nor
        that it has gone further already."""
        from truecut.runtime.certified import is_behind
        from truecut.runtime.dry_run import look_ahead, nothing_lacks, passed_by
        from truecut.runtime.run_report import View

        try:
            outlook = look_ahead(self.pipeline)
        except TruecutError as error:
            if error.fault.retry is not Retry.RETRYABLE:
                raise
            return None  # busy: the run waits for it
        if self.until.position is not None and (refusal := passed_by(outlook, self.until.position)):
            raise refusal
        if not nothing_lacks(outlook, self.until.position):
            return None
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

        spark = self.pipeline.spark
        return Starting(
            app=self.pipeline.name, master=spark.master, conf=spark.conf, scratch=self.pipeline.state
        )

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
    ) -> _Ending:
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
    ) -> tuple[_Ending, Run | None]:
        """With the tables of now. Returns how it ended, and what to go on with, if there is something."""
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
                open_source(pipeline.source, generation=g), pipeline.batch.deadline_ms
            ),
            control=control,
            trace=Trace.from_environment(),
            until=self._until_left(),
            accept=self.accept,
            on_view=self._update,
            on_turn=lambda: _require_alive(starting, capture),
            on_unseeded=lambda tables: None if backfill is None else backfill.want(tables),
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
        return _Ending(outcome, self.show.view), self._following(watch, runner)

    def _following(self, watch: TableWatch | None, runner: Runner) -> Run | None:
        """With the tables that have come, and the sinks that the file has by now: as it was carried out, for
        it may be broken at the moment. What was to be replaced was asked for when the run began."""
        from truecut.runtime.joining import with_sinks_now

        if watch is None or watch.joined is None:
            return None
        joined = with_sinks_now(watch.joined, runner.taken)
        return replace(self, pipeline=joined.pipeline, written=joined.file, accept=False)

    def _watch(self, runner: Runner) -> TableWatch | None:
        """Looks for tables that come, in a run without an end."""
        from truecut.runtime.joining import TableWatch

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

    def _update(self, view: View) -> None:
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


def _position(pipeline: Pipeline, text: str) -> Position:
    """A position in the source's own form, in the generation that the source has now."""
    from truecut.config.kinds import SOURCES
    from truecut.runtime.control_readonly import peek
    from truecut.sources.registry import survey_source

    try:
        place = SOURCES[pipeline.source.type].place(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--until-position") from None
    known = peek(pipeline.control, pipeline=pipeline.name)
    identity = survey_source(pipeline.source).observe().identity
    return Position(known.generation(identity, at_least=1), place)


@contextmanager
def _told(pipeline: Pipeline, listen: str | None) -> Iterator[Told | None]:
    """Listen, if the command or the file says so; the command wins."""
    from truecut.config.secret import Secret
    from truecut.listen_address import Address

    text = listen or pipeline.listen.address
    if text is None:
        yield None
        return
    from truecut.serving.listener import Told, listening

    given = os.environ.get(TOKEN_VARIABLE)
    token = pipeline.listen.token or (Secret(given) if given else None)
    address = Address.parse(text)
    if token is None and not address.loopback:
        remedy = f"set {TOKEN_VARIABLE}, or `listen_token` in the file"
        raise click.UsageError(f"--listen {address}: other machines can reach it; {remedy}")
    told = Told(pipeline.name)
    with listening(address, told, token=token) as bound:
        tell(_log, logging.INFO, f"listening on http://{bound}: /metrics, /healthz, /readyz")
        yield told


def _end(ending: _Ending, until: Until, signals: Signals, *, as_json: bool, seconds: float) -> None:
    """The summary, and what the shell is told."""
    from truecut.cli.output import print_json
    from truecut.cli.summary import lines, summary

    if ending.view is not None:
        document = summary(ending.view, ending.outcome, until, seconds=seconds)
        tell(_log, logging.INFO, f"ended: {document['outcome']}", position=ending.view.head)
        if as_json:
            print_json(document)
        else:
            click.echo("\n".join(lines(document)))
    if until.finite and not ending.outcome.reached:
        if signals.received:
            raise SystemExit(128 + signals.received[0])
        raise _could_not_follow(ending.outcome.stragglers)


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


def _could_not_follow(stragglers: Mapping[str, str]) -> TruecutError:
    lines = "".join(f"\n  {name}: {why}" for name, why in sorted(stragglers.items())[:20])
    more = f"\n  and {len(stragglers) - 20} more" if len(stragglers) > 20 else ""
    return TruecutError(
        "TC3010",
        f"{len(stragglers)} sink(s) could not follow:{lines}{more}",
        fix="See `truecut status FILE` for each of them.",
        exit_code=ExitCode.FAILED,
    )


def _prepare_state(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TruecutError(
            "TC5012",
            f"the state folder {state} cannot be made ({error.strerror})",
            fix="Choose another with `spec.state`, or make its parent writable.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        ) from error
