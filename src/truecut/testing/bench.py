"""What the laws of a sink are tried on: a destination, and a look at it from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from truecut.model.change import READ
from truecut.model.cursor import Cursor
from truecut.sinks.contract import Sink
from truecut.testing.orders import applied, order, packets, seed

SEED = [(READ, 4, 1, "a"), (READ, 4, 2, "b"), (READ, 4, 3, "c")]
SEEDED = [(1, "a"), (2, "b"), (3, "c")]


class SinkBench(Protocol):
    """A destination that does not exist yet, or is empty; and a look at it from outside.

    Tables are `main.NAME`, with the columns id BIGINT and value VARCHAR; some have note VARCHAR, too.
    """

    @property
    def name(self) -> str:
        """Of the back end, for the record of which laws ran."""
        ...

    @property
    def never(self) -> str | None:
        """A value that this sink can never take; None: it takes them all."""
        ...

    def sink(self) -> Sink[Any]:
        """Another handle of the same destination, called `acme`."""
        ...

    def rows(self, table: str) -> Sequence[tuple[Any, ...]]:
        """What a mirror holds, all columns, sorted by id, as the destination's own client reads it."""
        ...

    def log(self, table: str) -> Sequence[tuple[Any, ...]]:
        """What an append table holds: position, seq, op, id, value, in the order of the first two."""
        ...

    def marks(self, table: str) -> Sequence[tuple[str, list[str] | None]]:
        """What it says beside: the transaction and the columns that were not sent, in the same order."""
        ...


def cursor_of(bench: SinkBench, token: int) -> Cursor:
    """The durable cursor, as its owner finds it again."""
    receipt = applied(bench.sink().recover(epoch=1, token=token))
    assert receipt.cursor is not None
    return receipt.cursor


def seeded(bench: SinkBench) -> None:
    """Ours with token 1; the mirror `t` is seeded at 4 with three rows."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed()), packets(t=SEED)))
