"""Signs of life of work that may hang: what a deadline is measured by.

Whoever waits for a thread reads its pulse: as long as that changes, the work goes on, however long it takes.
It counts what was handed over and begun (`beat`), and the processor time that the thread has used: DuckDB
works in the thread that calls it, also where other threads help. Where it waits, it may tell how far the
statement is that runs now (`watch`); of a server's somebody else may know (`follow`). A thread finds its
pulse by itself, so that the layers in between need not pass it on; without one all of this costs nothing. A
statement that waits, and of which nobody knows how far it is, has one deadline for itself.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import duckdb

_of_thread = threading.local()
# DuckDB reckons how far a statement is only where a progress bar could be shown.
_TELL = "SET enable_progress_bar = true; SET enable_progress_bar_print = false; SET progress_bar_time = 0"


CPU_STEP_S = 0.3  # so much processor time is a sign: a hundredth of the usual deadline


class LeftBehind(Exception):
    """Raised in a thread for which nobody waits any more."""


class Pulse:
    """Of one piece of work in one thread. `cpu_step_s` of processor time is a sign of life: more than waiting
    costs that looks again and again, less than work gets on a busy machine."""

    def __init__(self, *, cpu_step_s: float = CPU_STEP_S) -> None:
        self.left = False  # behind: nobody waits for this work any more
        self._beats = 0
        self._cpu_step_s = cpu_step_s
        self._clock: int | None = None  # of the thread's processor time
        self._connections: list[duckdb.DuckDBPyConnection] = []
        self._followed: list[Callable[[], float]] = []

    def beat(self) -> None:
        """Something was done, or begins; LeftBehind when nobody wants it."""
        if self.left:
            raise LeftBehind
        self._beats += 1

    def read(self) -> tuple[float, ...]:
        """Differs from what it was before if something has happened."""
        watched = (_progress(connection) for connection in tuple(self._connections))
        return (self._beats, self._cpu_steps(), *watched, *(progress() for progress in tuple(self._followed)))

    def leave_behind(self) -> None:
        """Nobody waits any more: end the running statement, if DuckDB has one, and begin no other."""
        self.left = True
        for connection in tuple(self._connections):
            with suppress(duckdb.Error):  # closed meanwhile
                connection.interrupt()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """What this thread does in the block is felt here."""
        _of_thread.pulse = self
        self._clock = _clock_of_this_thread()
        try:
            yield
        finally:
            _of_thread.pulse = self._clock = None
            self._connections.clear()
            self._followed.clear()

    def watch(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Statements on this connection are this work's."""
        self.beat()
        connection.execute(_TELL)
        self._connections.append(connection)

    def follow(self, progress: Callable[[], float]) -> None:
        """What it says changes while this work goes on. It is asked by whoever waits, and must not wait."""
        self._followed.append(progress)

    def _cpu_steps(self) -> int:
        clock = self._clock
        return 0 if clock is None else int(time.clock_gettime(clock) / self._cpu_step_s)


def beat() -> None:
    """Something was done in this thread, or begins; LeftBehind when nobody wants it any more."""
    pulse = _current()
    if pulse is not None:
        pulse.beat()


def watch(connection: duckdb.DuckDBPyConnection) -> None:
    """Statements on this connection are work of this thread, until its work has ended."""
    pulse = _current()
    if pulse is not None:
        pulse.watch(connection)


def follow(progress: Callable[[], float]) -> None:
    """What it says changes while work of this thread goes on, until its work has ended."""
    pulse = _current()
    if pulse is not None:
        pulse.follow(progress)


def _current() -> Pulse | None:
    pulse: Pulse | None = getattr(_of_thread, "pulse", None)
    return pulse


def _clock_of_this_thread() -> int | None:
    if sys.platform != "linux":
        return None
    return time.pthread_getcpuclockid(threading.get_ident())


def _progress(connection: duckdb.DuckDBPyConnection) -> float:
    try:
        return float(connection.query_progress())
    except duckdb.Error:  # closed meanwhile
        return -1.0
