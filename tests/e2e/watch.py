"""A running process, watched through its trace: what is open at this moment, and how far every sink is.

The trace is what the process itself said before it acted on it, so it is evidence also after kill -9.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from tests.e2e.process import Process
from tests.e2e.world import World

Kind = Literal["wave", "seed"]

_STARTS: dict[str, Kind] = {"StartWave": "wave", "StartSeed": "seed"}
_ANSWERS = {"WaveCommit", "WaveAbort", "Advance"}  # of one wave; any other end is that of all the sink is in
_SILENT = {"StartWave", "StartSeed", "PersistIdle"}  # nothing has moved yet


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was done, by the clock of the traces."""

    since_ns: int
    until_ns: int


def moment_of(act: Callable[[], object]) -> Moment:
    """Do it, and tell when."""
    since_ns = time.time_ns()
    act()
    return Moment(since_ns, time.time_ns())


@dataclass(slots=True)
class Span:
    """One sink's part in a wave or seed, from its start to its answer. Times are those of the trace."""

    kind: Kind
    started_ns: int
    answered_ns: int | None = None
    answer: str | None = None

    def covers(self, moment: Moment) -> bool:
        """Whether it was open all that time."""
        answered_before = self.answered_ns is not None and self.answered_ns <= moment.until_ns
        return self.started_ns < moment.since_ns and not answered_before


@dataclass(slots=True)
class Watch:
    """Call `look` to take in what the trace has got since; everything else tells of the last look."""

    path: Path
    spans: list[Span] = field(default_factory=list)
    _open: dict[tuple[str, int], Span] = field(default_factory=dict)  # by sink and wave
    _places: dict[str, str] = field(default_factory=dict)
    _file: IO[str] | None = None
    _rest: str = ""

    @classmethod
    def over(cls, process: Process, world: World) -> Watch:
        """Over a process that was started in this world."""
        return cls(world.traces / f"{process.popen.pid}.jsonl")

    def look(self) -> Watch:
        """Take in the lines that are complete by now."""
        if self._file is None and self.path.exists():
            self._file = self.path.open()
        if self._file is not None:
            *lines, self._rest = (self._rest + self._file.read()).split("\n")
            for line in lines:
                self._take(json.loads(line))
        return self

    @property
    def open(self) -> set[Kind]:
        """What has been started and not been answered."""
        return {span.kind for span in self._open.values()}

    def delivers(self, *, since_ns: int) -> bool:
        """Whether something that was started since then has arrived."""
        return any(
            span.started_ns > since_ns and span.answer in ("WaveCommit", "Advance") for span in self.spans
        )

    def is_at(self, sinks: Iterable[str], *, snapshot: int) -> bool:
        """Whether each of these sinks has everything up to there, and is in no wave."""
        busy = {sink for sink, _ in self._open}
        return all(
            sink not in busy and sink in self._places and _number(self._places[sink]) >= snapshot
            for sink in sinks
        )

    def _take(self, line: dict[str, Any]) -> None:
        if "sink" not in line:
            return
        sink, action, at_ns = str(line["sink"]), str(line["action"]), int(line["at_ns"])
        if action in _STARTS:
            self._open[sink, line["wave"]] = Span(_STARTS[action], at_ns)
            self.spans.append(self._open[sink, line["wave"]])
        elif action in _ANSWERS:
            self._answer([(sink, line["wave"])], action, at_ns)
        elif "copies" not in line and action not in _SILENT:  # a reset: the sink forgets all it is in
            self._answer([key for key in self._open if key[0] == sink], action, at_ns)
        if "copies" in line:
            places = [copy["at"] for copy in line["copies"].values() if copy["status"] == "streaming"]
            self._places[sink] = min(places) if len(places) == len(line["copies"]) else ""
        elif action not in _SILENT:
            self._places.pop(sink, None)

    def _answer(self, keys: list[tuple[str, int]], action: str, at_ns: int) -> None:
        for key in keys:
            span = self._open.pop(key, None)
            if span is not None:
                span.answered_ns, span.answer = at_ns, action


def _number(position: str) -> int:
    return int(position.split("-")[1], 16) if position else -1
