"""What Ctrl-C and SIGTERM mean to a command: the first asks for a clean stop, the second ends it at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from types import FrameType
from typing import TypeVar

from truecut.cli.entry import heard

POLL_S = 0.1
Answer = TypeVar("Answer")


class Interrupted(Exception):
    """A signal came first."""


class Signals:
    """Those that came, and what the first one calls: whatever the command is doing at the time."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._stop: Callable[[], None] | None = None
        self._at_once: Callable[[], None] = lambda: None

    @contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """In this block a signal calls `stop`; one that came before does so at once."""
        self._stop = stop
        try:
            if self.received:
                stop()
            yield
        finally:
            self._stop = None

    def waiting_for(self, call: Callable[[], Answer], *, deadline: float | None = None) -> Answer:
        """What `call` returns or raises; Interrupted when a signal comes first, TimeoutError after the
        deadline (of the monotonic clock). It runs in a thread, which is then left behind: what it waits for
        may never come, and signals are heard only between two steps of Python."""
        future: Future[Answer] = Future()
        Thread(target=_fulfil, args=(future, call), daemon=True).start()
        while not self.received:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
            try:
                return future.result(timeout=POLL_S)
            except TimeoutError:
                if future.done():
                    raise
        raise Interrupted

    def before_leaving(self, clean: Callable[[], None]) -> None:
        """What even the second signal has to do."""
        self._at_once = clean

    def handle(self, number: int, _: FrameType | None) -> None:
        """As the signal module calls it."""
        if self.received:
            self._at_once()
            os._exit(128 + number)
        self.received.append(number)
        if self._stop is not None:
            self._stop()


def _fulfil(future: Future[Answer], call: Callable[[], Answer]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
        future.set_exception(error)


@contextmanager
def received_signals() -> Iterator[Signals]:
    """Signals are taken up in this block, and mean what they meant before after it."""
    signals = Signals()
    before = {number: signal.signal(number, signals.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    signals.received[:0] = heard  # what came before: not until now, or one that comes just now would be lost
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """A command that has one thing to stop."""
    with received_signals() as signals, signals.calling(stop):
        yield signals.received
