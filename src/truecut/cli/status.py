"""`truecut status`: where everything stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from truecut.cli.parameters import DURATION, pipeline_argument
from truecut.errors import ExitCode


@click.command()
@pipeline_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.status/v1) on stdout.")
@click.option("--max-lag", type=DURATION, metavar="5m", help="Exit 1 when a sink lags more, or is unknown.")
def command(file: Path, as_json: bool, max_lag: int | None) -> None:
    """Show where the source, every sink and every table of FILE stand."""
    from truecut.cli.output import print_json
    from truecut.config.load import load
    from truecut.runtime.control import open_control
    from truecut.runtime.pauses import read_pauses
    from truecut.runtime.status import status_document

    pipeline = load(file, environ=os.environ)
    control = open_control(pipeline.control, pipeline=pipeline.name)
    document = status_document(pipeline, control.reports(), read_pauses(pipeline.state))
    control.close()
    if as_json:
        print_json(document)
    else:
        _print(document)
    if max_lag is not None and any(_lags(sink, max_lag) for sink in document["sinks"]):
        raise SystemExit(ExitCode.FAILED)


def _lags(sink: dict[str, Any], max_lag_ms: int) -> bool:
    if sink["state"] in ("retired", "detached"):
        return False
    return sink["lag_ms"] is None or sink["lag_ms"] > max_lag_ms


def _print(document: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from truecut.cli.output import stdout_console

    console = stdout_console()
    source = document["source"]
    console.print(f"{document['pipeline']}: {document['state']}; source at {source['head'] or 'unknown'}")
    if source["error"]:
        console.print(f"[red]source: {escape(source['error']['message'])}[/red]")
    table = Table(box=None, pad_edge=False)
    for name in ("sink", "state", "cursor", "lag", "rows"):
        table.add_column(name)
    for sink in document["sinks"]:
        lag = "unknown" if sink["lag_ms"] is None else f"{sink['lag_ms'] / 1000:.1f} s"
        table.add_row(sink["name"], sink["state"], sink["cursor"] or "", lag, f"{sink['rows_applied']:,}")
    console.print(table)
    for sink in document["sinks"]:
        if sink["error"]:
            error = sink["error"]
            console.print(
                f"[red]{escape(sink['name'])}: {error['code']} {escape(error['message'])}[/red]"
                f"\n  fix: {escape(error['fix'])}"
            )
