"""Ports for servers that tests start on this machine."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

# Below those that the system gives to outgoing connections, which might take a port before its server does.
FIRST, LAST = 10_000, 32_000
SLICES = 8


def free_port() -> int:
    """A port that nobody listens on now, and that nobody else of this run is told of."""
    return next(port for port in _untold if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _mine() -> Iterator[int]:
    """Processes that run tests at once are numbered (gw0, gw1, …), and each has ports of its own."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % SLICES
    width = (LAST - FIRST) // SLICES
    mine = range(FIRST + number * width, FIRST + (number + 1) * width)
    # Another run on this machine begins elsewhere.
    return iter(random.SystemRandom().sample(mine, len(mine)))


_untold = _mine()
