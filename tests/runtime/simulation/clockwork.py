"""Virtual time: what happens next, in one order that the seed decides. Nothing here sleeps."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from truecut.runtime.timetable import Clock

START_US = 1_700_000_000_000_000


class Broken(AssertionError):
    """A law does not hold."""


class Clockwork:
    """The time, the chance of this life, and what is to happen when."""

    def __init__(self, seed: int, log: Callable[[str], None] = lambda _: None) -> None:
        self._log = log
        self.rng = random.Random(seed)
        self.now_us = START_US
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def now_ms(self) -> int:
        """Milliseconds, as the loops see them."""
        return self.now_us // 1_000

    def after_ms(self, delay_ms: float, act: Callable[[], None]) -> None:
        """Let it happen so much later; what is due at one moment happens in the order of asking."""
        self._count += 1
        heapq.heappush(self._due, (self.now_us + int(delay_ms * 1_000), self._count, act))

    def step(self) -> bool:
        """The next thing happens. False: there is none."""
        if not self._due:
            return False
        due_us, _, act = heapq.heappop(self._due)
        self.now_us = max(self.now_us, due_us)
        act()
        return True

    def stamp_us(self) -> int:
        """A reading of the store's clock: no two are alike."""
        self.now_us += 1
        return self.now_us

    def say(self, what: str) -> None:
        """For whoever lives this life again."""
        self._log(f"{(self.now_us - START_US) / 1e6:9.3f} {what}")

    def happens(self, probability: float) -> bool:
        """A coin of this life."""
        return self.rng.random() < probability

    def between(self, low: int, high: int) -> int:
        """A delay of this life, in whatever unit."""
        return self.rng.randint(low, high)


class VirtualClock(Clock):
    """The clock of a process in this time."""

    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork = clockwork

    def now_ms(self) -> int:
        """Milliseconds that only grow."""
        return self._clockwork.now_ms

    def wall_ms(self) -> int:
        """The same: it began in a year of its own."""
        return self._clockwork.now_ms
