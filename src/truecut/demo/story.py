"""The story: start, change, kill -9, resume, compare."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.demo.lakes import TENANTS, Compared, Lakes, Writer
from truecut.errors import TruecutError
from truecut.model.position import Position
from truecut.runtime.control import open_control

START_S_MAX = 180.0


def tell(folder: Path, *, rows: int, seconds: int) -> None:
    """Run the demo. Raises when a tenant differs from its share of the source."""
    console = Console(highlight=False, soft_wrap=True)
    started = time.monotonic()
    lakes = Lakes(folder)
    lakes.make(rows=rows)
    _done(console, f"a DuckLake with {rows:,} orders of {len(TENANTS)} tenants in {folder}")
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
        raise TruecutError("TC5021", "a tenant differs from its share of the source", fix="Please report it.")
    total = sum(result.rows for result in results)
    _done(
        console,
        f"{total:,} rows at {len(results)} tenants, after {writer.transactions:,} transactions and one"
        f" kill -9: equal, row by row ({time.monotonic() - started:.0f} s)",
    )
    console.print(f"\nLook around: [bold]{folder}[/bold] (pipeline.yaml is the whole configuration)")
    console.print("Next: [bold]truecut init --source ducklake --dsn CATALOG[/bold]")


def _first_life(console: Console, lakes: Lakes, *, seconds: int) -> None:
    """Until it is killed without a warning, in the middle of its work."""
    with _Run(lakes.file, console) as run:
        begun = time.monotonic()
        run.watch("seeding every tenant, while orders keep changing", _all_seeded)
        _done(
            console,
            f"seeded in {time.monotonic() - begun:.1f} s (Spark's start included) while orders kept changing",
        )
        deadline = time.monotonic() + seconds / 2
        run.watch("changes flow", lambda _: time.monotonic() > deadline)
        run.kill()
    console.print("[red]✗[/red] killed -9 in the middle of it")


def _second_life(console: Console, lakes: Lakes, writer: Writer, *, seconds: int) -> None:
    """The next run takes the sinks over and goes on where their own cursors stand."""
    with _Run(lakes.file, console) as run:
        run.watch("started again; leases of the dead run are running out", _all_seeded)
        _done(console, "resumed from the cursors in the tenants' own lakes")
        deadline = time.monotonic() + seconds / 2
        run.watch("changes flow", lambda _: time.monotonic() > deadline)
        writer.stop()
        head = lakes.head()
        run.watch("the last changes", lambda reports: _all_at(reports, head))
        run.stop()
    _done(console, "caught up and stopped")


Reports = dict[str, dict[str, Any]]


class _Run:
    """`truecut run` as a process of its own, watched through what it reports."""

    def __init__(self, file: Path, console: Console) -> None:
        self._console = console
        self._pipeline: Pipeline = load(file, environ=os.environ)
        self._control = open_control(self._pipeline.control, pipeline=self._pipeline.name)
        self._control.report_sinks({})
        self._began_ms = time.time_ns() // 1_000_000
        self._log = (file.parent / "run.log").open("a")
        command = [sys.executable, "-m", "truecut", "run", str(file)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._control.close()
        self._log.close()

    def watch(self, title: str, until: Callable[[Reports], bool]) -> None:
        """Show the tenants until it holds."""
        deadline = time.monotonic() + START_S_MAX
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            while True:
                reports = self._reports()
                live.update(_tenants(title, reports))
                if reports and until(reports):
                    return
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise TruecutError(
                        "TC5022",
                        "the run ended or did not get going",
                        fix=f"See {self._log.name}.",
                    )
                time.sleep(0.1)

    def _reports(self) -> Reports:
        """Only what this run has said: the dead one's last words do not count."""
        reports = self._control.reports()
        fresh = any(r["observed_at_ms"] >= self._began_ms for r in reports.runners.values())
        return {name: r for name, r in reports.sinks.items() if r["at_ms"] >= self._began_ms} if fresh else {}

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=60)


def _all_seeded(reports: Reports) -> bool:
    return len(reports) == len(TENANTS) and all(r["cursor"] is not None for r in reports.values())


def _all_at(reports: Reports, snapshot: int) -> bool:
    """Every tenant stands at the source's last commit: `current` may be older than that."""
    places = [r["position"] for r in reports.values() if r["position"] is not None]
    return len(places) == len(TENANTS) and all(Position.parse(p).place >= snapshot for p in places)


def _tenants(title: str, reports: Reports) -> RenderableType:
    table = Table(title=f"… {title}", title_justify="left", title_style="dim", box=None, pad_edge=False)
    table.add_column("tenant")
    table.add_column("state")
    table.add_column("cursor")
    table.add_column("lag", justify="right")
    table.add_column("rows written", justify="right")
    for name in TENANTS:
        r = reports.get(name)
        if r is None:
            table.add_row(name, Text("waiting", style="dim"), "", "", "")
        else:
            lag = "" if r["lag_ms"] is None else f"{r['lag_ms'] / 1000:.1f} s"
            table.add_row(name, r["state"], f"…{(r['cursor'] or '')[-7:]}", lag, f"{r['rows_applied']:,}")
    return table


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


def _done(console: Console, text: str) -> None:
    console.print(f"[green]✓[/green] {text}")
