"""`truecut plan`: what `run` would do now, without doing any of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from truecut.cli.parameters import pipeline_argument
from truecut.errors import ExitCode, TruecutError

LINES_MAX = 10


@click.command()
@pipeline_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.plan/v1) on stdout.")
def command(file: Path, as_json: bool) -> None:
    """Show what `run` would do now with the pipeline in FILE. Nothing is written anywhere.

    Tables and their sizes, what would be created, which copies would be read whole and why, what is
    outstanding at each sink. The exit code is 3 when source, control store or a sink could not be looked at.
    """
    from truecut.cli.output import print_json
    from truecut.config.load import load
    from truecut.runtime.plan_document import plan_document
    from truecut.runtime.settled_tables import settled

    written = load(file, environ=os.environ)
    try:
        document = plan_document(settled(written))
    except TruecutError as error:
        if error.exit_code is not ExitCode.FAILED:
            raise
        raise TruecutError.of(error.fault, ExitCode.UNFIT_ENVIRONMENT) from None
    if as_json:
        print_json(document)
    else:
        for line in _lines(document):
            click.echo(line)
    if any(sink["error"] for sink in document["sinks"]):
        raise SystemExit(ExitCode.UNFIT_ENVIRONMENT)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from truecut.config.kinds import SOURCES

    source = document["source"]
    yield f"{document['pipeline']}: source {source['type']}, history {source['oldest']} to {source['head']}"
    for table in document["tables"]:
        error = table["error"]
        size = _facts(table) if error is None else _error(error)
        unrouted = document["unrouted"].get(table["name"], 0)
        left = f"; {unrouted:,} rows so far matched no sink" if unrouted else ""
        yield f"  table {table['name']}: {size}{left}"
    if document["restart_to_apply"]:
        names = ", ".join(document["restart_to_apply"])
        yield f"the run that goes on knows an older file; restart to apply: {names}"
    yield from _section("create", [_creation(item) for item in document["creates"]])
    yield from _section("read whole", [_seed(item) for item in document["seeds"]])
    yield from _section("stop", [_stop(item) for item in document["stops"]])
    yield from _section("retire (data stays)", [f"sink {name}" for name in document["retires"]])
    yield from _sinks(document["sinks"], SOURCES[source["type"]].words.commits)


def _facts(table: dict[str, Any]) -> str:
    rows = "rows not counted" if table["rows"] is None else f"{table['rows']:,} rows"
    units = "" if table["units"] is None else f", {table['units']:,} unit{'s' * (table['units'] > 1)}"
    without = f"; without {', '.join(table['left_out'])}, which is computed" if table["left_out"] else ""
    return f"{rows}, {_size(table['bytes'])}{units}{without}"


def _section(title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield f"would {title}: {len(items):,}"
        yield from (f"  {item}" for item in items[:LINES_MAX])
        if len(items) > LINES_MAX:
            yield f"  and {len(items) - LINES_MAX:,} more (--json lists all)"


def _sinks(sinks: Sequence[dict[str, Any]], commits: str) -> Iterator[str]:
    actions = Counter(sink["action"] for sink in sinks)
    yield "sinks: " + ", ".join(f"{count:,} {_ACTIONS[action]}" for action, count in sorted(actions.items()))
    waiting = [sink for sink in sinks if sink["error"] or sink["outstanding"]["snapshots"]]
    waiting.sort(key=lambda sink: (sink["error"] is None, -sink["outstanding"]["snapshots"], sink["name"]))
    for sink in waiting[:LINES_MAX]:
        lack = sink["outstanding"]
        yield f"  {sink['name']}: " + (
            _error(sink["error"])
            if sink["error"]
            else f"{lack['snapshots']:,} {commits} after {sink['cursor']}, about"
            f" {lack['changes_estimate']:,} changes before routing"
        )
    if len(waiting) > LINES_MAX:
        yield f"  and {len(waiting) - LINES_MAX:,} more (--json lists all)"


_ACTIONS = {
    "seed": "would be seeded",
    "changes": "would get changes",
    "none": "current",
    "paused": "paused",
    "held": "held",
    "unknown": "unknown",
}


def _creation(item: dict[str, Any]) -> str:
    where = "" if item["sink"] is None else f" at sink {item['sink']}"
    return f"{item['kind']} {item['name']}{where}"


def _seed(item: dict[str, Any]) -> str:
    accept = "; only with --accept" if item["needs_accept"] else ""
    return f"{item['table']} to sink {item['sink']} ({item['reason']}{accept})"


def _stop(item: dict[str, Any]) -> str:
    return f"{item['table']} at sink {item['sink']}: {_error(item)}"


def _error(error: dict[str, Any]) -> str:
    return f"{error['code']} {error['message']}\n    fix: {error['fix']}"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
