"""What a runner knows about delivery, as values: sinks, their copies of tables, waves, effects.

Owns no rule; the rules are in `delivery` (sinks and waves) and `copies` (one table at one sink).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from truecut.errors import Fault
from truecut.model.cursor import Hold
from truecut.model.position import Position
from truecut.model.table import Mode

WaveKind = Literal["changes", "seed", "persist"]
Phase = Literal["unowned", "acquired", "recovering", "idle", "applying"]


@dataclass(frozen=True, slots=True)
class CopySettings:
    """What the pipeline wants of one table at one sink."""

    mode: Mode
    on_gap: Literal["backfill", "stop"] = "backfill"
    fingerprint: str = ""  # of what shapes the copy's rows
    accept: bool = False  # a copy of another shape may be replaced


@dataclass(frozen=True, slots=True)
class Copy:
    """One table at one sink: streaming from `at`, held at `at`, or to be seeded."""

    status: Literal["streaming", "held", "unseeded"]
    at: Position | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class SinkState:
    """One sink as this runner knows it."""

    settings: Mapping[str, CopySettings]
    phase: Phase = "unowned"
    token: int = 0
    epoch: int = 0  # bumped by every reset
    cursor: Position | None = None  # durable, in the sink itself
    position: Position | None = None  # read up to here; nothing in (cursor, position] was for this sink
    copies: Mapping[str, Copy] = field(default_factory=dict)
    wave: int | None = None
    failures: int = 0
    broken_waves: int = 0  # jobs in a row that failed as a whole with this sink among others
    retry_at_ms: int = 0
    fault: Fault | None = None
    late: bool = False  # left its group; gets small waves of its own until it keeps up with the others
    paused: bool = False


@dataclass(frozen=True, slots=True)
class SinkOrder:
    """What a wave knows of one of its sinks."""

    epoch: int
    token: int
    expected: Position | None
    holds: Mapping[str, Hold] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wave:
    """One Spark job: `sinks` all stand at `after` and have the same tables at the same places."""

    id: int
    kind: WaveKind
    sinks: Mapping[str, SinkOrder]
    tables: Mapping[str, Position | None]  # the tables that are read, each from its own place
    after: Position | None
    upto_max: Position
    late: bool = False
    identity: str = ""  # of the source that is read


@dataclass(frozen=True, slots=True)
class Recover:
    """Effect: take these sinks over and read their cursors. sink → (epoch, token)."""

    sinks: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RunWave:
    """Effect: run this wave and report it by `wave_done` or `wave_failed`."""

    wave: Wave


@dataclass(frozen=True, slots=True)
class RaiseToken:
    """Effect: the sink has seen a newer token than our lease's; get one above `above`, or give it up."""

    sink: str
    above: int


Effect = Recover | RunWave | RaiseToken


@dataclass(frozen=True, slots=True)
class Delivery:
    """Everything this runner knows about delivery."""

    sinks: Mapping[str, SinkState]
    identity: str = ""
    oldest: Position | None = None
    head: Position | None = None
    next_wave: int = 1
    waves: Mapping[int, Wave] = field(default_factory=dict)
    turn: int = 0  # alternates the choice of the next group

    def with_sinks(self, changed: Mapping[str, SinkState]) -> Delivery:
        """The same with some sinks replaced."""
        return replace(self, sinks={**self.sinks, **changed}) if changed else self
