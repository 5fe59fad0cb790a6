"""A coordinator and nodes within the test's own process: real ports, nothing to start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S
from truecut.journal.replicated.coordinator import REPLACE_AFTER_S, Coordinator
from truecut.journal.replicated.coordinator_server import serve_coordinator
from truecut.journal.replicated.keeper import Keeper
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.node_server import Heartbeat, NodeServer
from truecut.journal.replicated.registry import Registry
from truecut.journal.security import Security
from truecut.listen_address import Address

ANYWHERE = Address("127.0.0.1", 0)
OPEN = Security()


@contextmanager
def served_coordinator(
    folder: Path, security: Security = OPEN, *, replace_after_s: float = REPLACE_AFTER_S
) -> Iterator[tuple[Coordinator, str]]:
    """The coordinator, and where it listens."""
    registry = Registry(folder)
    coordinator = Coordinator(registry, replace_after_s=replace_after_s)
    server = serve_coordinator(coordinator, ANYWHERE, security)
    keeper = Keeper(coordinator, security)
    keeper.start()
    try:
        yield coordinator, f"127.0.0.1:{server.port}"
    finally:
        keeper.stop()
        keeper.join()
        server.shutdown()
        registry.close()


@contextmanager
def served_node(folder: Path, coordinator: str, security: Security = OPEN) -> Iterator[tuple[Node, str]]:
    """The node, and where it listens; it has been heard by its coordinator."""
    node = Node(folder, security)
    server = NodeServer(node, ANYWHERE, security)
    address = f"127.0.0.1:{server.port}"
    heartbeat = Heartbeat(node, address=address, coordinator=coordinator, security=security)
    heartbeat.start()
    try:
        until(heartbeat.heard.is_set)
        if heartbeat.refused is not None:
            raise heartbeat.refused
        yield node, address
    finally:
        heartbeat.stop()
        heartbeat.join()
        server.shutdown()
        node.close()


@contextmanager
def served(folder: Path, *, nodes: int = 2, security: Security = OPEN) -> Iterator[tuple[str, list[str]]]:
    """All of it: the addresses of the coordinator and of the nodes."""
    with ExitStack() as stack:
        _, address = stack.enter_context(served_coordinator(folder / "c", security))
        found = [
            stack.enter_context(served_node(folder / f"n{n}", address, security))[1] for n in range(nodes)
        ]
        yield address, found


def until(condition: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
    """It comes true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
