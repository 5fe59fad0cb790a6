"""A run as a demo watches it: a process of its own, seen through what it reports, killed without warning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.model.position import Position
from truecut.runtime.certified import certified_upto
from truecut.runtime.control import open_control

START_S_MAX = 600.0  # a run that has ended is seen at once; a slow machine is waited for
Reports = dict[str, dict[str, Any]]


class Run:
    """`truecut run` as a process of its own, watched through what it reports."""

    def __init__(self, file: Path, console: Console, *, what: str) -> None:
        self._console = console
        self._what = what  # its sinks are
        self._pipeline: Pipeline = load(file, environ=os.environ)
        self._control = open_control(self._pipeline.control, pipeline=self._pipeline.name)
        self._control.report_sinks({})
        self.sinks = tuple(sink.name for sink in self._pipeline.sinks)
        self.last: Reports = {}
        self._began_ms = time.time_ns() // 1_000_000
        self._log = (file.parent / "run.log").open("a")
        command = [sys.executable, "-m", "truecut", "run", str(file)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._control.close()
        self._log.close()

    def watch(self, title: str, until: Callable[[Reports], bool]) -> None:
        """Show the sinks until it holds; what they have told then is kept."""
        deadline = time.monotonic() + START_S_MAX
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            while True:
                reports = self._reports()
                certified = self._certified()
                live.update(
                    table_of(reports, self.sinks, what=self._what, title=f"… {title}", certified=certified)
                )
                if reports and until(reports):
                    self.last = reports
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

    def _certified(self) -> Mapping[str, str] | None:
        """Up to where all tables of each sink are; None: no certificates are issued."""
        if self._pipeline.certificate is None:
            return None
        found: dict[str, str] = {}
        for (_, sink), at in certified_upto(self._pipeline).items():
            found[sink] = min(at, found.get(sink, at))
        return found

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=60)

    def all_seeded(self, reports: Reports) -> bool:
        """Every table of every sink is whole, and follows the source."""
        copies = [copy for report in reports.values() for copy in report["tables"].values()]
        return (
            len(reports) == len(self.sinks)
            and bool(copies)
            and all(c["status"] == "streaming" for c in copies)
        )

    def all_at(self, reports: Reports, place: int) -> bool:
        """Every sink has the source up to there: `current` may be older than that."""
        places = [r["position"] for r in reports.values() if r["position"] is not None]
        return len(places) == len(self.sinks) and all(Position.parse(p).place >= place for p in places)


def table_of(
    reports: Reports,
    sinks: Sequence[str],
    *,
    what: str,
    title: str | None = None,
    certified: Mapping[str, str] | None = None,
) -> RenderableType:
    """Where the sinks stand, and up to where they are certified, where they are."""
    table = Table(title=title, title_justify="left", title_style="dim", box=None, pad_edge=False)
    for name in (what, "state", "replicated", *(() if certified is None else ("certified",))):
        table.add_column(name)
    table.add_column("lag", justify="right")
    table.add_column("rows written", justify="right")
    for name in sinks:
        r = reports.get(name)
        if r is None:
            table.add_row(name, Text("waiting", style="dim"))
        else:
            lag = "" if r["lag_ms"] is None else f"{r['lag_ms'] / 1000:.1f} s"
            places = [r["cursor"], *(() if certified is None else (certified.get(name),))]
            told = ("" if place is None else f"…{place[-7:]}" for place in places)
            table.add_row(name, r["state"], *told, lag, f"{r['rows_applied']:,}")
    return table


def done(console: Console, text: str) -> None:
    """One more thing that went well."""
    console.print(f"[green]✓[/green] {text}")


def differs(what: str) -> TruecutError:
    """The comparison at the end has failed."""
    return TruecutError("TC5021", f"{what} differs from its share of the source", fix="Please report it.")
