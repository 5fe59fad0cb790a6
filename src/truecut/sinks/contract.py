"""What every sink promises. Its code runs on Spark's executors, one call for one sink at a time.

1. `recover(token)` makes the sink ours: after it returns, no commit of an older token has any effect.
2. `apply(order, packets)` is one transaction: data, cursor and fence together, or nothing.
3. An order may run twice, also at the same time; at most one of the runs has an effect.
4. Errors are receipts, classified; a raised exception is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from truecut.errors import Fault
from truecut.model.order import Order, Receipt


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows of one table for one sink (in the form of `model.change`), or the reason to hold that table.

    Packets of an order come grouped by table, a fault before any rows of its table.
    """

    table: str
    rows: pa.Table | None = None
    fault: Fault | None = None


class Sink(Protocol):
    """One destination."""

    def recover(self, *, epoch: int, token: int) -> Receipt:
        """Take over: create what is missing, raise the fence to `token`, report the cursor."""
        ...

    def apply(self, order: Order, packets: Iterator[Packet]) -> Receipt:
        """Carry out an order."""
        ...
