"""What `run` shows: a live table on a terminal; elsewhere a line of the log now and then."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from truecut.config.settings import Pipeline
from truecut.events import tell
from truecut.runtime.run_report import SinkView, View

LINES_MAX = 10
STOPPING = "stopping: what is in flight ends, then cursors are made durable (once more: at once)"
PLAIN_EVERY_S = 60.0
_COLOURS = {"current": "green", "behind": "yellow", "backfilling": "cyan", "paused": "blue", "failed": "red"}
_BADNESS = {"failed": 0, "backfilling": 1, "behind": 2, "paused": 3, "current": 4}


_log = logging.getLogger(__name__)


class Show:
    """Receives views from the runner's loop, and keeps the last one."""

    def __init__(self, pipeline: Pipeline, live: Live | None) -> None:
        self._pipeline = pipeline
        self._live = live
        self._rates = _Rates()
        self._last_line = ""
        self._last_at = time.monotonic()
        self._stopping = False
        self.view: View | None = None

    def note(self, text: str) -> None:
        """What it is doing, before there is anything to show."""
        if self._live is not None:
            self._live.update(Text(f"… {text}", style="dim"))
        else:
            tell(_log, logging.INFO, text)

    def stopping(self) -> None:
        """Somebody has asked for a stop: what is in flight ends first."""
        self._stopping = True
        if self._live is None:
            tell(_log, logging.INFO, STOPPING)
        elif self.view is None:
            self.note(STOPPING)
        else:
            self.update(self.view)

    def update(self, view: View) -> None:
        """A new view."""
        self.view = view
        rate = self._rates.of(sum(line.rows_applied for line in view.sinks.values()))
        if self._live is not None:
            note = [Text(f"… {STOPPING}", style="dim")] if self._stopping else []
            self._live.update(Group(_table(self._pipeline, view, rate), *_bars(view), *note))
            return
        line = _plain(view)
        now = time.monotonic()
        if line != self._last_line and now - self._last_at >= PLAIN_EVERY_S:
            tell(_log, logging.INFO, line, position=view.head)
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
        yield Show(pipeline, None)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield Show(pipeline, live)


def worst_first(lines: list[SinkView]) -> list[SinkView]:
    """Trouble before lag before calm."""
    return sorted(lines, key=lambda s: (_BADNESS.get(s.state, 0), -(s.lag_ms or 0), s.name))


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
        who = escape(sinks[0]) if len(sinks) == 1 else f"{len(sinks):,} sinks"
        line = Table.grid(padding=(0, 1))
        line.add_row(f"seeding {who}", ProgressBar(total=1, completed=fraction, width=30), f"{fraction:.0%}")
        bars.append(line)
    return bars


def _cells(line: SinkView) -> list[Text | str]:
    return [
        Text(line.name),
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
    store = f"; control store: {view.control_fault.message}" if view.control_fault else ""
    rows = sum(line.rows_applied for line in view.sinks.values())
    seeds = "".join(f"; seeding {len(sinks)} at {done:.0%}" for sinks, done in view.seeds.items())
    head = "source not seen yet" if view.head is None else f"source at {view.head}"
    lost = sum(view.unrouted.values())
    unrouted = f"; {lost:,} rows matched no sink" if lost else ""
    return f"{head}; {counts}; {rows:,} rows applied{unrouted}{seeds}{errors}{source}{store}"
