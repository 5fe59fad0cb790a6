"""`truecut verify`: does every copy equal its source?"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from truecut.cli.parameters import pipeline_argument
from truecut.cli.pause import require_known
from truecut.cli.signals import Interrupted, Signals, received_signals
from truecut.errors import ExitCode

if TYPE_CHECKING:
    from truecut.config.settings import Level, Pipeline
    from truecut.model.position import Position
    from truecut.runtime.checked import Checked
    from truecut.runtime.repair import Mend, Mended

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
    type=click.Choice(["files", "source", "sink", "log"]),
    default="sink",
    show_default=True,
    help="files: certificates and their evidence. source: and the source. sink: and the copies. "
    "log: files, and the source's log by another reader.",
)
@click.option("--repair", is_flag=True, help="Make the rows that differ what the source holds; verify again.")
@click.option("--dry-run", is_flag=True, help="With --repair: say what it would do, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.verify/v1) on stdout.")
def command(
    file: Path,
    table: str | None,
    sink: str | None,
    level: Level | Literal["log"],
    repair: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compare every copy of FILE with its source, row by row, at the position where the copy stands.

    Both are read by Spark as digests, while changes go on. Where they differ, the first key is named. Where
    the pipeline issues certificates, these are checked, too, and both sides are compared with what they
    claim. The exit code is 0 when all are equal, 4 when one differs, 5 when one could not be compared.

    --repair applies exactly the rows that differ, in one transaction of the sink with its cursor, and looks
    again; the exit code is that of the second look. Only mirrors are repaired, and not beside a live run.
    """
    from truecut.cli.output import print_json
    from truecut.config.load import load
    from truecut.runtime.checked import document, said
    from truecut.runtime.settled_tables import settled

    if repair and level != "sink":
        raise click.UsageError("--repair needs --level sink: only V5 reads the copies")
    if dry_run and not repair:
        raise click.UsageError("--dry-run goes with --repair")
    with received_signals() as signals:  # from here to the verdict, whatever it waits for
        written = load(file, environ=os.environ)
        try:
            pipeline = signals.waiting_for(lambda: settled(written))
            require_known("sink", sink, [one.name for one in pipeline.sinks])
            require_known("table", table, [str(one.name) for one in pipeline.tables])
            mend: Mend = ("preview" if dry_run else "carry out") if repair else "no"
            compared = level not in ("files", "log")
            live, mended = _verified(pipeline, table, sink, mend, signals) if compared else ([], [])
            checks = signals.waiting_for(lambda: _checks(pipeline, table, sink, level, live))
        except Interrupted:
            raise SystemExit(128 + signals.received[0]) from None
    told = document(checks) | ({"repairs": [one.document() for one in mended]} if repair else {})
    if as_json:
        print_json(told)
    else:
        lines = [*(_mended(one) for one in mended), *_lines(checks)]
        click.echo("\n".join([*lines, f"verdict: {told['verdict']}", *(f"  {one}" for one in said(checks))]))
    raise SystemExit(_EXITS[told["verdict"]])


def _checks(
    pipeline: Pipeline,
    table: str | None,
    sink: str | None,
    level: Level | Literal["log"],
    live: Sequence[Checked],
) -> list[Checked]:
    """With what Spark has compared, what the files say and, if it was asked for, the source's log."""
    from truecut.runtime.checked import asked_by

    if level == "log":
        return _log(pipeline, table, sink)
    checks = [*_files(pipeline, table, sink, level), *asked_by(level, live)]
    _remember(pipeline, table, sink, level, checks)
    return checks


def _remember(
    pipeline: Pipeline, table: str | None, sink: str | None, level: Level, checks: Sequence[Checked]
) -> None:
    """For `status`: also what a run has found wrong may pass by now."""
    from truecut.runtime.verified import copies_of
    from truecut.runtime.verifier import remember

    copies = copies_of(pipeline)
    wanted = [(t, s) for t, s in copies if (table or t, sink or s) == (t, s)]
    runner, at_ms = f"verify-{secrets.token_hex(4)}", time.time_ns() // 1_000_000
    remember(pipeline, checks, level=level, wanted=wanted, runner=runner, at_ms=at_ms)


def _files(pipeline: Pipeline, table: str | None, sink: str | None, level: str) -> list[Checked]:
    """V0 to V2, where certificates are issued; whoever asks for them alone is told if they are not."""
    from truecut.runtime.certificate_files import examined
    from truecut.runtime.checked import Checked

    if pipeline.certificate is None:
        why = "the pipeline issues no certificates"
        return [] if level == "sink" else [Checked("", "", "unknown", why, level="V0")]
    return about(table, sink, examined(pipeline.certificate.path))


def _log(pipeline: Pipeline, table: str | None, sink: str | None) -> list[Checked]:
    """V0 to V3: the files, and each copy's log, told once more."""
    from truecut.runtime.witness import checked

    return about(table, sink, checked(pipeline, whole=table is None and sink is None))


def about(table: str | None, sink: str | None, checks: Sequence[Checked]) -> list[Checked]:
    """Those of one table or sink; what is said of the certificates as a whole is said of every copy."""
    return [
        check
        for check in checks
        if not check.table or ((table or check.table) == check.table and (sink or check.sink) == check.sink)
    ]


def _verified(
    pipeline: Pipeline, table: str | None, sink: str | None, mend: Mend, signals: Signals
) -> tuple[list[Checked], list[Mended]]:
    """Whatever is under way when a signal comes is left: what is read needs no tidying, and a repair that has
    not committed has no effect."""
    from truecut.cli.bar import bar_on
    from truecut.cli.output import stderr_console
    from truecut.runtime.capture_start import is_captured
    from truecut.runtime.claims import frozen_claims
    from truecut.runtime.looking_over import ARRIVAL_S
    from truecut.runtime.repair import verified
    from truecut.runtime.verification import Verification, reread_of
    from truecut.spark.session import Starting

    tables = {table} if table else {str(one.name) for one in pipeline.tables}
    sinks = {sink} if sink else {one.name for one in pipeline.sinks}
    live = is_captured(pipeline) and signals.waiting_for(lambda: _is_running(pipeline))
    with ExitStack() as stack:
        reread = None if live else signals.waiting_for(lambda: stack.enter_context(reread_of(pipeline)))
        if reread is not None and reread.frontier is not None:
            bring_up(pipeline, reread.frontier, signals)
        bar = stack.enter_context(bar_on(stderr_console(), "starting Spark"))
        starting = Starting.of(pipeline)
        stack.callback(starting.end)
        signals.before_leaving(starting.kill)

        def verify() -> tuple[list[Checked], list[Mended]]:
            session = starting.session(bar.step)
            bar.joined(session)
            try:
                with ExitStack() as inside:
                    claims = frozen_claims(pipeline, inside) if live else None  # before the place is told
                    found = reread or inside.enter_context(reread_of(pipeline))
                    asked = Verification(
                        pipeline,
                        session,
                        found,
                        frozenset(tables),
                        frozenset(sinks),
                        on_step=bar.step,
                        claims=claims,
                        wait_s=ARRIVAL_S if claims is not None else 0,
                    )
                    return verified(asked, mend)
            finally:
                session.stop()

        try:
            return signals.waiting_for(verify)
        except Interrupted:
            starting.kill()
            raise


def _is_running(pipeline: Pipeline) -> bool:
    from truecut.runtime.control_readonly import peek_reports

    return peek_reports(pipeline.control, pipeline=pipeline.name).running


def bring_up(pipeline: Pipeline, frontier: Position, signals: Signals) -> None:
    """A server can be read now only: the sinks are brought to the very place that it is read at. One that
    cannot follow is told of by its copies."""
    from truecut.cli.live import live_view
    from truecut.cli.one_run import Run
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


def _mended(one: Mended) -> str:
    what, rows = f"{one.table} at {one.sink}", f"{one.difference.rows:,}"
    keys = "; ".join(_key(told["key"]) for told in one.keys)
    told = f"{rows} {'row' if one.difference.rows == 1 else 'rows'} of {what}"
    if one.outcome == "repaired":
        return f"✓ repaired {told}"
    if one.outcome == "would_repair":
        return f"! would repair {told}: {keys}"
    return f"✗ did not repair {what}: {one.detail}"


def _key(key: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in (key or {"key": "?"}).items())


def _sentence(check: Checked) -> str:
    place = f" (at {check.frontier})" if check.frontier is not None else ""
    if not check.witnesses:
        return f"{check.detail}{place}"
    first = check.witnesses[0]
    return f"{_key(first['key'])} {_AT_SINK[first['at_sink']]}; {check.detail}{place}"


_AT_SINK = {"missing": "is missing", "extra": "should not be there", "differs": "differs"}
