"""`truecut status`: where everything stands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truecut.cli.parameters import DURATION, pipeline_argument
from truecut.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

COMPLAINTS_MAX = 20
_WIDTH = 10_000  # a place is read whole or not at all: a row that is longer than a line goes on in the next


@click.command()
@pipeline_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.status/v1) on stdout.")
@click.option(
    "--max-lag",
    type=DURATION,
    metavar="5m",
    help="Exit 1 when a sink lags more or nobody knows, or a copy is held, failed, was never seeded, or does "
    "not pass verification.",
)
def command(file: Path, as_json: bool, max_lag: int | None) -> None:
    """Show where the source, every sink and every table of FILE stand. Nothing is written anywhere.

    While the pipeline runs this is what its runners report; when it does not, the source is looked at.
    """
    from truecut.cli.output import print_json
    from truecut.config.load import load
    from truecut.runtime.capture_report import captured
    from truecut.runtime.certified import certified_upto
    from truecut.runtime.control_readonly import peek_reports
    from truecut.runtime.health import complaints
    from truecut.runtime.pauses import read_pauses
    from truecut.runtime.settled_tables import settled_or_not
    from truecut.runtime.source_standing import look
    from truecut.runtime.status_document import status_document
    from truecut.runtime.verified import kept_of

    pipeline, _ = settled_or_not(load(file, environ=os.environ))
    reports = peek_reports(pipeline.control, pipeline=pipeline.name)
    standing = None if reports.running else look(pipeline, reports)
    document = status_document(
        pipeline,
        reports,
        read_pauses(pipeline.state),
        standing,
        capture=captured(pipeline),
        certified=certified_upto(pipeline),
        verified=kept_of(pipeline),
    )
    if as_json:
        print_json(document)
    else:
        _print(document)
    if max_lag is not None and (found := complaints(document, lag_max_ms=max_lag)):
        _complain(found)
        raise SystemExit(ExitCode.FAILED)


def _complain(found: Sequence[str]) -> None:
    more = f"; and {len(found) - COMPLAINTS_MAX:,} more" if len(found) > COMPLAINTS_MAX else ""
    click.echo(f"not healthy: {'; '.join(found[:COMPLAINTS_MAX])}{more}", err=True)


def _print(document: Mapping[str, Any]) -> None:
    from rich.text import Text

    from truecut.cli.output import stdout_console

    console = stdout_console()
    console.width = _WIDTH
    source = document["source"]
    where = f"source at {source['head']}" if source["head"] else "source not seen yet"
    console.print(Text(f"{document['pipeline']}: {document['state']}; {where}"))
    if document["restart_to_apply"]:
        console.print(Text(f"restart to apply: {', '.join(document['restart_to_apply'])}", style="yellow"))
    if source["captured_by"] is not None:
        console.print(Text(_capture(source)))
    _print_error(console, "source", source["error"])
    _print_table(console, ("sink", "state", "cursor", "lag", "rows"), map(_sink, document["sinks"]))
    _print_table(console, ("table", "state", "rows seeded", "rows unrouted"), map(_table, document["tables"]))
    if any(copy["certified_upto"] or copy["verification"] for copy in document["copies"]):
        names = ("copy", "replicated up to", "certified up to", "verified up to", "verified at")
        _print_table(console, names, map(_copy, document["copies"]))
    for copy in document["copies"]:
        if (copy["verification"] or {}).get("failed"):
            told = f"{copy['table']} at {copy['sink']} does not pass verification"
            console.print(Text(f"{told}: {copy['verification']['detail']}", style="red"))
    for copy in document["copies"]:
        if copy["waits_for"] is not None:
            console.print(Text(f"{copy['table']} at {copy['sink']} waits: {copy['waits_for']}"))
    for sink in document["sinks"]:
        _print_error(console, sink["name"], sink["error"])
        if sink["note"] is not None:
            console.print(Text(f"{sink['name']}: {sink['note']}"))


def _print_table(console: Console, names: Sequence[str], rows: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(Text, row))  # names are data: no markup
    console.print(table)


def _capture(source: Mapping[str, Any]) -> str:
    kept, grows, lost_s = (
        source[name] for name in ("retained_bytes", "retained_bytes_per_s", "slot_lost_in_s")
    )
    held = "" if kept is None else f"; the source keeps {kept:,} bytes of its log for it"
    pace = f", {grows:,.0f} more each second" if grows is not None and grows > 0 else ""
    lost = "" if lost_s is None else f": at this pace it lets go of the slot in {lost_s / 3600:.1f} h"
    gap = "" if source["gap"] is None else f"; it began anew: {source['gap']}"
    waits = "" if source["waits_for"] is None else f"; it waits: {source['waits_for']}"
    released = (
        "nothing released yet" if source["released"] is None else f"released up to {source['released']}"
    )
    return f"capture: {source['captured_by']}, {released}{held}{pace}{lost}{gap}{waits}"


def _sink(sink: Mapping[str, Any]) -> list[str]:
    lag = "unknown" if sink["lag_ms"] is None else f"{sink['lag_ms'] / 1000:.1f} s"
    return [sink["name"], sink["state"], sink["cursor"] or "", lag, f"{sink['rows_applied']:,}"]


def _table(table: Mapping[str, Any]) -> list[str]:
    return [table["name"], table["state"], f"{table['rows_backfilled']:,}", f"{table['rows_unrouted']:,}"]


def _copy(copy: Mapping[str, Any]) -> list[str]:
    places = [copy[f"{what}_upto"] or "" for what in ("replicated", "certified", "verified")]
    return [f"{copy['table']} at {copy['sink']}", *places, copy["verified_at"] or ""]


def _print_error(console: Console, who: str, error: Mapping[str, Any] | None) -> None:
    from rich.text import Text

    if error is not None:
        console.print(Text(f"{who}: {error['code']} {error['message']}", style="red"))
        console.print(Text(f"  fix: {error['fix']}"))
