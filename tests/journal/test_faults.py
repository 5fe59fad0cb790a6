"""Nodes, coordinator, producers and readers as real processes, hurt one after the other while they work.

What was acknowledged is there once, in order, with the same bytes; and what a reader has read stays.
"""

from __future__ import annotations

import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journal import plain_reader
from tests.journal.cluster import Cluster
from tests.journal.processes import Follower, Writer, check
from tests.patience import PATIENCE_S
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader

DOWN_S = 1.0
STOPPED_S = 3.0  # longer than a replica is waited for
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
TINY = (64 << 10, resource.RLIM_INFINITY)


class Trial:
    """One cluster under fire: a producer that writes, two readers that follow."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(folder, proxied=True).start()
        self.place = ["--coordinator", self.cluster.address]
        self.writers: list[Writer] = []
        self.new_writer()
        self.wait_for_more()
        self.followers = [Follower(self.place), Follower(self.place)]

    def new_writer(self) -> None:
        self.writers.append(Writer(self.place, f"w{len(self.writers)}"))

    def wait_for_more(self) -> None:
        """The log goes on."""
        writer = self.writers[-1]
        wanted = len(writer.acknowledged) + self.rng.randint(1, 300)
        deadline = time.monotonic() + PATIENCE_S
        while len(writer.acknowledged) < wanted:
            assert writer.process.poll() is None, self.cluster.said()
            assert time.monotonic() < deadline, (self.cluster.status(), self.cluster.said())
            time.sleep(0.01)

    # --- faults ---

    def node_killed(self) -> None:
        node = self.rng.choice(self.cluster.nodes)
        node.kill()
        self.wait_for_more()
        node.start()

    def node_stopped(self) -> None:
        node = self.rng.choice(self.cluster.nodes)
        node.signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0, STOPPED_S))
        self.wait_for_more()
        node.signal(signal.SIGCONT)

    def disk_full(self) -> None:
        node = self.rng.choice(self.cluster.nodes).running
        assert node is not None
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, TINY)
        self.wait_for_more()
        time.sleep(DOWN_S)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, UNLIMITED)

    def cable_cut(self) -> None:
        proxy = self.rng.choice(self.cluster.proxies)
        proxy.cut()
        time.sleep(self.rng.uniform(0, DOWN_S))
        self.wait_for_more()
        proxy.mend()

    def coordinator_killed(self) -> None:
        self.cluster.coordinator.kill()
        self.wait_for_more()  # the open segment is written all the same
        time.sleep(self.rng.uniform(0, DOWN_S))
        self.cluster.coordinator.start()

    def producer_killed(self) -> None:
        self.writers[-1].process.kill()
        assert self.writers[-1].end() == -signal.SIGKILL
        self.new_writer()

    def producer_stopped_and_replaced(self) -> None:
        old = self.writers[-1]
        old.process.send_signal(signal.SIGSTOP)
        self.new_writer()
        self.wait_for_more()
        old.process.send_signal(signal.SIGCONT)
        assert old.end() == 1  # another writer has taken the log over

    def everything_killed(self) -> None:
        for process in (self.cluster.coordinator, *self.cluster.nodes):
            process.kill()
        for process in (self.cluster.coordinator, *self.cluster.nodes):
            process.start()

    def node_and_producer_killed(self) -> None:
        node = self.rng.choice(self.cluster.nodes)
        node.kill()
        self.producer_killed()
        self.wait_for_more()  # its end was found by copying, if it had been a replica
        node.start()

    @property
    def faults(self) -> list[Callable[[], None]]:
        return [
            self.node_killed,
            self.node_stopped,
            self.disk_full,
            self.cable_cut,
            self.coordinator_killed,
            self.producer_killed,
            self.producer_stopped_and_replaced,
            self.everything_killed,
            self.node_and_producer_killed,
            self.node_killed,
        ]

    # --- the end ---

    def all_alive(self) -> None:
        self.cluster.wait_for(
            lambda status: (
                all(node["state"] == "alive" for node in status["nodes"])
                and all(process.listens() for process in (self.cluster.coordinator, *self.cluster.nodes))
            )
        )
        self.wait_for_more()

    def reconcile(self) -> None:
        """Everything that was acknowledged, and everything that was ever read; by our reader, and by one that
        shares nothing with it."""
        self.writers[-1].process.kill()
        self.writers[-1].end()
        acknowledged = max(place for writer in self.writers for place in writer.acknowledged)
        for follower in self.followers:
            follower.wait_for(acknowledged)  # also what a dead producer could not publish any more
            follower.end()
        reader = ReplicatedReader(self.cluster.address, "log")
        found = check(reader, self.writers)
        for follower in self.followers:
            assert follower.read == list(enumerate(found[: len(follower.read)], start=1))
        reader.close()
        assert self.on_disk() == dict(enumerate(found, start=1))

    def on_disk(self) -> dict[int, str]:
        """What the nodes' files say by the format alone, once the last segment has been ended, too. Replicas
        that several nodes have agree."""
        ReplicatedJournal(self.cluster.address, "log").close()
        self.cluster.wait_for(
            lambda status: (
                not any(log["unsealed"] for log in status["logs"])
                and not any(node["damaged"] for node in status["nodes"])
            )
        )
        nodes = [self.cluster.folder / f"n{n}" for n in range(len(self.cluster.nodes))]
        rows = plain_reader.read_nodes(nodes, "log")
        return {number: row[0].decode() for number, row in rows.items()}

    def stop(self) -> None:
        for writer in self.writers:
            if writer.process.poll() is None:
                writer.process.kill()
        for follower in self.followers:
            follower.process.kill()
        self.cluster.stop()


def survive(folder: Path, *, seed: int, faults: int) -> None:
    trial = Trial(folder, seed)
    try:
        for number in range(faults):
            kinds = trial.faults
            kinds[number % len(kinds)]()
            trial.all_alive()
        trial.reconcile()
    finally:
        trial.stop()


def test_nothing_is_lost_whatever_fails(tmp_path: Path) -> None:
    """Ten faults, one of each kind, under load."""
    survive(tmp_path, seed=1, faults=10)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 7))
def test_nothing_is_lost_in_a_hundred_faults(tmp_path: Path, seed: int) -> None:
    """Twenty for each of five seeds."""
    survive(tmp_path, seed=seed, faults=20)
