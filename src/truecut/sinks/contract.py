"""What every sink promises. Its code runs on Spark's executors.

1. `recover(token)` makes the sink ours: after it returns, no commit of an older token has any effect.
2. `stage(order, packets)` takes the rows in and touches nothing of the sink. `commit(order, staged)` is one
   transaction: data, cursor and fence together, or nothing.
3. An order may run twice, also at the same time; at most one of the runs has an effect.
4. Orders for different tables of one sink may run at the same time, in processes of their own; each has its
   effect, and the cursor tells of both.
5. Errors are receipts, classified; but for a TruecutError while staging, a raised exception is a bug.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

import pyarrow as pa

from truecut.errors import Fault, TruecutError
from truecut.model.cursor import Cursor
from truecut.model.order import Order, Receipt, Rejected


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


class Staged(Protocol):
    """An order's packets, taken in and examined. The sink has not been touched."""

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Changes that the sink can never take. They are data: whoever commits decides about them first."""
        ...

    def close(self) -> None:
        """Committed or not, it is no longer needed."""
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

    def apply(self, order: Order, packets: Iterator[Packet]) -> Receipt:
        """Both, one after the other, where one process does all."""
        started = time.monotonic()
        try:
            with closing(self.stage(order, packets)) as staged:
                receipt = replace(self.commit(order, staged), rejected=staged.rejected)
        except TruecutError as error:
            receipt = Receipt(order.sink, order.epoch, "failed", fault=error.fault)
        return replace(receipt, apply_ms=round((time.monotonic() - started) * 1000))
