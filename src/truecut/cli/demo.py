"""`truecut demo`: the whole story on this machine, with nothing to set up."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("truecut-demo"),
    show_default=True,
    help="Where the demo's lakes are made; a demo that is already there is replaced.",
)
@click.option("--rows", type=click.IntRange(1_000, 50_000_000), default=200_000, show_default=True)
@click.option(
    "--seconds", type=click.IntRange(2, 3600), default=8, show_default=True, help="Of live changes."
)
def command(folder: Path, rows: int, seconds: int) -> None:
    """One DuckLake table, routed live into five tenants' lakes, killed -9 half-way, compared by row."""
    from truecut.demo.story import tell

    tell(folder.absolute(), rows=rows, seconds=seconds)
