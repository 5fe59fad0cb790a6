"""Nodes and coordinator killed at each of their durable steps, and started again: what was acknowledged is
there, once, in order, with the same bytes; and the log goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal import plain_reader
from tests.journal.cluster import Cluster, Process
from tests.journal.processes import Writer, check
from tests.journal.served import until
from truecut.failpoint import KILLED, NAMES
from truecut.journal.replicated.inspection import inspect_node
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader

NODE_STEPS = ("node_written", "node_synced", "node_fenced", "node_ended", "node_copied")
COORDINATOR_STEPS = (
    "coordinator_saving:1",
    "coordinator_saved:2",
    pytest.param("coordinator_saving:3", marks=pytest.mark.soak),
    pytest.param("coordinator_saved:4", marks=pytest.mark.soak),
)
ENOUGH = 50


class Trial:
    """One cluster and one log for all steps; a writer after the other."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder).start()
        self.place = ["--coordinator", self.cluster.address]
        self.writers: list[Writer] = []

    def new_writer(self) -> Writer:
        self.writers.append(Writer(self.place, f"w{len(self.writers)}"))
        return self.writers[-1]

    def kill_writer(self) -> None:
        self.writers[-1].process.kill()
        assert self.writers[-1].end() in (-signal.SIGKILL, 1)

    def restart_nodes(self, step: str, folder: Path) -> None:
        """All of them; the one that first comes to the step is killed there."""
        for node in self.cluster.nodes:
            node.kill()
        for node in self.cluster.nodes:
            node.start(TRUECUT_FAILPOINT=step, TRUECUT_FAILPOINT_HITS=str(folder))

    def killed(self, processes: list[Process]) -> Process:
        """The one that was killed at its step."""
        dead: list[Process] = []

        def found() -> bool:
            dead[:] = [one for one in processes if one.running is not None and one.running.poll() == KILLED]
            return bool(dead)

        until(found)
        return dead[0]

    def reconcile(self) -> None:
        """Everybody is there again; the content is what the writers were told."""
        journal = ReplicatedJournal(self.cluster.address, "log")
        head = journal.head()
        journal.close()
        reader = ReplicatedReader(self.cluster.address, "log")
        until(lambda: reader.head() == head)
        found = check(reader, self.writers)
        reader.close()
        assert head is not None
        assert len(found) == head.place
        self.cluster.wait_for(
            lambda status: (
                all(node["state"] == "alive" and not node["damaged"] for node in status["nodes"])
                and not any(log["unsealed"] for log in status["logs"])
            )
        )
        for n in range(len(self.cluster.nodes)):
            listed = inspect_node(self.cluster.folder / f"n{n}")
            assert not [one for segments in listed.values() for one in segments if one.damage]
        nodes = [self.cluster.folder / f"n{n}" for n in range(len(self.cluster.nodes))]
        rows = plain_reader.read_nodes(nodes, "log")
        assert {number: row[0].decode() for number, row in rows.items()} == dict(enumerate(found, start=1))


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    found = Trial(tmp_path_factory.mktemp("trial"))
    yield found
    for writer in found.writers:
        if writer.process.poll() is None:
            writer.process.kill()
    found.cluster.stop()


def test_every_step_has_its_test() -> None:
    """A durable step that is added gets one, too."""
    steps = {step.partition(":")[0] for step in (*NODE_STEPS, *COORDINATOR_STEPS) if isinstance(step, str)}
    assert steps == {name for name in NAMES if name.startswith(("node_", "coordinator_"))}


@pytest.mark.parametrize("step", ["node_written", "node_synced"])
def test_a_node_killed_while_it_writes(trial: Trial, tmp_path: Path, step: str) -> None:
    """The third time that it comes there: the log goes on without it, on the others."""
    trial.restart_nodes(f"{step}:3", tmp_path)
    writer = trial.new_writer()
    dead = trial.killed(trial.cluster.nodes)
    writer.wait_for(len(writer.acknowledged) + ENOUGH)
    trial.kill_writer()
    dead.start()
    trial.reconcile()


@pytest.mark.parametrize("step", ["node_fenced", "node_ended"])
def test_a_node_killed_while_a_segment_ends(trial: Trial, tmp_path: Path, step: str) -> None:
    """Its writer is dead, and another one comes: fence and end are asked for until they are durable."""
    trial.restart_nodes(step, tmp_path)
    trial.new_writer().wait_for(ENOUGH)
    trial.kill_writer()
    writer = trial.new_writer()
    dead = trial.killed(trial.cluster.nodes)
    dead.start()
    writer.wait_for(ENOUGH)
    trial.kill_writer()
    trial.reconcile()


def test_a_node_killed_while_it_copies(trial: Trial, tmp_path: Path) -> None:
    """A replica and the writer are dead; the copy that decides the end is whole, and not yet in its place."""
    trial.restart_nodes("node_copied", tmp_path)
    trial.new_writer().wait_for(ENOUGH)
    replica = trial.cluster.nodes[_replica_of_the_last(trial.cluster)]
    replica.kill()
    trial.kill_writer()
    writer = trial.new_writer()
    spare = trial.killed(trial.cluster.nodes)
    spare.start()
    writer.wait_for(ENOUGH)
    replica.start()
    trial.kill_writer()
    trial.reconcile()


def _replica_of_the_last(cluster: Cluster) -> int:
    return cluster.node_at(min(cluster.segments()[-1]["nodes"].values()))


@pytest.mark.parametrize("step", COORDINATOR_STEPS)
def test_a_coordinator_killed_while_it_saves(trial: Trial, step: str) -> None:
    """Before and after its transactions of a takeover: the grant, the end of the segment before, the next
    segment, its replicas' answers."""
    trial.new_writer().wait_for(ENOUGH)
    coordinator = trial.cluster.coordinator
    coordinator.kill()
    coordinator.start(TRUECUT_FAILPOINT=step)
    trial.cluster.wait_for(lambda status: all(node["state"] == "alive" for node in status["nodes"]))
    trial.kill_writer()
    writer = trial.new_writer()
    trial.killed([coordinator])
    coordinator.start()
    time.sleep(0.1)
    if _gave_up(writer):  # it had not been granted the log
        writer = trial.new_writer()
    writer.wait_for(ENOUGH)
    trial.kill_writer()
    trial.reconcile()


def _gave_up(writer: Writer) -> bool:
    """Nobody answered it when it opened the log; whoever was answered waits."""
    while not writer.acknowledged:
        if writer.process.poll() is not None:
            assert writer.end() == 1
            return True
        time.sleep(0.01)
    return False
