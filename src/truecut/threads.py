"""Threads for work that may hang: with a deadline by progress, and left behind when they miss it.

A thread cannot be ended from outside. One that is left behind is told to stop at the next place where it
looks, and its running DuckDB statement is interrupted; should it hang in a call that nothing ends, it stays.
So those are counted: whoever has some that hang gets another one only up to a bound, and is told so (TC5024).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from truecut.errors import Fault, Retry
from truecut.pulse import LeftBehind, Pulse

OWN_MAX = 3  # that hang, of one sink or one source
ALL_MAX = 64  # that hang in this process; beyond it, only for those of whom none hangs
CPU_SHARE = 0.01  # of a deadline: a thread that uses so much of a processor works
POLL_S = 0.05
_BOX_MAX = 4  # items that were made and not yet taken

Item = TypeVar("Item")


class Late(Exception):
    """Raised where it was waited for: one deadline has passed without any progress."""


class _Thread:
    """A thread that is used again: a new one would warm up its memory for each small order anew."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name="work", daemon=True).start()

    def run(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def _loop(self) -> None:
        while True:
            self._jobs.get()()
            _idle.append(self)


_idle: list[_Thread] = []
_lock = threading.Lock()
_hanging: Counter[str] = Counter()


def refusal(who: str) -> Fault | None:
    """Why no other thread is given to work for `who`; None: it may begin."""
    with _lock:
        own, everyone = _hanging[who], _hanging.total()
    if own == 0 or (own < OWN_MAX and everyone < ALL_MAX):
        return None
    return Fault(
        "TC5024",
        f"{who}: {own} earlier attempts still hang; no other is made until one of them comes back",
        "Check its storage, its server and the network. If they are well and this stays, restart the run.",
        Retry.RETRYABLE,
    )


class Work:
    """One piece of work in a thread. `who` it is for: a sink, a source."""

    def __init__(self, who: str, *, deadline_s: float) -> None:
        self._who = who
        self._deadline_s = deadline_s
        self._pulse = Pulse(cpu_step_s=deadline_s * CPU_SHARE)
        self._felt = self._pulse.read()
        self._due = time.monotonic() + deadline_s
        self._ended = threading.Event()
        self._counted = False

    def start(self, body: Callable[[], None]) -> None:
        """`body` must not raise."""

        def run() -> None:
            with self._pulse.taken():
                body()
            with _lock:
                self._ended.set()
                if self._counted:
                    _hanging[self._who] -= 1

        try:
            thread = _idle.pop()
        except IndexError:
            thread = _Thread()
        thread.run(run)

    def is_late(self) -> bool:
        """Whether a whole deadline has passed since something was last felt of it."""
        felt = self._pulse.read()
        if felt != self._felt:
            self._felt = felt
            self.goes_on()
        return time.monotonic() >= self._due

    def goes_on(self) -> None:
        """It has given a sign of life, or has not been waited for until now."""
        self._due = time.monotonic() + self._deadline_s

    def beat(self) -> None:
        """A sign of life, by the thread itself."""
        self._pulse.beat()

    def leave_behind(self) -> None:
        """Nobody waits for it any more. No effect on one that has ended."""
        with _lock:
            if self._ended.is_set() or self._counted:
                return
            self._counted = True
            _hanging[self._who] += 1
        self._pulse.leave_behind()

    def stop_if_left(self) -> None:
        """For the thread itself, where it waits: not for ever, when nobody waits for it."""
        if self._pulse.left:
            raise LeftBehind


def within(who: str, make: Callable[[], Iterator[Item]], *, deadline_s: float) -> Iterator[Item]:
    """What `make` yields, made in a thread. `Late` when nothing has come, or moved, for a deadline."""
    work = Work(who, deadline_s=deadline_s)
    box: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(_BOX_MAX)

    def put(more: bool, content: Item | BaseException | None) -> None:
        while True:
            work.stop_if_left()
            try:
                box.put((more, content), timeout=POLL_S)
                return
            except queue.Full:
                continue

    def body() -> None:
        try:
            try:
                for item in make():
                    work.beat()
                    put(True, item)
                put(False, None)
            except LeftBehind:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                put(False, error)
        except LeftBehind:
            return

    work.start(body)
    try:
        while True:
            more, content = _taken(box, work)
            if isinstance(content, BaseException):
                raise content
            if not more:
                return
            yield content  # type: ignore[misc]
            work.goes_on()
    finally:
        work.leave_behind()


def _taken(box: queue.Queue[Item], work: Work) -> Item:
    while True:
        try:
            return box.get(timeout=POLL_S)
        except queue.Empty:
            if work.is_late():
                raise Late from None
