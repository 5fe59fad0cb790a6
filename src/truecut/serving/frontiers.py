"""Whether the frontiers move: the source is seen, and every sink goes forward or has nowhere to go. Beside
them: copies that were found wrong and have not passed since.

Owns when each frontier last moved. A sink that is paused was told to stand still; a table that is held was
not. Time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from truecut.runtime.run_report import SinkView, View

STILL_MS = 60_000  # a frontier that lacks something and has not moved for so long is stuck


@dataclass
class Frontiers:
    """Of one runner's sinks, and of its look at the source."""

    began_ms: int
    _places: dict[str, tuple[object, int]] = field(default_factory=dict)  # sink → (where it is, since when)
    _seen: tuple[int | None, int] = (None, 0)  # the last look at the source, and when we heard of it
    _stuck: list[str] = field(default_factory=list)
    _wrong: list[str] = field(default_factory=list)
    _turned_ms: int = 0

    def update(self, view: View, *, now_ms: int) -> None:
        """The loop has turned."""
        self._turned_ms = now_ms
        if view.seen_at_ms != self._seen[0]:
            self._seen = (view.seen_at_ms, now_ms)
        seeding = {sink: done for sinks, done in view.seeds.items() for sink in sinks}
        for name, line in view.sinks.items():
            place = (line.position, line.cursor, line.rows_applied, seeding.get(name))
            if self._places.get(name, (None, 0))[0] != place:
                self._places[name] = (place, now_ms)
        self._wrong = [
            f"{one.table} at sink {one.sink} (verification)"
            for one in view.verified.values()
            if one.failed is not None
        ]
        self._stuck = [name for name, line in view.sinks.items() if self._is_stuck(line, now_ms)]

    def _is_stuck(self, line: SinkView, now_ms: int) -> bool:
        if line.state == "paused":
            return False
        held = any(copy["status"] == "held" for copy in line.tables.values())
        still = now_ms - self._places[line.name][1] > STILL_MS
        return held or (line.lag_ms != 0 and still)

    def works(self, *, now_ms: int) -> bool:
        """Whether the loop turns, or has not begun yet."""
        return not self._turned_ms or now_ms - self._turned_ms <= STILL_MS

    def stuck(self, *, now_ms: int) -> list[str]:
        """What does not move: sinks by name, `the source`, `the run`; and copies that were found wrong."""
        found = [f"sink {name}" for name in self._stuck] + self._wrong
        if self._seen[0] is None or now_ms - self._seen[1] > STILL_MS:
            found.insert(0, "the source")
        return found if self.works(now_ms=now_ms) else ["the run", *found]
