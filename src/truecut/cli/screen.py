"""The live table of `run` on a terminal. Apart, because what draws it takes longer to import than a run takes
that has nothing to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from truecut.cli.live import worst_first
from truecut.config.settings import Pipeline
from truecut.runtime.run_report import SinkView, View

LINES_MAX = 10
_COLOURS = {"current": "green", "behind": "yellow", "backfilling": "cyan", "paused": "blue", "failed": "red"}


class Screen:
    """What a terminal shows meanwhile."""

    def __init__(self, pipeline: Pipeline, live: Live) -> None:
        self._pipeline = pipeline
        self._live = live

    def say(self, text: str) -> None:
        """This line alone."""
        self._live.update(Text(f"… {text}", style="dim"))

    def draw(self, view: View, rate: float, note: str) -> None:
        """The table, with a line below it if there is something to say."""
        told = [Text(f"… {note}", style="dim")] if note else []
        self._live.update(Group(_table(self._pipeline, view, rate), *_bars(view), *told))


@contextlib.contextmanager
def screen_of(pipeline: Pipeline, console: Console) -> Iterator[Screen]:
    """While the block runs."""
    with Live(console=console, refresh_per_second=4) as live:
        yield Screen(pipeline, live)


def _table(pipeline: Pipeline, view: View, rate: float) -> Table:
    total = len(view.sinks)
    shown = list(view.sinks.values()) if total <= LINES_MAX else worst_first(list(view.sinks.values()))
    head = "not seen yet" if view.head is None else f"at …{str(view.head)[-7:]}"
    title = f"{escape(pipeline.name)}  source {head}  {rate:,.0f} rows/s"
    if view.unrouted:
        title += f"  {sum(view.unrouted.values()):,} rows matched no sink"
    if view.source_fault is not None:
        title += f"  [red]{escape(view.source_fault.message)}[/red]"
    if view.control_fault is not None:
        title += f"  [red]{escape(view.control_fault.message)}[/red]"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    proof = ("certified", "verified") if pipeline.certificate is not None else ()
    for name in ("sink", "state", "cursor", *proof, "lag", "rows"):
        table.add_column(name, justify="right" if name in ("lag", "rows") else "left")
    table.add_column("")
    for line in shown[:LINES_MAX]:
        places = [view.certified_upto(line.name), view.verified_upto(line.name)] if proof else []
        table.add_row(*_cells(line, places))
    if total > LINES_MAX:
        current = sum(1 for line in view.sinks.values() if line.state == "current")
        table.caption = f"the {LINES_MAX} worst of {total:,} sinks; {current:,} current"
    return table


def _bars(view: View) -> list[RenderableType]:
    """One bar for each seed that is running."""
    bars: list[RenderableType] = []
    for sinks, fraction in view.seeds.items():
        who = escape(sinks[0]) if len(sinks) == 1 else f"{len(sinks):,} sinks"
        line = Table.grid(padding=(0, 1))
        line.add_row(f"seeding {who}", ProgressBar(total=1, completed=fraction, width=30), f"{fraction:.0%}")
        bars.append(line)
    return bars


def _cells(line: SinkView, places: Sequence[str | None]) -> list[Text | str]:
    return [
        Text(line.name),
        Text(line.state, style=_COLOURS.get(line.state, "")),
        *("" if place is None else f"…{place[-7:]}" for place in (line.cursor, *places)),
        "" if line.lag_ms is None else f"{line.lag_ms / 1000:.1f} s",
        f"{line.rows_applied:,}",
        Text("" if line.error is None else str(line.error["message"]), style="red", overflow="ellipsis"),
    ]
