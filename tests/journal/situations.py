"""Lives by hand: who is placed where, and which messages arrive, so that one bug shows, whatever the seed.

Each situation is a story that ends well; with its bug it breaks a law, or ends otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.journal.simulated import COORDINATOR, Cables, Entry, Message
from tests.journal.simulation import World
from truecut.core.segment_log import NodeId


class Stage(World):
    """A world that does only what it is told. Segments are placed on n0 and n1."""

    def __init__(self, bugs: frozenset[str]) -> None:
        super().__init__(0, bugs)
        self.turbulent = False

    def place(self, alive: list[NodeId]) -> frozenset[NodeId]:
        return frozenset(alive[:2])

    def carry(self, kind: str, *, to: str = "", segment: int = 0) -> None:
        """All such messages that are under way."""
        for message in list(self.net):
            if message.kind == kind and to in ("", message.to) and segment in (0, message.segment):
                self.net.remove(message)
                self.arrive(message)
                self.check()

    def lose(self, kind: str) -> list[Message]:
        lost = [message for message in self.net if message.kind == kind]
        self.net = [message for message in self.net if message.kind != kind]
        return lost

    def owns(self, name: str) -> None:
        self.send(Message(COORDINATOR, "open", name))
        self.carry("open")
        self.carry("granted")

    def begins(self, name: str) -> None:
        """A segment of its own, behind the one that it gave up."""
        self.ask_for_segment(name)
        self.carry("close")
        self.carry("segment", to=COORDINATOR)
        self.carry("segment", to=name)

    def commits(self, name: str) -> None:
        self.write(name)
        segment = self.writers[name].state.segment
        self.carry("append", segment=segment)
        for node in ("n0", "n1"):
            self.sync(node)
        self.carry("ack")

    def coordinates(self, *kinds: str) -> None:
        """One round of the coordinator's own work, and what follows from it."""
        self.coordinator_moves()
        for kind in kinds:
            self.carry(kind)
        self.check()

    def beats(self) -> None:
        for name, node in self.nodes.items():
            if node.up:
                self.send(Message(COORDINATOR, "beat", name, damaged=node.damaged()))
        self.carry("beat")
        self.carry("trimmed")

    def silence(self, *nodes: NodeId) -> None:
        """The coordinator does not hear of these for now."""
        self.cables = Cables({(node, COORDINATOR) for node in nodes})

    def must_end(self, number: int, *, end: int) -> None:
        self.must(self.log[number].end == end, f"segment {number} ends at {end}")


def acknowledgements_of_an_earlier_segment(stage: Stage) -> None:
    """One node has acknowledged two entries, the other none; in the next segment it has nothing yet."""
    stage.owns("p0")
    stage.begins("p0")
    stage.write("p0")
    stage.write("p0")
    stage.carry("append", to="n0")
    stage.sync("n0")
    stage.carry("ack")
    stage.give_up("p0")
    stage.begins("p0")
    stage.write("p0")
    stage.carry("append", to="n1", segment=2)
    stage.sync("n1")
    stage.carry("ack")
    stage.must(not stage.sure, "what one node has is not committed")


def a_producer_wakes_up_behind_a_trim(stage: Stage) -> None:
    """It slept between its grant and its first append."""
    stage.owns("p0")
    stage.begins("p0")
    stage.owns("p1")
    stage.coordinates("fence", "fenced")
    stage.coordinates("end", "ended")
    stage.begins("p1")
    stage.trim()
    stage.must(stage.log.trimmed == 1, "what nobody needs is trimmed")
    stage.beats()
    stage.commits("p0")
    stage.commits("p1")
    stage.must(stage.sure == {1: Entry(1, 2)}, "only the owner commits")


def an_open_replica_loses_its_files(stage: Stage) -> None:
    """Its producer is gone, and what it had acknowledged is at the other node."""
    stage.owns("p0")
    stage.begins("p0")
    stage.commits("p0")
    stage.nodes["n0"].lose_files(1, noticed=False)
    stage.owns("p1")
    stage.coordinates("fence", "fenced")
    stage.beats()
    stage.coordinates("copy")
    for _ in range(2):
        stage.copies_move()
    stage.carry("fenced")
    stage.coordinates()
    stage.must_end(1, end=1)


def a_copy_is_lost_and_a_shorter_one_ordered(stage: Stage) -> None:
    """A node has told that it has copied an entry; nobody has heard it yet. Its files are lost, and another,
    shorter replica is to be copied there."""
    stage.owns("p0")
    stage.begins("p0")
    stage.write("p0")
    stage.carry("append", to="n1")
    stage.owns("p1")
    stage.silence("n0")
    stage.coordinates("fence", "fenced")
    stage.coordinates("copy")
    for _ in range(2):
        stage.copies_move()
    late = stage.lose("fenced")
    stage.nodes["n2"].lose_files(1, noticed=False)
    stage.silence("n1")
    stage.coordinator_restarts()
    stage.coordinates("fence", "fenced")
    stage.coordinates("copy")
    stage.copies_move()
    stage.lose("fenced")
    stage.silence("n0")
    stage.coordinator_restarts()
    stage.net += late
    stage.coordinates("fence", "fenced")
    stage.coordinates("end")
    stage.consumer_asks()
    for _ in range(10):
        stage.consumer_reads()
        stage.check()


def the_shorter_of_two_replicas_was_copied_and_is_lost(stage: Stage) -> None:
    """The copy grows, or the log could not go on."""
    stage.owns("p0")
    stage.begins("p0")
    stage.write("p0")
    stage.carry("append", to="n1")
    stage.sync("n1")
    stage.owns("p1")
    stage.nodes["n1"].up = False
    stage.coordinates("fence", "fenced")
    stage.coordinates("copy")
    stage.copies_move()
    stage.lose("fenced")
    stage.nodes["n0"].up, stage.nodes["n0"].lost = False, True
    stage.coordinator_restarts()
    stage.nodes["n1"].up = True
    stage.coordinates("fence", "fenced")
    stage.coordinates("copy")
    for _ in range(2):
        stage.copies_move()
    stage.carry("fenced")
    stage.coordinates()
    stage.must_end(1, end=1)


def a_copy_that_was_told_is_lost(stage: Stage) -> None:
    """Its answer is under way, and an end may rest on it: that is the one loss that two replicas survive."""
    stage.owns("p0")
    stage.begins("p0")
    stage.commits("p0")
    stage.owns("p1")
    stage.silence("n0")
    stage.coordinates("fence", "fenced")
    stage.coordinates("copy")
    for _ in range(2):
        stage.copies_move()
    stage.must(stage.spared("n2", 1), "one of them may be lost")
    stage.nodes["n2"].lose_files(1, noticed=False)
    stage.must(not stage.spared("n1", 1), "and no other before it is made good")
    stage.must(stage.spared("n3", 1), "but whoever has nothing of it")
    stage.carry("fenced")
    stage.coordinates()
    stage.must_end(1, end=1)


ALL: tuple[Callable[[Stage], None], ...] = (
    acknowledgements_of_an_earlier_segment,
    a_producer_wakes_up_behind_a_trim,
    an_open_replica_loses_its_files,
    a_copy_is_lost_and_a_shorter_one_ordered,
    the_shorter_of_two_replicas_was_copied_and_is_lost,
    a_copy_that_was_told_is_lost,
)
SHOWN: dict[str, Callable[[Stage], None]] = {
    "acks_kept": acknowledgements_of_an_earlier_segment,
    "begun_anew": a_producer_wakes_up_behind_a_trim,
    "trimmed_forgotten": a_producer_wakes_up_behind_a_trim,
    "missing_is_empty": an_open_replica_loses_its_files,
    "copied_anew": a_copy_is_lost_and_a_shorter_one_ordered,
}
