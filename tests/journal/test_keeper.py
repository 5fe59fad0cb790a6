"""The coordinator's own work: whoever hangs holds up nobody else, and no error is swallowed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.journal.served import ANYWHERE, OPEN, served_coordinator, served_node, until
from tests.journal.world import at, content, lines
from tests.patience import PATIENCE_S
from truecut.core.segment_log import Log, Segment
from truecut.journal.replicated import keeper
from truecut.journal.replicated.lanes import THREADS, Lanes
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.node_server import Heartbeat, NodeServer
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.registry import LogEntry, Registry
from truecut.journal.replicated.wire import Message, Peer

LOGS = 20  # more than the coordinator could ever ask about at the same time in one queue
ENTRIES = 3


class HangingServer(NodeServer):
    """A node that never gets on with a copy."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, ANYWHERE, OPEN)
        self.asked, self.released = threading.Event(), threading.Event()

    def _copy(self, asked: Message) -> Message:
        self.asked.set()
        self.released.wait()
        return {"length": None}


@contextmanager
def _hanging(folder: Path, coordinator: str) -> Iterator[HangingServer]:
    node = Node(folder, OPEN)
    server = HangingServer(node)
    address = f"127.0.0.1:{server.port}"
    heartbeat = Heartbeat(node, address=address, coordinator=coordinator, security=OPEN)
    heartbeat.start()
    try:
        yield server
    finally:
        server.released.set()
        heartbeat.stop()
        heartbeat.join()
        server.shutdown()
        node.close()


def _node_id(folder: Path) -> str:
    node = Node(folder, OPEN)
    node.close()
    return node.id


def test_copies_that_hang_hold_up_no_takeover(tmp_path: Path) -> None:
    """Many finished segments are to be copied to a node that never answers; meanwhile another log is taken
    over, and goes on."""
    good = frozenset({_node_id(tmp_path / "n0"), _node_id(tmp_path / "n1")})
    registry = Registry(tmp_path / "c")
    nodes = good | {"gone"}
    registry.save_node("gone", "127.0.0.1:1")
    for number in range(LOGS):
        ended = Log((Segment(0, nodes, 1, ENTRIES, nodes), Segment(ENTRIES, nodes, 1, 0, nodes)), 1)
        registry.save_log(None, LogEntry(f"log-{number}", "ab" * 16, 3, ended))
    registry.close()
    with ExitStack() as stack:
        known, coordinator = stack.enter_context(served_coordinator(tmp_path / "c", replace_after_s=1.0))
        for name in ("n0", "n1"):
            stack.enter_context(served_node(tmp_path / name, coordinator))
        hanging = stack.enter_context(_hanging(tmp_path / "n2", coordinator))
        until(hanging.asked.is_set)
        first = stack.enter_context(closing(ReplicatedJournal(coordinator, "log")))
        assert first.append(lines("a")) == at(1)
        second = stack.enter_context(closing(ReplicatedJournal(coordinator, "log")))
        until(lambda: known.logs["log"].log.undecided is None)
        assert second.append(lines("b")) == at(2)
        assert content(second) == lines("a", "b")
        assert not hanging.released.is_set()


def test_lanes_of_a_node_are_apart_from_each_other_and_from_those_of_others() -> None:
    """However much hangs in one of them, what is asked in another one is done."""
    lanes, released, done = Lanes(), threading.Event(), threading.Event()

    def hang() -> None:
        released.wait()

    try:
        for hanging in THREADS:
            for _ in range(sum(THREADS.values())):
                lanes.submit(f"hangs in {hanging}", hanging, hang)
            for lane in THREADS.keys() - {hanging}:
                done.clear()
                lanes.submit(f"hangs in {hanging}", lane, done.set)
                assert done.wait(PATIENCE_S), (hanging, lane)
            done.clear()
            lanes.submit("another", hanging, done.set)
            assert done.wait(PATIENCE_S), hanging
    finally:
        released.set()
        lanes.close()


def test_a_question_that_came_to_nothing_is_not_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that refuses at once is left in peace for a while each time."""
    asked_s: list[float] = []

    class Refusing(Peer):
        def ask(self, action: str, request: Message, **options: Any) -> Message:
            if action == "node.fence":
                asked_s.append(time.monotonic())
                raise RuntimeError
            return super().ask(action, request, **options)

    monkeypatch.setattr(keeper, "Peer", Refusing)
    with ExitStack() as stack:
        _, address = stack.enter_context(served_coordinator(tmp_path / "c"))
        stack.enter_context(served_node(tmp_path / "n0", address))
        stack.enter_context(served_node(tmp_path / "n1", address))
        stack.enter_context(closing(ReplicatedJournal(address, "log"))).append(lines("a"))
        stack.enter_context(closing(ReplicatedJournal(address, "log")))
        until(lambda: len(asked_s) >= 8)  # of both nodes
    assert all(later - before >= 0.2 for before, later in zip(asked_s, asked_s[2:], strict=False))


def test_an_unforeseen_error_is_logged_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As what the log waits for, by kind and without its text; and no longer, once the work succeeds."""

    class Faulty(Peer):
        broken = True

        def ask(self, action: str, request: Message, **options: Any) -> Message:
            if self.broken and action == "node.fence":
                raise RuntimeError("a secret")
            return super().ask(action, request, **options)

    monkeypatch.setattr(keeper, "Peer", Faulty)
    with ExitStack() as stack, caplog.at_level(logging.ERROR):
        coordinator, address = stack.enter_context(served_coordinator(tmp_path / "c"))
        for name in ("n0", "n1"):
            stack.enter_context(served_node(tmp_path / name, address))
        first = stack.enter_context(closing(ReplicatedJournal(address, "log")))
        first.append(lines("a"))
        second = stack.enter_context(closing(ReplicatedJournal(address, "log")))
        until(lambda: second.hindrance() is not None)
        until(lambda: _waiting(coordinator) is not None)
        told = _waiting(coordinator)
        assert told is not None
        assert told["code"] == "TC6067"
        assert "RuntimeError" in told["message"]
        assert "secret" not in told["message"]
        assert any(record.exc_info for record in caplog.records)
        Faulty.broken = False
        assert second.append(lines("b")) == at(2)
        until(lambda: _waiting(coordinator) is None)
        assert content(second) == lines("a", "b")


def _waiting(coordinator: Any) -> dict[str, str] | None:
    (found,) = coordinator.status({})["logs"]
    waiting: dict[str, str] | None = found["waiting"]
    return waiting
