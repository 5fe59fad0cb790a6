"""When the source's heads were committed, as far back as somebody lacks them: what lag is told by.

Promises: bounded, however long a sink stands still. Heads that lie close together for their age become one,
with the latest place and the earliest time. So a lag is told too large by a small part of itself (a fiftieth,
after weeks), and never too small.
"""

from __future__ import annotations

from bisect import bisect_right

from truecut.model.position import Position

HEADS_MAX = 2048
FINEST = 1 / 256


class Heads:
    """(head, when it was committed), oldest first."""

    def __init__(self) -> None:
        self._places: list[Position] = []
        self._times_ms: list[int] = []

    def __len__(self) -> int:
        return len(self._places)

    def add(self, head: Position, committed_at_ms: int) -> None:
        """A new head, beyond all others."""
        self._places.append(head)
        self._times_ms.append(committed_at_ms)
        share = FINEST
        while len(self._places) > HEADS_MAX:
            self._merge(share)
            share *= 2

    def _merge(self, share: float) -> None:
        """One of all those whose times differ by less than this share of their age."""
        newest_ms = self._times_ms[-1]
        places: list[Position] = []
        times_ms: list[int] = []
        until_ms = newest_ms + 1  # of the latest head in the group
        for place, time_ms in zip(reversed(self._places), reversed(self._times_ms), strict=True):
            if places and until_ms - time_ms <= share * (newest_ms - until_ms):
                times_ms[-1] = time_ms
            else:
                places.append(place)
                times_ms.append(time_ms)
                until_ms = time_ms
        self._places, self._times_ms = places[::-1], times_ms[::-1]

    def first_after(self, position: Position) -> int | None:
        """When the first head beyond the position was committed; None: there is none."""
        at = bisect_right(self._places, position)
        return self._times_ms[at] if at < len(self._places) else None

    def forget_upto(self, position: Position) -> None:
        """Everybody has these heads; the newest is kept all the same."""
        at = min(bisect_right(self._places, position), max(0, len(self._places) - 1))
        del self._places[:at], self._times_ms[:at]
