"""What a verification shows on a terminal: what it does now, and how many of its Spark tasks are done."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from truecut.spark.wave.progress import fraction_done, name_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.progress import Progress, TaskID

LOOK_S = 0.25


class Bar:
    """One bar, which begins anew with each step."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task
        self._session: SparkSession | None = None
        self._name, self._steps = f"verify-{secrets.token_hex(4)}", 0
        self._drawing = Lock()  # a look at the last step must not be drawn over the next one

    def joined(self, session: SparkSession) -> None:
        """Spark is there."""
        self._session = session

    def step(self, text: str) -> None:
        """The next step; the jobs that this thread starts from now on are its own."""
        with self._drawing:
            self._steps += 1
            self._progress.update(self._task, description=text, completed=0)
        if self._session is not None:
            name_job(self._session, self._group)

    def look(self) -> None:
        """Draw how far the step is."""
        with self._drawing:
            if self._session is not None and self._steps:
                self._progress.update(self._task, completed=fraction_done(self._session, self._group))

    @property
    def _group(self) -> str:
        return f"{self._name}-{self._steps}"


@contextmanager
def bar_on(console: Console, text: str) -> Iterator[Bar]:
    """While the block runs; nothing is shown, nor asked of Spark, where there is no terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        bar = Bar(progress, progress.add_task(text, total=1.0))
        ended = Event()
        if shown:
            Thread(target=_looking, args=(bar, ended), name="bar", daemon=True).start()
        try:
            yield bar
        finally:
            ended.set()


def _looking(bar: Bar, ended: Event) -> None:
    while not ended.wait(LOOK_S):
        bar.look()
