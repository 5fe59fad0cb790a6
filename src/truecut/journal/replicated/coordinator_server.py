"""The coordinator's process: its questions on the wire."""

from __future__ import annotations

from truecut.journal.replicated.coordinator import Coordinator
from truecut.journal.replicated.wire import Action, Server
from truecut.journal.security import Security
from truecut.listen_address import Address


def serve_coordinator(coordinator: Coordinator, listen: Address, security: Security) -> Server:
    """Listens as soon as it is made."""
    asked = {
        "heartbeat": coordinator.heartbeat,
        "open": coordinator.open,
        "settled": coordinator.settled,
        "segment": coordinator.segment,
        "close": coordinator.close,
        "trim": coordinator.trim,
        "segments": coordinator.segments,
        "status": coordinator.status,
    }
    actions: dict[str, Action] = {f"coordinator.{name}": act for name, act in asked.items()}
    return Server("coordinator", listen, security, actions)
