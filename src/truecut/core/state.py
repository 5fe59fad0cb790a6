"""What a runner knows about delivery, as values: sinks, their copies of tables, waves, effects.

Owns no rule; the rules are in `delivery` (sinks and waves), `answers` (one sink) and `copies` (one table at
one sink).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from truecut.errors import Fault
from truecut.model.cursor import Hold, Version
from truecut.model.order import OrderKind
from truecut.model.position import Position
from truecut.model.table import Mode

WaveKind = Literal["changes", "seed", "persist"]
Phase = Literal["unowned", "acquired", "recovering", "ready"]


Lane = Literal["punctual", "late", "hung"]  # sinks of one never wait for a recovery of another's
LANES: tuple[Lane, ...] = get_args(Lane)


@dataclass(frozen=True, slots=True)
class CopySettings:
    """What the pipeline wants of one table at one sink."""

    mode: Mode
    on_gap: Literal["backfill", "stop"] = "backfill"
    fingerprint: str = ""  # of what shapes the copy's rows
    accept: bool = False  # a copy of another shape may be replaced


@dataclass(frozen=True, slots=True)
class Copy:
    """One table at one sink: streaming from `at`, held at `at`, or to be seeded.

    `durable` is what the sink itself has; the rest is what we know beyond that. Nothing between
    `durable.at` and `at` was for this copy.
    """

    status: Literal["streaming", "held", "unseeded"]
    at: Position | None = None  # None: to be seeded, wherever it stood; else right there
    edition: int = 0
    hold: Hold | None = None
    resumed: int = 0  # the last request to resume that was taken up
    source_identity: str = ""  # its places, `at` and the durable one, are of this history
    durable: Version | None = None  # None: the sink has no such copy
    shaped: bool = True  # its rows have the shape that the settings ask for
    wave: int | None = None  # at most one in flight (D3)
    failures: int = 0  # in a row: it could not be read, or a seed did not help
    retry_at_ms: int = 0  # it is not read before
    fault: Fault | None = None  # why it could not be read, until it could

    @property
    def version(self) -> Version | None:
        """What the sink would have if all that we know were durable."""
        if self.at is None:
            return None
        return Version(self.edition, self.at, None if self.hold is None else self.hold.code, self.resumed)


@dataclass(frozen=True, slots=True)
class SinkState:
    """One sink as this runner knows it."""

    settings: Mapping[str, CopySettings]
    phase: Phase = "unowned"
    token: int = 0
    epoch: int = 0  # bumped by every reset
    cursor: Position | None = None  # durable, in the sink itself
    copies: Mapping[str, Copy] = field(default_factory=dict)
    failures: int = 0
    broken_waves: int = 0  # jobs in a row that failed as a whole with this sink among others
    broken_recoveries: int = 0  # the same of the jobs that were to recover it
    retry_at_ms: int = 0
    fault: Fault | None = None
    late: bool = False  # left its group; gets small waves of its own until it keeps up with the others
    hung: bool = False  # nothing came of its last order or recovery within a deadline
    paused: bool = False
    paused_tables: frozenset[str] = frozenset()
    retired: bool = False  # taken out of the pipeline: never acquired; kept, so that its epochs go on growing

    @property
    def position(self) -> Position | None:
        """Read up to here: the furthest behind of what streams; where nothing does, the cursor."""
        places = [
            copy.at
            for table, copy in self.copies.items()
            if copy.status == "streaming" and copy.at is not None and table not in self.paused_tables
        ]
        return min(places, default=self.cursor)

    @property
    def lane(self) -> Lane:
        """With which others it is recovered. A late one need not be slow: it may have refused at once."""
        return "hung" if self.hung else "late" if self.late else "punctual"

    @property
    def busy(self) -> bool:
        """Whether some order is out."""
        return any(copy.wave is not None for copy in self.copies.values())

    @property
    def busy_seeding(self) -> bool:
        """Whether a seed is out."""
        return any(copy.wave is not None and copy.status == "unseeded" for copy in self.copies.values())

    @property
    def busy_streaming(self) -> bool:
        """Whether changes are out, or what is known is being made durable."""
        return any(copy.wave is not None and copy.status != "unseeded" for copy in self.copies.values())

    def with_copies(self, changed: Mapping[str, Copy]) -> SinkState:
        """The same with some copies replaced."""
        return replace(self, copies={**self.copies, **changed}) if changed else self


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """What a wave asks of one copy. `at`: where it was read up to when the wave started (None: a seed)."""

    kind: OrderKind
    expected: Version | None
    at: Position | None
    edition: int  # that it leaves
    resumed: int = 0  # that it leaves
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class SinkOrder:
    """What a wave knows of one of its sinks."""

    epoch: int
    token: int
    tables: Mapping[str, CopyOrder]


@dataclass(frozen=True, slots=True)
class Wave:
    """One Spark job. Of changes: the same tables of all `sinks`, all of which stand at `after`.

    One that persists has no window: each copy's place is in its order.
    """

    id: int
    kind: WaveKind
    sinks: Mapping[str, SinkOrder]
    tables: tuple[str, ...]  # that are read
    after: Position | None
    upto_max: Position
    late: bool = False
    identity: str = ""  # of the source that is read


@dataclass(frozen=True, slots=True)
class Recover:
    """Effect: take these sinks over and read their cursors. sink → (epoch, token)."""

    sinks: Mapping[str, tuple[int, int]]
    lane: Lane = "punctual"


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
    unready: Mapping[str, str] = field(default_factory=dict)  # tables that cannot be given whole yet, and why
    next_wave: int = 1
    waves: Mapping[int, Wave] = field(default_factory=dict)
    turn: int = 0  # alternates the choice of the next group

    @property
    def wanted(self) -> Mapping[str, SinkState]:
        """The sinks that the pipeline has now."""
        return {name: sink for name, sink in self.sinks.items() if not sink.retired}

    def with_sinks(self, changed: Mapping[str, SinkState]) -> Delivery:
        """The same with some sinks replaced."""
        return replace(self, sinks={**self.sinks, **changed}) if changed else self
