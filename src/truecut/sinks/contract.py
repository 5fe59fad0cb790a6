"""What every sink promises. Its code runs on Spark's executors.

1. `recover(token)` makes the sink ours: after it returns, no commit of an older token has any effect.
2. `stage(order, packets)` takes the rows in and touches nothing of the sink. `commit(order, staged)` is one
   transaction: data, cursor and fence together, or nothing.
3. An order may run twice, also at the same time; at most one of the runs has an effect.
4. Orders for different tables of one sink may run at the same time, in processes of their own; each has its
   effect, and the cursor tells of both.
5. Errors are receipts, classified; but for a TruecutError while staging, a raised exception is a bug.

A sink that `stages_apart` lets many tasks take in the rows of one large seed: `landing` says where, each
task's `stage_part` leaves its rows there and tells of them, `gather` makes of all that was told what `commit`
carries out. Rows that were left and never committed have no effect; a piece that was staged twice is told
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

import pyarrow as pa

from truecut.errors import Fault, TruecutError
from truecut.model.cursor import Cursor
from truecut.model.order import Order, Receipt, Rejected
from truecut.model.table import Column, Mode
from truecut.sinks.parts import Landing, Part, checked, counted


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows of one table for one sink (in the form of `model.change`), or the reason to hold that table.

    Packets of an order come grouped by table, a fault before any rows of its table.
    """

    table: str
    rows: pa.Table | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class SinkLook:
    """What stands at one sink, seen without leaving a trace. A fault means that nobody knows."""

    cursor: Cursor | None = None
    tables: frozenset[str] = frozenset()  # of those that the pipeline wants there
    refused: Mapping[str, Fault] = field(default_factory=dict)  # table → why it will not be written
    missing: tuple[tuple[str, str], ...] = ()  # what a run would make first: ("catalog", its address), …
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a sink is, for whoever makes its orders."""

    keeps: Literal["state", "events"] = "state"  # the latest of each key; or every change, in order
    stages_apart: bool = False  # many tasks may stage parts of an order, in processes of their own


class PinnedRead(Protocol):
    """A picklable piece of a copy's content, read on an executor by the sink's own client."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Its rows: the columns that were asked for, under their own names. TruecutError when they cannot be
        read."""
        ...


class Pinned(Protocol):
    """A sink at one moment: cursor and content are of one snapshot, for as long as it is pinned."""

    @property
    def cursor(self) -> Cursor | None: ...

    @property
    def version(self) -> str:
        """The sink's own name for the moment; may be empty."""
        ...

    def altered(self, table: str, columns: Sequence[Column], *, mode: Mode) -> str | None:
        """How a copy's columns are not of the types that this pipeline gave them; None: they are."""
        ...

    def content(
        self, table: str, columns: Sequence[Column], *, key: Sequence[str], mode: Mode, pieces: int
    ) -> Sequence[PinnedRead]:
        """A copy's rows in about so many pieces, which have no row in common. An append table has POSITION,
        SEQ, OP and UNCHANGED as well."""
        ...


class Staged(Protocol):
    """An order's packets, taken in and examined. The sink has not been touched."""

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Changes that the sink can never take. They are data: whoever commits decides about them first."""
        ...

    def close(self) -> None:
        """Committed or not, it is no longer needed."""
        ...


class Gate(Protocol):
    """Sees an order's packets pass, and says what is committed."""

    def watched(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        """The same packets."""
        ...

    def settled(self) -> Order:
        """All of them are staged: the order to commit; TruecutError where there is none."""
        ...


S = TypeVar("S", bound=Staged)


class Sink(Protocol[S]):
    """One destination."""

    @property
    def capabilities(self) -> Capabilities: ...

    def recover(self, *, epoch: int, token: int) -> Receipt:
        """Take over: create what is missing, raise the fence to `token`, report the cursor."""
        ...

    def stage(self, order: Order, packets: Iterator[Packet]) -> S:
        """Take the packets in; TruecutError when that cannot be done here and now."""
        ...

    def commit(self, order: Order, staged: S) -> Receipt:
        """Carry out the order with what was staged for it."""
        ...

    def apply(self, order: Order, packets: Iterator[Packet], gate: Gate | None = None) -> Receipt:
        """Both, one after the other, where one process does all. `gate`: whoever has a word between them."""
        if gate is None:
            return self._carry_out(order, lambda: self.stage(order, packets))
        return self._carry_out(order, lambda: self.stage(order, gate.watched(packets)), gate.settled)

    # --- for those that stage apart

    def landing(self, order: Order) -> Landing | None:
        """Where tasks may leave the rows of this seed; None: it has to be staged whole. Touches nothing."""
        return None

    def stage_part(self, order: Order, landing: Landing, packets: Iterator[Packet], *, piece: int) -> Part:
        """Leave the rows of one piece of the reading, durably. What cannot be done is told by the part, or a
        TruecutError."""
        raise AssertionError("this sink stages whole orders")

    def gather(self, order: Order, parts: Sequence[Part], stops: Mapping[str, Fault]) -> S:
        """What all parts come to, without moving their rows; TruecutError when some are not there. `stops`:
        tables that could not be read."""
        raise AssertionError("this sink stages whole orders")

    def apply_parts(
        self,
        order: Order,
        parts: Sequence[Part],
        stops: Mapping[str, Fault],
        *,
        pieces: int,
        routed: Mapping[str, int] | None = None,
        settled: Callable[[], Order] | None = None,
    ) -> Receipt:
        """Carry out the order with what so many pieces have left. `routed`: rows by table, as those say who
        read them; None where nobody counts. `settled`: the order to commit, once all is gathered."""
        refused = next((part for part in parts if part.fault is not None), None)
        if refused is not None:
            outcome: Literal["late", "failed"] = "late" if refused.late else "failed"
            return Receipt(order.sink, order.epoch, outcome, fault=refused.fault)

        def whole() -> S:
            told = checked(order, parts, pieces=pieces)
            if routed is not None:
                counted(order, told, routed, stops)
            return self.gather(order, told, stops)

        return self._carry_out(order, whole, settled)

    def _carry_out(
        self, order: Order, stage: Callable[[], S], settled: Callable[[], Order] | None = None
    ) -> Receipt:
        started = time.monotonic()
        try:
            with closing(stage()) as staged:
                to_commit = order if settled is None else settled()
                receipt = replace(self.commit(to_commit, staged), rejected=staged.rejected)
        except TruecutError as error:
            receipt = Receipt(order.sink, order.epoch, "failed", fault=error.fault)
        return replace(receipt, apply_ms=round((time.monotonic() - started) * 1000))
