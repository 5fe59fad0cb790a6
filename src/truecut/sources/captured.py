"""What a source offers that keeps no history of its own, beside `contract.Source`: its changes are captured
into a journal, what its tables held before is read in units.

The lease, the journal's opening and trimming, and Spark's jobs are the runtime's. The way that changes take,
and what a unit is, are the source's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from truecut.config.secret import Secret
from truecut.errors import Fault
from truecut.journal.contract import Journal, JournalReader
from truecut.model.position import Position
from truecut.model.table import TableName


class Progress(Protocol):
    """How a capture is, for `status`."""

    @property
    def kept_bytes(self) -> int | None:
        """What the source keeps of its log for us; None: it was not asked yet."""
        ...

    def document(self) -> dict[str, Any]:
        """As JSON documents show it; `released` in the form that `SourceKind.place` reads."""
        ...


class Capturing(Protocol):
    """One source into one journal, which is open for writing."""

    @property
    def progress(self) -> Progress: ...

    def run(self, stop: Callable[[bool], bool]) -> None:
        """Until `stop(drained)` says so, which is told whether everything that was there has been read.
        The source is released up to a place only when the journal has everything before it (C1). Raises what
        it cannot go on with; everything durable stays, and another run goes on."""
        ...


class Kept(Protocol):
    """What the journal has of a source, without a gap, as of one look."""

    @property
    def identity(self) -> str:
        """As `Observation.identity`."""
        ...

    @property
    def head(self) -> int:
        """The last place that is captured."""
        ...

    @property
    def resumes_at(self) -> Position:
        """The record from which a capture goes on: it stays, and all behind it."""
        ...

    def needless_after(self, place: int) -> Position:
        """The last record that nobody needs who has everything up to a place before the head."""
        ...


class Unit(Protocol):
    """A picklable piece of a table, read on an executor."""

    @property
    def is_pinned(self) -> bool:
        """Whether it can be read only as long as what its turn holds: now, or its table begins anew."""
        ...

    def run(self) -> int:
        """How many rows it read; 0 if somebody has read it meanwhile. What it read is durable. Raises
        TruecutError."""
        ...


class Units(Protocol):
    """Tables of a source as they are read piece by piece, by any number of processes. What was read becomes
    a seed when the source says that the table is ready (`Observation.unready` no longer names it)."""

    @property
    def readers(self) -> int:
        """How many sessions the source may have of it at once."""
        ...

    def lacking(
        self, tables: Sequence[TableName], held: ExitStack
    ) -> Mapping[TableName, Sequence[Unit] | Fault]:
        """The units that are to be read of each, or why none can be now; nothing before anything was
        captured. `held` lasts for the turn: it gets whatever its units need."""
        ...

    def waits(self, fault: Fault) -> bool:
        """Whether nothing is wrong, and others have to end something first, which they soon will."""
        ...

    def pause(self, table: TableName, *, paused: bool) -> None:
        """Read no more of it, whoever is about to, or go on."""
        ...

    def ask_again(self, table: TableName, asked: int) -> None:
        """What was read of the table before this request is of no use any more."""
        ...

    def forget_older(self, table: TableName) -> None:
        """What was read before the newest reading."""
        ...


class Witness(Protocol):
    """The source's log, kept a second time for whoever verifies."""

    @property
    def dsn(self) -> Secret: ...

    @property
    def slot(self) -> str: ...

    @property
    def publication(self) -> str: ...

    def let_go(self, place: int) -> int | None:
        """The source may forget its log before this place; returns where it is kept from by now, None if
        that is not known: the next time moves it."""
        ...


class Captured(Protocol):
    """A source, as capture and the backfill see it."""

    @property
    def name(self) -> str:
        """What the lease is called: one capture of a source at a time."""
        ...

    @property
    def units(self) -> Units: ...

    def capture(self, journal: Journal, *, check: Callable[[], None], spool_folder: Path | None) -> Capturing:
        """`check` raises when the lease is no longer ours; it is asked before every durable step."""
        ...

    def kept(self, journal: JournalReader) -> Callable[[], Kept | None]:
        """To be asked again and again: what the journal has; None before anything was captured."""
        ...

    def witness(self) -> Witness | None:
        """Where the pipeline asks for one."""
        ...

    def drop_made(self) -> tuple[list[str], list[str]]:
        """Remove what capture has made at the source; returns what is gone, and what is not ours."""
        ...

    def forget(self) -> None:
        """Remove what is on this machine beside the journal."""
        ...
