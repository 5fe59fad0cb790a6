"""What a wave asks of one sink, and what the sink answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from truecut.errors import Fault
from truecut.model.cursor import Cursor, Hold
from truecut.model.position import Position
from truecut.model.table import Mode, TableSchema


@dataclass(frozen=True, slots=True)
class TableOrder:
    """One table of an order.

    changes: apply the packets of (the table's own position, upto].
    replace: the packets are the whole table at `upto`; what the sink held is replaced (REPLACE
             semantics for a mirror; an append table gets them as `read` rows).
    hold:    no packets; record the exception, the table keeps its place.
    """

    kind: Literal["changes", "replace", "hold"]
    mode: Mode
    key: tuple[str, ...]
    schema: TableSchema | None  # the source's, at `upto`; None for hold
    hold: Hold | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """Move one sink from `expected` to `upto`, in one transaction, if `token` still owns it.

    `expected` is the durable cursor the runner knows (None: never seeded). A sink that stands at
    `upto` already answers ALREADY; one that stands anywhere else, or has seen a newer token, refuses.
    Copies of tables that are not `carried` any more are held where they stand (None: all are carried).
    """

    sink: str
    epoch: int
    token: int
    expected: Position | None
    upto: Position
    source_identity: str
    tables: Mapping[str, TableOrder]
    carried: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows written for one table."""

    puts: int = 0
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A sink's answer: data, never a failed job.

    applied/already: `cursor` is the sink's durable cursor now (tables that had to stop are holds in it).
    late:            no answer before the deadline; the commit may still happen.
    aborted:         the window could not be read; the sink was not touched.
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
    apply_ms: int = 0
