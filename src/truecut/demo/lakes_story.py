"""The story of the lakes: one DuckLake into five tenants' own; start, change, kill -9, resume, compare."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truecut.demo.lakes import TENANTS, Compared, Lakes, Writer
from truecut.demo.watched import Run, differs, done


def tell(folder: Path, *, rows: int, seconds: int) -> None:
    """Run the demo. Raises when a tenant differs from its share of the source."""
    console = Console(highlight=False, soft_wrap=True)
    started = time.monotonic()
    lakes = Lakes(folder)
    lakes.make(rows=rows)
    done(console, f"a DuckLake with {rows:,} orders of {len(TENANTS)} tenants in {folder}")
    writer = Writer(lakes, rows=rows)
    writer.start()
    try:
        _first_life(console, lakes, seconds=seconds)
        _second_life(console, lakes, writer, seconds=seconds)
    finally:
        writer.stop()
    results = lakes.compare()
    console.print(_verdict(results))
    if not all(result.equal for result in results):
        raise differs("a tenant")
    total = sum(result.rows for result in results)
    done(
        console,
        f"{total:,} rows at {len(results)} tenants, after {writer.transactions:,} transactions and one"
        f" kill -9: equal, row by row ({time.monotonic() - started:.0f} s)",
    )
    console.print(f"\nLook around: [bold]{folder}[/bold] (pipeline.yaml is the whole configuration)")
    console.print("Next: [bold]truecut init --source ducklake --dsn CATALOG[/bold]")


def _first_life(console: Console, lakes: Lakes, *, seconds: int) -> None:
    """Until it is killed without a warning, in the middle of its work."""
    with Run(lakes.file, console, what="tenant") as run:
        begun = time.monotonic()
        run.watch("seeding every tenant, while orders keep changing", run.all_seeded)
        done(
            console,
            f"seeded in {time.monotonic() - begun:.1f} s (Spark's start included) while orders kept changing",
        )
        deadline = time.monotonic() + seconds / 2
        run.watch("changes flow", lambda _: time.monotonic() > deadline)
        run.kill()
    console.print("[red]✗[/red] killed -9 in the middle of it")


def _second_life(console: Console, lakes: Lakes, writer: Writer, *, seconds: int) -> None:
    """The next run takes the sinks over and goes on where their own cursors stand."""
    with Run(lakes.file, console, what="tenant") as run:
        run.watch("started again; leases of the dead run are running out", run.all_seeded)
        done(console, "resumed from the cursors in the tenants' own lakes")
        deadline = time.monotonic() + seconds / 2
        run.watch("changes flow", lambda _: time.monotonic() > deadline)
        writer.stop()
        head = lakes.head()
        run.watch("the last changes", lambda reports: run.all_at(reports, head))
        run.stop()
    done(console, "caught up and stopped")


def _verdict(results: list[Compared]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("tenant")
    for name in ("rows", "missing", "extra"):
        table.add_column(name, justify="right")
    table.add_column("")
    for result in results:
        verdict = Text("✓ equal", style="green") if result.equal else Text("✗ differs", style="red")
        table.add_row(result.tenant, f"{result.rows:,}", f"{result.missing:,}", f"{result.extra:,}", verdict)
    return table
