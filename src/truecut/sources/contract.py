"""What every source offers: a change log, `(after, upto]`, and tables readable at a position.

The driver plans with metadata only; rows are read by `ReadTask`s, which travel to Spark's executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from truecut.errors import Fault
from truecut.model.finding import Check
from truecut.model.position import UNTOLD, Position, SourcePosition
from truecut.model.table import Mode, TableName, TableSchema
from truecut.model.units import Witness


@dataclass(frozen=True, slots=True)
class Observation:
    """Where the source's history stands now. A range may start at `oldest` or later."""

    identity: str  # changes when the source is replaced by another
    oldest: Position
    head: Position
    head_committed_at_ms: int
    head_source: SourcePosition = UNTOLD  # the head in the source's own words
    ahead: Position | None = None  # where the source's own log was, beyond what can be read of it by now
    unready: Mapping[TableName, str] = field(default_factory=dict)  # cannot be given whole yet, and why


@dataclass(frozen=True, slots=True)
class TableRead:
    """One table of the pipeline, as sources need to know it."""

    name: TableName
    key: tuple[str, ...]
    route_by: str | None
    reading: int = 1  # of the whole: the how manieth for the append tables that get it


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """A window ends before it exceeds any of these, but always holds at least one transaction.

    It never ends before `not_before`: where a sink stands that catches one of its tables up.
    """

    rows_max: int
    bytes_max: int
    not_before: Position | None = None


class Rows(NamedTuple):
    """Some rows of one table, in the form of `model.change`."""

    table: TableName
    batch: pa.RecordBatch


class Stopped(Exception):
    """Some tables of a task cannot go on: raised behind the last row. Their rows that came before are not to
    be applied either; those of the other tables are all there."""

    def __init__(self, faults: Mapping[TableName, Fault]) -> None:
        super().__init__(", ".join(map(str, faults)))
        self.faults = faults


class ReadTask(Protocol):
    """A picklable piece of a window or a seed, read on an executor. Replayable: the same every time."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Whose rows it may give."""
        ...

    def read(self) -> Iterator[Rows]:
        """The rows, as they come. Raises TruecutError: a retryable one means that the task's tables cannot be
        read now, whatever the reason; a gap, that they cannot be read from where they stand; any other one,
        that something about the tables themselves must be mended: they are held. Raises Stopped behind the
        last row where that is so of some of the tables."""
        ...


@runtime_checkable
class OfUnits(Protocol):
    """A ReadTask of a seed that is put together of units, each read under a snapshot of its own."""

    def read_witnessed(self, witness: Witness) -> Iterator[Rows]:
        """The same rows as `read`. The witness is told of the units beside them, in the same pass."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """A planned range `(after, upto]`: never splits a transaction.

    `identity` is that of the source it was planned at, which may have been replaced since the last look.
    A table that is neither in `schemas` nor in `faults` has nothing in it. Tables in `faults` must be held.
    Those of them in `lost` cannot be read from where they stand, although
    the source still lists that place: a gap. Tables in `altered` have other columns at the end than where
    they stand: every sink that has them needs the order, with rows or without. Of these, `alike` are there in
    case: as far as anybody knows their columns are the same, and nothing is to be told.
    """

    upto: Position
    upto_committed_at_ms: int
    tasks: Sequence[ReadTask]
    schemas: Mapping[TableName, TableSchema]
    rows_estimate: int
    faults: Mapping[TableName, Fault] = field(default_factory=dict)
    altered: frozenset[TableName] = frozenset()
    lost: frozenset[TableName] = frozenset()
    upto_source: SourcePosition = UNTOLD  # the end in the source's own words
    identity: str = ""
    alike: frozenset[TableName] = frozenset()


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table at the head, as metadata tells, before routing."""

    rows: int | None  # None: nobody has counted, nor guessed
    size_bytes: int
    units: int | None = None  # in which it would be read; None: it is not read in units
    left_out: tuple[str, ...] = ()  # columns that the source does not tell, and no copy has


@dataclass(frozen=True, slots=True)
class Outstanding:
    """About how much a table has changed since a position, before routing."""

    transactions: int
    changes: int
    size_bytes: int


class Survey(Protocol):
    """What `plan` and `doctor` ask of a source. Read-only, and no trace is left."""

    def observe(self) -> Observation: ...

    def check(self, seen: Observation) -> Check:
        """Whether the source is fit to be read."""
        ...

    def facts(self, table: TableRead, seen: Observation) -> TableFacts | Fault:
        """How large a table is; or why it cannot be copied."""
        ...

    def outstanding(self, table: TableName, *, after: Position, seen: Observation) -> Outstanding: ...

    def commits(self, *, after: Position, seen: Observation) -> Sequence[tuple[Position, int]]:
        """The commits after a position that the history still has, oldest first, each with its time in ms."""
        ...

    def key_counts(self, table: TableRead, seen: Observation) -> tuple[int, int]:
        """How many rows have NULL in their key at the head, and how many keys occur more than once."""
        ...


class Observed(Protocol):
    """What all sources have. Calls are quick: metadata only, no rows."""

    def observe(self) -> Observation: ...

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        """The table's schema at a position; TruecutError when it is missing or cannot be replicated."""
        ...


class ReplayableHistory(Protocol):
    """Changes that can be read again, from wherever a table stands."""

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


class PinnedReads(Protocol):
    """Tables that can be read as they were at a position, for as long as it takes."""

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        """The tables' whole content at `at`, as READ rows."""
        ...


class Reread(Protocol):
    """The source once more, for whoever verifies: its tables at places that are known exactly. What is told
    of them does not come by the way that changes take."""

    @property
    def identity(self) -> str: ...

    @property
    def frontier(self) -> Position | None:
        """The one place at which it can be read; None: any that its history still has."""
        ...

    def plan(self, table: TableRead, *, at: Position, parallelism: int) -> Window:
        """The table's whole content there, as READ rows."""
        ...


class Source(Observed, ReplayableHistory, PinnedReads, Protocol):
    """The driver's side of a source that has all of it. One that keeps no history has a journal before it;
    one that cannot pin its past is seeded otherwise."""
