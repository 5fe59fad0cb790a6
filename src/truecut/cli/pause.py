"""`truecut pause` and `truecut resume`: hold delivery back, and let it go on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from truecut.cli.parameters import pipeline_argument
from truecut.config.finding import did_you_mean, show
from truecut.errors import ExitCode, TruecutError
from truecut.state_folder import writing_to

NAMES_SHOWN_MAX = 20
_sink = click.option("--sink", metavar="S", help="Only this sink.")
_table = click.option("--table", metavar="T", help="Only this table, at every sink.")


@click.command("pause")
@pipeline_argument
@_sink
@_table
def command(file: Path, sink: str | None, table: str | None) -> None:
    """Pause delivery of FILE: a running pipeline notices within a second, a later run obeys, too."""
    from truecut.runtime.pauses import pause

    state = _checked(file, sink, table)
    with writing_to(state):
        pause(state, sink=sink, table=table)
    click.echo(f"paused {_what(sink, table)}")


@click.command("resume")
@pipeline_argument
@_sink
@_table
def resume_command(file: Path, sink: str | None, table: str | None) -> None:
    """Take a pause back. With --table also let a stopped table go on: a mirror is read again whole."""
    from truecut.runtime.pauses import resume

    state = _checked(file, sink, table)
    with writing_to(state):
        was_paused = resume(state, sink=sink, table=table)
    known = was_paused or table is not None
    click.echo(f"resumed {_what(sink, table)}" if known else f"{_what(sink, table)} was not paused")


def _checked(file: Path, sink: str | None, table: str | None) -> Path:
    """The state folder, once we know that the sink or table exists."""
    from truecut.config.load import load

    if sink is not None and table is not None:
        raise click.UsageError("--sink and --table exclude each other")
    pipeline = load(file, environ=os.environ)
    require_known("sink", sink, [s.name for s in pipeline.sinks])
    if table is not None:
        from truecut.runtime.settled_tables import settled

        require_known("table", table, [str(t.name) for t in settled(pipeline).tables])
    return pipeline.state


def require_known(kind: str, name: str | None, names: Sequence[str]) -> None:
    """Refuse a name that the pipeline does not have, with the one that was probably meant."""
    if name is None or name in names:
        return
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    raise TruecutError(
        "TC1090",
        f"the pipeline has no {kind} {show(name)}{did_you_mean(name, names)}",
        fix=f"Its {kind}s are {', '.join(names[:NAMES_SHOWN_MAX])}{more}.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def _what(sink: str | None, table: str | None) -> str:
    if sink is not None:
        return f"sink {sink}"
    return "everything" if table is None else f"table {table}"
