"""What `run` shows: a live table on a terminal; elsewhere a line of the log now and then."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truecut.config.settings import Pipeline
from truecut.events import tell
from truecut.runtime.run_report import SinkView, View

if TYPE_CHECKING:
    from truecut.cli.screen import Screen

STOPPING = "stopping: what is in flight ends, then cursors are made durable (once more: at once)"
PLAIN_EVERY_S = 60.0
_BADNESS = {"failed": 0, "backfilling": 1, "behind": 2, "paused": 3, "current": 4}


_log = logging.getLogger(__name__)


class Show:
    """Receives views from the runner's loop, and keeps the last one."""

    def __init__(self, screen: Screen | None) -> None:
        self._screen = screen
        self._rates = _Rates()
        self._last_line = ""
        self._last_at = time.monotonic()
        self._stopping = False
        self.view: View | None = None

    def note(self, text: str) -> None:
        """What it is doing, before there is anything to show."""
        if self._screen is not None:
            self._screen.say(text)
        else:
            tell(_log, logging.INFO, text)

    def stopping(self) -> None:
        """Somebody has asked for a stop: what is in flight ends first."""
        self._stopping = True
        if self._screen is None:
            tell(_log, logging.INFO, STOPPING)
        elif self.view is None:
            self.note(STOPPING)
        else:
            self.update(self.view)

    def update(self, view: View) -> None:
        """A new view."""
        self.view = view
        rate = self._rates.of(sum(line.rows_applied for line in view.sinks.values()))
        if self._screen is not None:
            self._screen.draw(view, rate, STOPPING if self._stopping else "")
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
    if not sys.stderr.isatty():
        yield Show(None)
        return
    from rich.console import Console

    from truecut.cli.screen import screen_of

    with screen_of(pipeline, Console(file=sys.stderr)) as screen:
        yield Show(screen)


def worst_first(lines: list[SinkView]) -> list[SinkView]:
    """Trouble before lag before calm."""
    return sorted(lines, key=lambda s: (_BADNESS.get(s.state, 0), -(s.lag_ms or 0), s.name))


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
