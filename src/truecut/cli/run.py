"""`truecut run`: carry changes to every sink until stopped, or until caught up."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from truecut.cli.parameters import DURATION, POSITION, pipeline_argument
from truecut.cli.signals import stopped_by_signals
from truecut.errors import ExitCode, Retry, TruecutError
from truecut.model.position import Position

if TYPE_CHECKING:
    from truecut.sources.contract import Source


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
def command(
    file: Path, until_caught_up: bool, until_position: Position | None, timeout: int | None, accept: bool
) -> None:
    """Run the pipeline in FILE.

    Runs until stopped with Ctrl-C, which stops cleanly; the next run resumes. Several runners of one
    pipeline share its sinks between them.
    """
    if until_caught_up and until_position is not None:
        raise click.UsageError("--until-caught-up and --until-position exclude each other")
    from truecut.cli.live import live_view
    from truecut.config.load import load
    from truecut.runtime.control import open_control
    from truecut.runtime.ending import Until
    from truecut.runtime.runner import Runner
    from truecut.runtime.trace import Trace
    from truecut.sources.ducklake import DuckLakeSource
    from truecut.spark.session import open_session

    pipeline = load(file, environ=os.environ)
    _prepare_state(pipeline.state)
    control = open_control(pipeline.control, pipeline=pipeline.name)
    with live_view(pipeline) as show:
        show.note("starting Spark")
        _look_at(DuckLakeSource(pipeline.source.address, generation=1))
        spark = open_session(
            app=pipeline.name,
            master=pipeline.spark.master,
            conf=pipeline.spark.conf,
            scratch=pipeline.state,
        )
        runner = Runner(
            pipeline,
            name=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}",
            spark=spark,
            open_source=lambda g: DuckLakeSource(pipeline.source.address, generation=g),
            control=control,
            trace=Trace.from_environment(),
            until=Until(caught_up=until_caught_up, position=until_position, timeout_ms=timeout),
            accept=accept,
            on_view=show.update,
        )
        with stopped_by_signals(runner.stop) as received:
            outcome = runner.run()
        spark.stop()
    control.close()
    finite = until_caught_up or until_position is not None
    if received and finite and not outcome.reached:
        raise SystemExit(128 + received[0])
    if finite and not outcome.reached:
        raise _could_not_follow(outcome.stragglers)


def _look_at(source: Source) -> None:
    """A source that cannot be read at all is better said before Spark starts; a busy one is waited for."""
    try:
        source.observe()
    except TruecutError as error:
        if error.fault.retry is not Retry.RETRYABLE:
            raise


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
