"""A node of the open segment is killed under a producer that appends one record after the other.

Measured: from the kill until an append that began after the node was gone has been committed.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing

from benchmarks.journal.logs import SINGLE_BYTES, Payloads, ReplicatedLog, read_back
from tests.journal.cluster import Cluster, Process
from truecut.journal.record import Record
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.wire import Message

STEADY_S = (0.2, 0.6)  # of appends before a kill
COMMIT_S = 60.0  # until the log counts as stuck


def failovers(cluster: Cluster, log: ReplicatedLog, *, rounds: int) -> list[float]:
    """Seconds for each kill. In the end everything that was acknowledged is read back."""
    with closing(log.journal()) as journal:
        producer = _Producer(journal)
        producer.append()
        took = [_failover(cluster, log, producer, random.Random(turn)) for turn in range(rounds)]
    read_back(log, size=SINGLE_BYTES, count=producer.appended)
    return took


class _Producer:
    def __init__(self, journal: ReplicatedJournal) -> None:
        self._journal = journal
        self._payloads = Payloads(SINGLE_BYTES)
        self.appended = 0

    def append(self) -> None:
        payload = self._payloads.make(self.appended + 1)
        position = self._journal.submit([Record(payload)]).result(COMMIT_S)
        self.appended += 1
        assert position.place == self.appended


class _Kill(threading.Thread):
    """Some time from now."""

    def __init__(self, victim: Process, after_s: float) -> None:
        super().__init__(daemon=True)
        self._victim = victim
        self._after_s = after_s
        self.killed_at = 0.0
        self.gone_at = float("inf")

    def run(self) -> None:
        time.sleep(self._after_s)
        self.killed_at = time.monotonic()
        self._victim.kill()
        self.gone_at = time.monotonic()


def _failover(cluster: Cluster, log: ReplicatedLog, producer: _Producer, chance: random.Random) -> float:
    victim = cluster.nodes[_replica_of_open_segment(cluster, log, chance)]
    kill = _Kill(victim, chance.uniform(*STEADY_S))
    kill.start()
    began = 0.0
    while began < kill.gone_at:
        began = time.monotonic()
        producer.append()
    took = time.monotonic() - kill.killed_at
    _restart(cluster, victim)
    return took


def _restart(cluster: Cluster, victim: Process) -> None:
    """Once the coordinator has missed it: before, it would take the new process for a second one."""
    cluster.wait_for(lambda status: _alive(status) < len(cluster.nodes))
    victim.start()
    cluster.wait_for(lambda status: _alive(status) == len(cluster.nodes))


def _alive(status: Message) -> int:
    return sum(node["state"] == "alive" for node in status["nodes"])


def _replica_of_open_segment(cluster: Cluster, log: ReplicatedLog, chance: random.Random) -> int:
    segment = cluster.segments(log.name)[-1]
    assert segment["end"] is None, "the segment is open"
    return cluster.node_at(chance.choice(sorted(segment["nodes"].values())))
