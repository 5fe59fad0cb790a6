"""`truecut backfill`: read a table again while changes go on.

Promises: the request is kept until every sink shows it, whatever becomes of this command; a runner that is
there answers it, and where there is none the command runs the pipeline itself, until it is answered.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truecut.cli.parameters import DURATION, pipeline_argument
from truecut.cli.pause import require_known
from truecut.cli.signals import Interrupted, Signals, received_signals
from truecut.errors import ExitCode, TruecutError
from truecut.events import tell

if TYPE_CHECKING:
    from truecut.config.settings import Pipeline
    from truecut.runtime.control import Reports
    from truecut.runtime.pauses import Request
    from truecut.runtime.until import Outcome

SCHEMA = "truecut.backfill/v1"
LOOK_S = 0.5  # between two looks at what the runners tell
TELL_S = 30.0  # between two lines of the log
_log = logging.getLogger(__name__)


@click.command()
@pipeline_argument
@click.option("--table", required=True, metavar="T", help="The table that is read again.")
@click.option("--sink", metavar="S", help="Only for this sink; left out: for every sink that has the table.")
@click.option("--timeout", type=DURATION, metavar="10m", help="Wait no longer (exit 1); the request stays.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON (truecut.backfill/v1) on stdout.")
def command(file: Path, table: str, sink: str | None, timeout: int | None, as_json: bool) -> None:
    """Read a table of FILE again while changes go on.

    A mirror is replaced in one step once the table was read; an append table gets `read` rows beside what it
    has. The other tables and sinks go on. The pipeline may run or not: when nobody runs it, this does, until
    the table was read. The request is kept until then: if this command is stopped, the next run goes on.
    """
    began = time.monotonic()
    deadline = None if timeout is None else began + timeout / 1000
    with received_signals() as signals:
        from truecut.runtime.pauses import backfill

        try:
            pipeline = signals.waiting_for(lambda: _checked(file, table, sink), deadline=deadline)
        except Interrupted:
            tell(_log, logging.INFO, "stopped before anything was asked for")
            raise SystemExit(128 + signals.received[0]) from None
        except TimeoutError:
            raise _not_asked(table) from None
        pipeline.state.mkdir(parents=True, exist_ok=True)
        asked = backfill(pipeline.state, table=table, sink=sink)  # from now on, whatever becomes of us
        try:
            outcome = _wait(pipeline, asked, signals, began, deadline)
        except Interrupted:
            tell(_log, logging.INFO, f"stopped waiting; {table} is read again all the same, by the next run")
            raise SystemExit(128 + signals.received[0]) from None
        except TimeoutError:
            raise _not_read(table, {"source": "it was not read in time"}) from None
        if signals.received and not outcome.reached:
            raise SystemExit(128 + signals.received[0])
    _tell(pipeline, asked, outcome, as_json=as_json, seconds=time.monotonic() - began)


def _checked(file: Path, table: str, sink: str | None) -> Pipeline:
    """The pipeline, once we know that it has such a copy, which may be read."""
    from truecut.config.load import load
    from truecut.runtime.settled_tables import settled_patiently

    pipeline = settled_patiently(load(file, environ=os.environ), time.sleep)
    require_known("table", table, [str(one.name) for one in pipeline.tables])
    require_known("sink", sink, [one.name for one in pipeline.sinks])
    having = [one.name for one in pipeline.sinks if table in one.modes]
    if sink is not None:
        require_known(f"sink of {table}", sink, having)
    settings = next(one for one in pipeline.tables if str(one.name) == table)
    if settings.backfill == "none":
        raise TruecutError(
            "TC1067",
            f"{table} says `backfill: none`: only its changes are wanted",
            fix="Take that out of the pipeline file, then ask again.",
            exit_code=ExitCode.WRONG_INPUT,
        )
    return pipeline


def _wait(
    pipeline: Pipeline, asked: Request, signals: Signals, began: float, deadline: float | None
) -> Outcome:
    """Until it is answered: by whoever runs the pipeline, otherwise by ourselves."""
    from truecut.runtime.control_readonly import peek_reports
    from truecut.runtime.pauses import read_pauses
    from truecut.runtime.until import Outcome

    with _progress(asked) as show:
        while True:
            reports = peek_reports(pipeline.control, pipeline=pipeline.name)
            if asked not in read_pauses(pipeline.state).requests:
                reports = peek_reports(pipeline.control, pipeline=pipeline.name)
                held = _held(pipeline, asked, reports)
                return Outcome(reached=not held, stragglers=held)
            if not reports.running:
                break
            show(_standing(asked, reports))
            _rest(signals, deadline)
    return _run(pipeline, asked, signals, began, deadline)


def _rest(signals: Signals, deadline: float | None) -> None:
    if signals.received:
        raise Interrupted
    if deadline is not None and time.monotonic() > deadline:
        raise TimeoutError
    time.sleep(LOOK_S)


def _run(
    pipeline: Pipeline, asked: Request, signals: Signals, began: float, deadline: float | None
) -> Outcome:
    """Nobody runs the pipeline: we do, until every sink shows the request."""
    from truecut.cli.live import live_view
    from truecut.cli.one_run import Run
    from truecut.runtime.until import Until

    left_ms = None if deadline is None else max(0, int((deadline - began) * 1000))
    until = Until(timeout_ms=left_ms, answer=asked)
    with live_view(pipeline) as show:
        return Run(pipeline, until, False, show, None, signals, began).run().outcome


def _held(pipeline: Pipeline, asked: Request, reports: Reports) -> dict[str, str]:
    """What has answered by being held."""
    from truecut.runtime.requests import told_of

    told = told_of(reports, asked.table)
    names = [one.name for one in pipeline.sinks if asked.sink in (None, one.name) and one.name in told]
    return {
        name: str((told[name].get("error") or {}).get("message", "it is held"))
        for name in names
        if told[name].get("status") == "held"
    }


# --- what is told -------------------------------------------------------------------------------------


def _standing(asked: Request, reports: Reports) -> str:
    """How far it is, as the runners say."""
    from truecut.runtime.requests import told_of

    waits = [one["waits_for"] for one in told_of(reports, asked.table).values() if one.get("waits_for")]
    return str(waits[0]) if waits else "the running pipeline reads it"


class _Told:
    """Lines of the log: not too often, and none twice."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._last, self._last_at = "", -TELL_S

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if text != self._last and now - self._last_at >= TELL_S:
            tell(_log, logging.INFO, f"{self._table}: {text}")
            self._last, self._last_at = text, now


@contextmanager
def _progress(asked: Request) -> Iterator[Callable[[str], None]]:
    """A line that is renewed on a terminal; elsewhere a line of the log now and then."""
    from truecut.cli.output import stderr_console

    console = stderr_console()
    if console.is_terminal:
        with console.status(f"{asked.table}: asked for") as status:
            yield lambda text: status.update(f"{asked.table}: {text}")
        return
    yield _Told(asked.table)


def _tell(pipeline: Pipeline, asked: Request, outcome: Outcome, *, as_json: bool, seconds: float) -> None:
    from truecut.cli.output import print_json

    sinks = [
        one.name for one in pipeline.sinks if asked.table in one.modes and asked.sink in (None, one.name)
    ]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "pipeline": pipeline.name,
        "table": asked.table,
        "sinks": sinks,
        "outcome": "reached" if outcome.reached else "not reached",
        "seconds": round(seconds, 1),
        "stragglers": dict(outcome.stragglers),
    }
    if as_json:
        print_json(document)
    elif outcome.reached:
        click.echo(f"{asked.table} was read again for {', '.join(sinks)} in {seconds:.1f} s")
    if not outcome.reached:
        raise _not_read(asked.table, outcome.stragglers)


def _not_asked(table: str) -> TruecutError:
    return TruecutError(
        "TC3091",
        f"the source has not answered in time; nothing was asked for {table}",
        fix="Give it more time with --timeout, or see `truecut doctor FILE`.",
        exit_code=ExitCode.FAILED,
    )


def _not_read(table: str, why: Mapping[str, str]) -> TruecutError:
    lines = "".join(f"\n  {name}: {reason}" for name, reason in sorted(why.items())[:20])
    return TruecutError(
        "TC3090",
        f"{table} was not read again everywhere:{lines}",
        fix="The request stays until it is answered: the next run goes on. See `truecut status FILE`.",
        exit_code=ExitCode.FAILED,
    )
