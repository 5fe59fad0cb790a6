"""The pipeline as the rest of the program sees it: resolved, checked, frozen.

Owns the names and types of settings after loading: every default is filled in, every path is absolute,
every `${…}` and placeholder is expanded, `for_each` lines have become sinks. Picklable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from truecut.config.kinds import Address
from truecut.config.secret import Secret
from truecut.model.table import Mode, TableName

WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Where captured changes are kept: a folder, or a log on nodes that a coordinator knows."""

    path: Path
    bytes_max: int
    coordinator: str | None = None


@dataclass(frozen=True, slots=True)
class TableSettings:
    """One table of the pipeline."""

    name: TableName
    key: tuple[str, ...]
    route_by: str | None
    broadcast: bool
    unrouted: Literal["count", "stop"]
    on_gap: Literal["backfill", "stop"]
    backfill: Literal["initial", "none"] = "initial"
    on_schema_change: Literal["evolve", "stop"] = "evolve"
    exclude: tuple[str, ...] = ()

    @property
    def is_pattern(self) -> bool:
        """Whether the source has to be asked which tables are meant."""
        return not WILDCARDS.isdisjoint(str(self.name))


@dataclass(frozen=True, slots=True)
class WitnessSettings:
    """A second slot, which keeps the source's log for whoever verifies, and how much of it at most."""

    slot: str
    bytes_max: int


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Where changes come from; and what a source that is captured has to know of its pipeline."""

    type: str
    address: Address
    pipeline: str = ""
    journal: JournalSettings | None = None
    tables: tuple[TableSettings, ...] = ()
    units: Path | None = None  # the folder for tables that are read piece by piece
    witness: WitnessSettings | None = None  # none: nobody reads its log a second time


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """One destination; a `for_each` sink is one of these for each line of its file."""

    name: str
    type: str
    address: Address
    route: str | None  # None: all rows
    existing: Literal["refuse", "replace"]
    modes: Mapping[str, Mode]  # table name text → mode: the tables this sink carries
    hold_bytes_max: int = 1 << 62  # of a journal, before the others go on without it


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Bounds of one wave, and how often to look for changes."""

    rows_max: int
    bytes_max: int
    interval_ms: int
    deadline_ms: int  # how long one sink may take in a wave


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to start Spark."""

    master: str | None  # None: chosen from the machine
    conf: Mapping[str, str]
    lines: Mapping[str, int] = field(
        default_factory=dict, compare=False
    )  # where the file says it: `master`, names of conf


Level = Literal["files", "source", "sink"]  # of a verification


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """What a run verifies by itself, and how long after the last time."""

    level: Level
    interval_ms: int


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Where certificates and their evidence are, how often one is issued, and how long they are kept."""

    path: Path
    interval_ms: int
    keep_ms: int | None = None  # None: for good
    verify: VerifySettings | None = None  # None: only when somebody asks


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where a run tells how it is."""

    address: str | None = None  # None: nowhere
    token: Secret | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything the pipeline file says."""

    name: str
    path: Path
    source: SourceSettings
    tables: tuple[TableSettings, ...]
    sinks: tuple[SinkSettings, ...]
    batch: BatchSettings
    lease_ms: int
    control: Secret
    state: Path
    spark: SparkSettings
    listen: ListenSettings = ListenSettings()
    certificate: CertificateSettings | None = None  # none are issued
    files: tuple[Path, ...] = field(default=(), compare=False)  # it was read from these: `path`, `for_each`


def copy_fingerprint(table: TableSettings, sink: SinkSettings) -> str:
    """A hash of what shapes this table's rows at this sink: its key, its route and its mode.

    Where the data lives, batches and leases do not count: changing them changes no row. Nor does the
    order in which the file names things.
    """
    # Without a route at the sink, or without a route column, every row arrives.
    route = None if sink.route is None or table.route_by is None else [table.route_by, sink.route]
    shape = [sorted(table.key), route, sink.modes[str(table.name)]]
    text = json.dumps(shape, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
