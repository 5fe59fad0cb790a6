"""What `run` shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from truecut.config.settings import Pipeline
from truecut.runtime.view import SinkView, View

LINES_MAX = 10
PLAIN_EVERY_S = 5.0
_COLOURS = {"current": "green", "behind": "yellow", "backfilling": "cyan", "paused": "blue", "failed": "red"}
_BADNESS = {"failed": 0, "backfilling": 1, "behind": 2, "paused": 3, "current": 4}


class Show:
    """Receives views from the runner's loop."""

    def __init__(self, pipeline: Pipeline, console: Console, live: Live | None) -> None:
        self._pipeline = pipeline
        self._console = console
        self._live = live
        self._rates = _Rates()
        self._last_line = ""
        self._last_at = 0.0

    def note(self, text: str) -> None:
        """Something worth a line."""
        if self._live is not None:
            self._live.update(Text(f"… {text}", style="dim"))
        else:
            self._console.print(text, highlight=False)

    def update(self, view: View) -> None:
        """A new view."""
        rate = self._rates.of(sum(line.rows_applied for line in view.sinks.values()))
        if self._live is not None:
            self._live.update(Group(_table(self._pipeline, view, rate), *_bars(view)))
            return
        line = _plain(view)
        now = time.monotonic()
        if line != self._last_line and now - self._last_at >= PLAIN_EVERY_S:
            self._console.print(line, highlight=False, soft_wrap=True)
            self._last_line, self._last_at = line, now


class _Rates:
    """Rows a second, over the last few views."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def of(self, rows: int) -> float:
        now = time.monotonic()
        self._seen = [*self._seen[-5:], (now, rows)]
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0


@contextlib.contextmanager
def live_view(pipeline: Pipeline) -> Iterator[Show]:
    """A live table while the block runs, if stderr is a terminal."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield Show(pipeline, console, None)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield Show(pipeline, console, live)


def worst_first(lines: list[SinkView]) -> list[SinkView]:
    """Trouble before lag before calm."""
    return sorted(lines, key=lambda s: (_BADNESS.get(s.state, 0), -(s.lag_ms or 0), s.name))


def _table(pipeline: Pipeline, view: View, rate: float) -> Table:
    total = len(view.sinks)
    shown = list(view.sinks.values()) if total <= LINES_MAX else worst_first(list(view.sinks.values()))
    head = "…" if view.head is None else f"…{str(view.head)[-7:]}"
    title = f"{pipeline.name}  source at {head}  {rate:,.0f} rows/s"
    if view.source_fault is not None:
        title += f"  [red]{view.source_fault.message}[/red]"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("sink", "state", "cursor", "lag", "rows"):
        table.add_column(name, justify="right" if name in ("lag", "rows") else "left")
    table.add_column("")
    for line in shown[:LINES_MAX]:
        table.add_row(*_cells(line))
    if total > LINES_MAX:
        current = sum(1 for line in view.sinks.values() if line.state == "current")
        table.caption = f"the {LINES_MAX} worst of {total:,} sinks; {current:,} current"
    return table


def _bars(view: View) -> list[RenderableType]:
    """One bar for each seed that is running."""
    bars: list[RenderableType] = []
    for sinks, fraction in view.seeds.items():
        who = sinks[0] if len(sinks) == 1 else f"{len(sinks):,} sinks"
        line = Table.grid(padding=(0, 1))
        line.add_row(f"seeding {who}", ProgressBar(total=1, completed=fraction, width=30), f"{fraction:.0%}")
        bars.append(line)
    return bars


def _cells(line: SinkView) -> list[Text | str]:
    return [
        line.name,
        Text(line.state, style=_COLOURS.get(line.state, "")),
        "" if line.cursor is None else f"…{line.cursor[-7:]}",
        "" if line.lag_ms is None else f"{line.lag_ms / 1000:.1f} s",
        f"{line.rows_applied:,}",
        Text("" if line.error is None else str(line.error["message"]), style="red", overflow="ellipsis"),
    ]


def _plain(view: View) -> str:
    states: dict[str, int] = {}
    for line in view.sinks.values():
        states[line.state] = states.get(line.state, 0) + 1
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no sinks yet"
    worst = [line for line in worst_first(list(view.sinks.values())) if line.error is not None][:3]
    errors = "".join(f"; {line.name}: {line.error['message']}" for line in worst if line.error)
    source = f"; source: {view.source_fault.message}" if view.source_fault else ""
    rows = sum(line.rows_applied for line in view.sinks.values())
    seeds = "".join(f"; seeding {len(sinks)} at {done:.0%}" for sinks, done in view.seeds.items())
    return f"head {view.head}; {counts}; {rows:,} rows applied{seeds}{errors}{source}"
