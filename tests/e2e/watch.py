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
_ARRIVALS = {"Recovered": "cursor", "WaveCommit": "cursor", "Advance": "upto"}


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
    _open: dict[str, Span] = field(default_factory=dict)
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
        return all(
            sink not in self._open and sink in self._places and _number(self._places[sink]) >= snapshot
            for sink in sinks
        )

    def _take(self, line: dict[str, Any]) -> None:
        if "sink" not in line:
            return
        sink, action, at_ns = str(line["sink"]), str(line["action"]), int(line["at_ns"])
        span = self._open.pop(sink, None)
        if span is not None:  # a sink says nothing else between a start and its answer (D3)
            span.answered_ns, span.answer = at_ns, action
        if action in _STARTS:
            self._open[sink] = Span(_STARTS[action], at_ns)
            self.spans.append(self._open[sink])
        elif action in _ARRIVALS and line["copy"] == "streaming":
            self._places[sink] = str(line[_ARRIVALS[action]])
        elif action != "PersistIdle":
            self._places.pop(sink, None)


def _number(position: str) -> int:
    return int(position.split("-")[1], 16)
