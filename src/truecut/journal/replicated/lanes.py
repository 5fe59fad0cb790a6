"""Threads for the coordinator's questions, apart from each other by node and by kind of work.

A node that does not answer keeps its own lane busy and nobody else's. A copy may take minutes: those that a
takeover waits for are not behind those that only bring back the number of replicas, and neither is in the way
of a question.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from truecut.core.segment_log import NodeId

Lane = Literal["question", "copy to decide", "copy to repair"]
THREADS: dict[Lane, int] = {"question": 4, "copy to decide": 4, "copy to repair": 2}


class Lanes:
    """For one thread that hands out work."""

    def __init__(self) -> None:
        self._pools: dict[tuple[NodeId, Lane], ThreadPoolExecutor] = {}

    def submit(self, node: NodeId, lane: Lane, work: Callable[[], None]) -> None:
        """Soon; behind what waits for the same node in the same lane."""
        pool = self._pools.get((node, lane))
        if pool is None:
            pool = ThreadPoolExecutor(THREADS[lane], thread_name_prefix=f"keeper, {lane}")
            self._pools[node, lane] = pool
        pool.submit(work)

    def close(self) -> None:
        """What has not begun is not done."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
