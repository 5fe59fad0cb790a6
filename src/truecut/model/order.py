"""What a wave asks of one sink, and what the sink answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from truecut.errors import Fault
from truecut.model.cursor import Cursor, Hold, Version
from truecut.model.position import UNTOLD, Position, SourcePosition
from truecut.model.table import Mode, TableSchema

OrderKind = Literal["changes", "replace", "persist", "hold", "repair"]


@dataclass(frozen=True, slots=True)
class TableOrder:
    """One table of an order: from the version `expected` (None: the sink has no such copy) to `leaves`.

    changes: apply the packets, which are all that this copy lacks up to `leaves.at`.
    replace: the packets are the whole table at `leaves.at`; what the sink held is replaced (REPLACE
             semantics for a mirror; an append table gets them as `read` rows).
    repair:  the packets put right what somebody else has changed in a mirror: deletes and inserts, of the
             keys that differ; the copy stays where it is. What does not fit is refused, nothing is held.
    persist: no packets, nothing up to `leaves.at` was for this copy; a hold that it had is lifted.
    hold:    no packets; the copy stands at `leaves.at` and is held.
    A table that has to stop is held where it was, in the same transaction: `stopped`.
    """

    kind: OrderKind
    mode: Mode
    key: tuple[str, ...]
    schema: TableSchema | None  # the source's, at `leaves.at`; None for persist and hold
    expected: Version | None
    leaves: Version
    hold: Hold | None = None
    fingerprint: str = ""
    source_position: SourcePosition = UNTOLD  # `leaves.at` in the source's own words
    evidence: str = ""  # the header of the segment that tells its rows; none: no rows, or nobody wants any
    began_empty: bool = False  # its copies have nothing from before they began

    def stopped(self, code: str) -> Version:
        """What the order leaves of a copy that had to stop."""
        before = self.expected or Version(0, Position(self.leaves.at.generation, 0))
        return Version(before.edition, before.at, code, self.leaves.resumed)

    def is_done(self, version: Version | None) -> bool:
        """Whether this is what the order leaves, gone through or stopped."""
        if version is None or version == self.expected:
            return False
        return version == self.leaves or (version.hold is not None and version == self.stopped(version.hold))


@dataclass(frozen=True, slots=True)
class Order:
    """Move some copies of one sink, in one transaction, if `token` still owns it.

    A sink whose copies are as the order leaves them answers ALREADY; one where any of them is neither so
    nor as expected, or that has seen a newer token, refuses. Copies that are not named stay as they are, so
    orders for other tables may commit before or after.
    """

    sink: str
    epoch: int
    token: int
    upto: Position  # where its packets end
    source_identity: str
    tables: Mapping[str, TableOrder]
    certificate: str = ""  # a digest for the cursor to carry on; none: the cursor keeps the one it has


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows written for one table. Their digests are not here: the copy's head of evidence in the receipt's
    cursor tells them (`certificate/segment.py`)."""

    puts: int = 0
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """One change that a sink cannot take, whatever is tried: by its id, never by its values."""

    table: str
    position: Position
    seq: int
    code: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """A sink's answer: data, never a failed job.

    applied/already: `cursor` is the sink's durable cursor now (tables that had to stop are holds in it).
    late:            no answer before the deadline; the commit may still happen.
    aborted:         the window could not be read; the sink was not touched. `unread` says of which tables.
    failed:          `fault` says why and whether to retry; `fenced_by` is set when a newer token owns
                     the sink.
    """

    sink: str
    epoch: int
    outcome: Literal["applied", "already", "late", "failed", "aborted"]
    cursor: Cursor | None = None
    counts: Mapping[str, Counts] = field(default_factory=dict)
    sink_version: str = ""
    fault: Fault | None = None
    fenced_by: int | None = None
    unread: Mapping[str, Fault] = field(default_factory=dict)
    apply_ms: int = 0
    rejected: tuple[Rejected, ...] = ()  # left out of what was applied
