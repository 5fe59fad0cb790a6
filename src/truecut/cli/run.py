"""`truecut run`: carry changes to every sink until stopped, or until caught up."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from truecut.cli.one_run import Ending, Run
from truecut.cli.parameters import ADDRESS, DURATION, POSITION, pipeline_argument
from truecut.cli.signals import Interrupted, Signals, received_signals
from truecut.errors import ExitCode, TruecutError
from truecut.events import tell
from truecut.model.position import Position
from truecut.state_folder import writing_to

if TYPE_CHECKING:
    from truecut.config.settings import Pipeline
    from truecut.serving.listener import Told

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
        from truecut.cli.summary import HEAD
        from truecut.config.load import load
        from truecut.runtime.settled_tables import settled_patiently
        from truecut.runtime.until import Outcome, Until

        if log_file is not None:
            options = context.find_root().params
            set_up_logging(level=options["log_level"], form=options["log_format"], file=log_file)
        written = load(file, environ=os.environ)
        until = Until(
            until_caught_up, until_position if isinstance(until_position, Position) else None, timeout
        )
        finite = until.finite or until_position is not None
        deadline = began + timeout / 1000 if finite and timeout is not None else None
        end = partial(_end, written, finite, str(until_position or HEAD), signals, began, as_json=as_json)
        try:
            pipeline = signals.waiting_for(lambda: settled_patiently(written, time.sleep), deadline=deadline)
            if isinstance(until_position, str):
                place = partial(_position, pipeline, until_position)
                until = replace(until, position=signals.waiting_for(place, deadline=deadline))
        except Interrupted:
            tell(_log, logging.INFO, "stopped before it had begun")
            return end(Ending(Outcome(reached=False), None))
        except TimeoutError:
            late = {"source": "it has not answered in time"}
            return end(Ending(Outcome(reached=False, stragglers=late), None))
        with writing_to(pipeline.state):
            pipeline.state.mkdir(parents=True, exist_ok=True)
        with _told(pipeline, listen) as told, live_view(pipeline) as show:
            ending = Run(pipeline, until, accept, show, told, signals, began, written).run()
        return end(ending)


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


def _end(
    pipeline: Pipeline,
    finite: bool,
    until: str,
    signals: Signals,
    began: float,
    ending: Ending,
    *,
    as_json: bool,
) -> None:
    """The summary, and what the shell is told."""
    from truecut.cli.output import print_json
    from truecut.cli.summary import lines, summary
    from truecut.runtime.run_report import View

    view = View(pipeline) if ending.view is None else ending.view
    seconds = time.monotonic() - began
    document = summary(view, ending.outcome, until if finite else None, seconds=seconds)
    tell(_log, logging.INFO, f"ended: {document['outcome']}", position=view.head)
    if as_json:
        print_json(document)
    else:
        click.echo("\n".join(lines(document)))
    if finite and not ending.outcome.reached:
        if signals.received:
            raise SystemExit(128 + signals.received[0])
        raise _could_not_follow(ending.outcome.stragglers)


def _could_not_follow(stragglers: Mapping[str, str]) -> TruecutError:
    lines = "".join(f"\n  {name}: {why}" for name, why in sorted(stragglers.items())[:20])
    more = f"\n  and {len(stragglers) - 20} more" if len(stragglers) > 20 else ""
    return TruecutError(
        "TC3010",
        f"{len(stragglers)} sink(s) could not follow:{lines}{more}",
        fix="See `truecut status FILE` for each of them.",
        exit_code=ExitCode.FAILED,
    )
