"""What Ctrl-C and SIGTERM mean to a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """The first signal asks for a clean stop, the second ends the process at once."""
    received: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
