"""When the loop does what it does every so often. By the monotonic clock: nobody can set it back."""

from __future__ import annotations

import time


class Clock:
    """The machine's clocks: one for intervals, one to show and to compare with the source's."""

    def now_ms(self) -> int:
        """Milliseconds that only grow."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


class Timetable:
    """What is due next, by name. What has no entry is due."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self._due: dict[str, int] = {}

    def is_due(self, what: str, every_ms: int) -> bool:
        """Whether it is time; if so, the next time is set."""
        now = self.clock.now_ms()
        if now < self._due.get(what, 0):
            return False
        self._due[what] = now + every_ms
        return True

    def at_once(self, what: str) -> None:
        """Do not wait for the next time."""
        self._due.pop(what, None)

    def not_within(self, what: str, pause_ms: int) -> None:
        """Not before this much time has passed."""
        self._due[what] = self.clock.now_ms() + pause_ms
