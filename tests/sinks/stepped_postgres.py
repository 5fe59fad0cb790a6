"""A PostgreSQL sink in a process of its own that stops before each step of its transaction until told to.

The steps are the real ones: lock (the tables' names), data (look at the fence, write the tables), fence (lock
the cursor's row and look again), commit; or takeover and commit. One that waits for a lock of the server is
left waiting: the server itself says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import psycopg

from tests.patience import PATIENCE_S
from tests.sinks.forked import CONTEXT
from tests.sinks.stepped import Call, Switch
from truecut.config.secret import Secret
from truecut.model.cursor import Cursor
from truecut.model.order import Order, Receipt
from truecut.sinks import copies
from truecut.sinks.postgres import cursor, transaction
from truecut.sinks.postgres import sink as sinks
from truecut.sinks.postgres.sink import PostgresSink

_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"


@dataclass(slots=True)
class SteppedSink:
    """The parent's side. `call` starts a call; each `step` lets it do one step more, or wait."""

    name: str
    pipe: Connection
    process: Any
    observer: psycopg.Connection[tuple[Any, ...]]
    receipt: Receipt | None = None
    under_way: bool = False  # told to go on, and not heard of since

    def call(self, call: Call) -> None:
        self.receipt, self.under_way = None, True
        self.pipe.send(call)
        self._hear()

    def step(self) -> None:
        """One step, as far as the server lets it."""
        if self.receipt is None and not self.under_way:
            self.pipe.send("go")
            self.under_way = True
        if self.under_way:
            self._hear()

    def _hear(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.pipe.poll(0.01):
            assert time.monotonic() < deadline, f"{self.name} neither answers nor waits for a lock"
            if self.observer.execute(_WAITS, (self.name,)).fetchone() != (0,):
                return
        answer = self.pipe.recv()
        self.under_way = False
        self.receipt = answer if isinstance(answer, Receipt) else None

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join(10)


def start(name: str, sink: PostgresSink, switch: Switch | None = None) -> SteppedSink:
    """A new process for this sink; the server knows its session by that name."""
    dsn = sink.address.dsn.reveal()
    named = replace(sink, address=replace(sink.address, dsn=Secret(f"{dsn} application_name={name}")))
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_serve, args=(theirs, named, switch), daemon=True)
    process.start()
    return SteppedSink(name, ours, process, psycopg.connect(dsn, autocommit=True))


def finish(*both: SteppedSink) -> None:
    """Let them go on, in turn, to their ends."""
    while any(one.receipt is None for one in both):
        for one in both:
            one.step()


def _serve(pipe: Connection, sink: PostgresSink, switch: Switch | None) -> None:
    def gated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            pipe.send(name)
            pipe.recv()
            return function(*args, **kwargs)

        return run

    if switch is not None:
        switch()
    for owner, function in (
        (transaction, "lock_tables"),
        (transaction.Transaction, "_checked"),
        (transaction, "commit"),
        (sinks, "take_over"),
        (sinks, "commit"),
    ):
        setattr(owner, function, gated(function, getattr(owner, function)))
    while (call := pipe.recv()) is not None:
        if isinstance(call[0], Order):
            pipe.send(sink.apply(call[0], iter(call[1])))
        else:
            pipe.send(sink.recover(epoch=call[0], token=call[1]))


# --- faults that the tests must find ------------------------------------------------------------------


def unlocked_fence() -> None:
    """Bug switch: the last look at the fence does not lock the cursor's row."""
    real = cursor.read_cursor
    setattr(transaction, "read_cursor", lambda *args, locked=False: real(*args))  # noqa: B010


def fence_read_once() -> None:
    """Bug switch: what was seen before the work counts at its end."""
    known: list[Cursor] = []

    def check(found: Cursor | None, order: Order) -> Cursor:
        if not known:
            known.append(real(found, order))
            return known[0]
        assert found is not None
        known.clear()
        return found

    real = copies.check
    setattr(copies, "check", check)  # noqa: B010
