"""`truecut verify`: does every copy equal its source?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from truecut.cli.parameters import pipeline_argument
from truecut.cli.pause import require_known
from truecut.cli.signals import Interrupted, Signals, received_signals
from truecut.errors import ExitCode

if TYPE_CHECKING:
    from truecut.config.settings import Pipeline
    from truecut.model.position import Position
    from truecut.runtime.verification import Checked
    from truecut.spark.session import Starting

_EXITS = {
    "pass": ExitCode.OK,
    "fail": ExitCode.VERIFICATION_FAILED,
    "unknown": ExitCode.VERIFICATION_UNKNOWN,
}
_MARKS = {"pass": "✓", "fail": "✗", "unknown": "?"}


@click.command()
@pipeline_argument
@click.option("--table", metavar="T", help="Only this table.")
@click.option("--sink", metavar="S", help="Only this sink.")
@click.option(
    "--level",
    type=click.Choice(["files", "source", "sink"]),
    default="sink",
    show_default=True,
    help="files: certificates and their evidence. source: and the source. sink: and the copies.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.verify/v1) on stdout.")
def command(file: Path, table: str | None, sink: str | None, level: str, as_json: bool) -> None:
    """Compare every copy of FILE with its source, row by row, at the position where the copy stands.

    Both are read by Spark as digests, while changes go on. Where they differ, the first key is named. Where
    the pipeline issues certificates, these are checked, too, and both sides are compared with what they
    claim. The exit code is 0 when all are equal, 4 when one differs, 5 when one could not be compared.
    """
    from truecut.cli.output import print_json
    from truecut.config.load import load
    from truecut.runtime.tables import settled
    from truecut.runtime.verification import document

    pipeline = settled(load(file, environ=os.environ))
    require_known("sink", sink, [one.name for one in pipeline.sinks])
    require_known("table", table, [str(one.name) for one in pipeline.tables])
    live = [] if level == "files" else _verified(pipeline, table, sink)
    checks = [*_files(pipeline, table, sink, level), *asked_by(level, live)]
    told = document(checks)
    if as_json:
        print_json(told)
    else:
        click.echo("\n".join(_lines(checks)))
    raise SystemExit(_EXITS[told["verdict"]])


def _files(pipeline: Pipeline, table: str | None, sink: str | None, level: str) -> list[Checked]:
    """V0 to V2, where certificates are issued; whoever asks for them alone is told if they are not."""
    from truecut.runtime.certificate_files import examined
    from truecut.runtime.verification import Checked

    if pipeline.certificate is None:
        why = "the pipeline issues no certificates"
        return [] if level == "sink" else [Checked("", "", "unknown", why, level="V0")]
    return about(table, sink, examined(pipeline.certificate.path))


def about(table: str | None, sink: str | None, checks: Sequence[Checked]) -> list[Checked]:
    """Those of one table or sink; what is said of the certificates as a whole is said of every copy."""
    return [
        check
        for check in checks
        if not check.table or ((table or check.table) == check.table and (sink or check.sink) == check.sink)
    ]


def asked_by(level: str, live: Sequence[Checked]) -> list[Checked]:
    """`source` leaves out what V5 says beside a V4. A copy without one was compared with its source, or could
    not be: that is kept, or its trouble would pass."""
    told = {(check.table, check.sink) for check in live if check.level == "V4"}
    return [
        check
        for check in live
        if level == "sink" or check.level == "V4" or (check.table, check.sink) not in told
    ]


def _verified(pipeline: Pipeline, table: str | None, sink: str | None) -> list[Checked]:
    """Whatever is under way when a signal comes is left: nothing is written, so nothing is to be tidied."""
    from truecut.cli.output import stderr_console
    from truecut.runtime.certified import claims_of
    from truecut.runtime.verification import Verification, reread_of

    tables = {table} if table else {str(one.name) for one in pipeline.tables}
    sinks = {sink} if sink else {one.name for one in pipeline.sinks}
    with received_signals() as signals, ExitStack() as stack:
        reread = stack.enter_context(reread_of(pipeline))
        if reread.frontier is not None and not _is_running(pipeline):
            _bring_up(pipeline, reread.frontier, signals)
        status = stack.enter_context(stderr_console().status("starting Spark"))
        starting = _starting(pipeline)
        stack.callback(starting.end)
        signals.before_leaving(starting.kill)

        def verify() -> list[Checked]:
            session = starting.session(status.update)
            asked = Verification(
                pipeline, session, reread, frozenset(tables), frozenset(sinks), on_step=status.update
            )
            try:
                return claims_of(pipeline, asked).run()
            finally:
                session.stop()

        try:
            return signals.waiting_for(verify)
        except Interrupted:
            starting.kill()
            raise SystemExit(128 + signals.received[0]) from None


def _starting(pipeline: Pipeline) -> Starting:
    from truecut.spark.session import Starting

    spark = pipeline.spark
    return Starting(app=pipeline.name, master=spark.master, conf=spark.conf, scratch=pipeline.state)


def _is_running(pipeline: Pipeline) -> bool:
    from truecut.runtime.control_readonly import peek_reports

    return peek_reports(pipeline.control, pipeline=pipeline.name).running


def _bring_up(pipeline: Pipeline, frontier: Position, signals: Signals) -> None:
    """A server can be read now only: the sinks are brought to the very place that it is read at. One that
    cannot follow is told of by its copies."""
    from truecut.cli.live import live_view
    from truecut.cli.run import Run
    from truecut.runtime.until import Until

    until = Until(caught_up=False, position=frontier, timeout_ms=None)
    with live_view(pipeline) as show:
        Run(pipeline, until, False, show, None, signals, time.monotonic()).run()
    if signals.received:
        raise SystemExit(128 + signals.received[0])


def _lines(checks: Sequence[Checked]) -> Iterator[str]:
    for check in checks:
        what = f"{check.table} at {check.sink}" if check.table else "certificates"
        yield f"{_MARKS[check.verdict]} {check.level} {what}: {_sentence(check)}"
    if not checks:
        yield "? nothing to verify"


def _sentence(check: Checked) -> str:
    place = f" (at {check.frontier})" if check.frontier is not None else ""
    if not check.witnesses:
        return f"{check.detail}{place}"
    first = check.witnesses[0]
    key = ", ".join(f"{name}={value}" for name, value in (first["key"] or {"key": "?"}).items())
    return f"{key} {_AT_SINK[first['at_sink']]}; {check.detail}{place}"


_AT_SINK = {"missing": "is missing", "extra": "should not be there", "differs": "differs"}
