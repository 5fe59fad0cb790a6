"""What every source offers: a change log, `(after, upto]`, and tables readable at a position.

The driver plans with metadata only; rows are read by `ReadTask`s, which travel to Spark's executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from truecut.errors import Fault
from truecut.model.position import Position
from truecut.model.table import Mode, TableName, TableSchema

GAP_CODES = frozenset({"TC2010", "TC2011"})  # the place was expired or damaged by maintenance


@dataclass(frozen=True, slots=True)
class Observation:
    """Where the source's history stands now. A range may start at `oldest` or later."""

    identity: str  # changes when the source is replaced by another
    oldest: Position
    head: Position
    head_committed_at_ms: int


@dataclass(frozen=True, slots=True)
class TableRead:
    """One table of the pipeline, as sources need to know it."""

    name: TableName
    key: tuple[str, ...]
    route_by: str | None


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """A window ends before it exceeds any of these, but always holds at least one transaction.

    It never ends before `not_before`: where a sink stands that catches one of its tables up.
    """

    rows_max: int
    bytes_max: int
    not_before: Position | None = None


class ReadTask(Protocol):
    """A picklable piece of a window or a seed, read on an executor. Replayable: the same every time."""

    @property
    def table(self) -> TableName: ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """Batches in the form of `model.change`. Raises TruecutError: a retryable one fails the wave,
        any other one stops this table."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """A planned range `(after, upto]`: never splits a transaction.

    Tables in `faults` must be held. Tables in `lost` cannot be read from where they stand, although the
    source still lists that place: a gap.
    """

    upto: Position
    upto_committed_at_ms: int
    tasks: Sequence[ReadTask]
    schemas: Mapping[TableName, TableSchema]
    rows_estimate: int
    faults: Mapping[TableName, Fault] = field(default_factory=dict)

    @property
    def lost(self) -> frozenset[str]:
        """The tables whose fault is a gap."""
        return frozenset(str(name) for name, fault in self.faults.items() if fault.code in GAP_CODES)


class Source(Protocol):
    """The driver's side of a source. Calls are quick: metadata only, no rows."""

    def observe(self) -> Observation: ...

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        """The table's schema at a position; TruecutError when it is missing or cannot be replicated."""
        ...

    def plan_window(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: Position,
        limits: WindowLimits,
        parallelism: int,
    ) -> Window:
        """Changes of each table after its own position, up to a common end ≤ `upto_max`."""
        ...

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        """The tables' whole content at `at`, as READ rows."""
        ...
