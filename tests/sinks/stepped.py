"""A sink in a process of its own that stops before each step of its transaction until told to go on.

The steps are the real ones: begin (which fixes what the transaction reads), data (check the fence, write
the table) or takeover (read and update the cursor rows), cursor, commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tests.sinks.forked import CONTEXT
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import pool, transaction
from truecut.sinks.ducklake import sink as sinks
from truecut.sinks.ducklake.sink import DuckLakeSink

Call = tuple[Order, list[Packet]] | tuple[int, int]  # an order with its packets, or epoch and token
Switch = Callable[[], None]  # breaks something in the process, for tests that must fail


@dataclass(slots=True)
class SteppedSink:
    """The parent's side. `call` starts a call; each `step` lets it do one step more."""

    pipe: Connection
    process: Any
    receipt: Receipt | None = None
    at: str = ""  # the step it stands before

    def call(self, call: Call) -> None:
        self.receipt = None
        self.pipe.send(call)
        self._wait()

    def step(self) -> str:
        """One step; returns its name, or nothing when the call has ended."""
        if self.receipt is not None:
            return ""
        name = self.at
        self.pipe.send("go")
        self._wait()
        return name

    def _wait(self) -> None:
        answer = self.pipe.recv()
        if isinstance(answer, Receipt):
            self.receipt, self.at = answer, ""
        else:
            self.at = answer

    def finish(self) -> Receipt:
        while self.receipt is None:
            self.step()
        return self.receipt

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join(10)


def start(sink: DuckLakeSink, switch: Switch | None = None) -> SteppedSink:
    """A new process for this sink."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_serve, args=(theirs, sink, switch), daemon=True)
    process.start()
    return SteppedSink(ours, process)


def _serve(pipe: Connection, sink: DuckLakeSink, switch: Switch | None) -> None:
    def gated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            pipe.send(name)
            pipe.recv()
            return function(*args, **kwargs)

        return run

    pool.session().close()
    if switch is not None:
        switch()
    for owner, function, name in (
        (pool.Lake, "begin", "begin"),
        (pool.Lake, "commit", "commit"),
        (transaction.Transaction, "_checked_cursor", "data"),
        (transaction, "write_cursor", "cursor"),
        (sinks, "take_over", "takeover"),
    ):
        setattr(owner, function, gated(name, getattr(owner, function)))
    while (call := pipe.recv()) is not None:
        if isinstance(call[0], Order):
            pipe.send(sink.apply(call[0], iter(call[1])))
        else:
            pipe.send(sink.recover(epoch=call[0], token=call[1]))


def retries_of_ducklake() -> None:
    """Bug switch: DuckLake redoes a lost commit by itself, as it does by default."""
    pool._root.execute("SET ducklake_max_retry_count = 10")  # type: ignore[union-attr]
