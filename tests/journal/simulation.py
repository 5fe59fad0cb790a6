"""A world in which the segment log's pure machines live through everything that can go wrong.

One seed is one life: messages are lost, late, doubled and out of order; nodes crash, lose what they had not
synced, or their disk; producers die, sleep and take over from each other; the coordinator forgets what is
not durable, and takes living nodes for dead (so it is with clocks that jump: nothing else looks at one). From
seed 2,000,000 on somebody is cut off from everybody else for a while, again and again. The laws are checked
at every step. Then everything heals, and the log has to hold every event, sealed and read.

    python -m tests.journal.simulation SEED [BUG]     lives one life again, step by step
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from truecut.core import segment_log as core
from truecut.core.segment_log import Log, NodeId, Producer, Replica

REPLICAS = 2
NODES = 4
PRODUCERS = 2
EVENTS = 8
TURBULENT_STEPS = 250
CALM_STEPS = 4_000
CABLES_CUT_FROM = 2_000_000


class LawBroken(AssertionError):
    """What must never be was."""


@dataclass(frozen=True, slots=True)
class Entry:
    event: int
    token: int  # of the producer that wrote it


@dataclass(frozen=True, slots=True)
class Message:
    to: str
    kind: str
    sender: str = ""
    segment: int = 0
    index: int = 0  # also a length, an end, a token
    known: int = 0
    entry: Entry | None = None


@dataclass(slots=True)
class Stored:
    """A replica with its entries; what is beyond `synced` dies in a crash."""

    replica: Replica = field(default_factory=Replica)
    entries: list[Entry] = field(default_factory=list)
    synced: int = 0


@dataclass(slots=True)
class Node:
    up: bool = True
    lost: bool = False  # the disk
    stored: dict[int, Stored] = field(default_factory=dict)
    unanswered: list[Message] = field(default_factory=list)

    def at(self, segment: int) -> Stored:
        return self.stored.setdefault(segment, Stored())


@dataclass(slots=True)
class Writer:
    state: Producer = field(default_factory=Producer)
    up: bool = True
    first: int = 0  # entries before its segment
    after: int = 0  # the segment before the one that it asks for
    closing: tuple[int, int] | None = None


@dataclass
class World:
    """One life."""

    seed: int
    bugs: frozenset[str] = frozenset()
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.cuts = random.Random(self.seed) if self.seed >= CABLES_CUT_FROM else None
        self.cut_off: str | None = None
        self.log = Log()
        self.nodes: dict[NodeId, Node] = {f"n{n}": Node() for n in range(NODES)}
        self.writers = {f"p{n}": Writer() for n in range(PRODUCERS)}
        self.net: list[Message] = []
        self.sure: dict[int, Entry] = {}
        self.read: list[Entry] = []
        self.turbulent = True
        self.ended_once: set[tuple[int, NodeId]] = set()
        self.ends: dict[int, int] = {}
        self.ranks: dict[tuple[NodeId, int], int] = {}

    # --- the life ---

    def live(self) -> None:
        for _ in range(TURBULENT_STEPS):
            self.step()
        self.turbulent, self.cut_off = False, None
        for node in self.nodes.values():
            if not node.lost:
                node.up = True
        for step in range(CALM_STEPS):
            self.step()
            if step % 50 == 0 and self.finished():
                return
        self.must(self.finished(), "the log goes on, is sealed and read")

    def finished(self) -> bool:
        sealed = all(
            self.nodes[node].lost or self.nodes[node].at(number).replica.state == "sealed"
            for number, segment in enumerate(self.log.segments, start=1)
            if segment.end is not None
            for node in segment.nodes
        )
        return sealed and len(self.read) == EVENTS and not core.to_end(self.log)

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self.deliver),
            (10, self.node_syncs),
            (10, self.producer_moves),
            (8, self.coordinator_moves),
            (8, self.consumer_reads),
        ]
        if self.turbulent:
            actions += [
                (3, self.lose_message),
                (3, self.double_message),
                (2, self.node_crashes),
                (3, self.node_restarts),
                (1, self.node_loses_disk),
                (1, self.producer_dies),
                (1, self.producer_takes_over),
                (1, self.coordinator_restarts),
            ]
            self.cut_somebody_off()
        weights = [weight for weight, _ in actions]
        self.rng.choices([action for _, action in actions], weights)[0]()
        self.check()

    # --- the network ---

    def send(self, message: Message) -> None:
        """In calm times nobody asks again before the first question has arrived."""
        if self.turbulent or message not in self.net:
            self.net.append(message)

    def deliver(self) -> None:
        if not self.net:
            return
        message = self.net.pop(self.rng.randrange(len(self.net)) if self.turbulent else 0)
        if self.cut_off in (message.to, message.sender or "coordinator"):
            return
        self.say(f"{message}")
        if message.to == "coordinator":
            self.coordinator_hears(message)
        elif message.to in self.nodes:
            if self.nodes[message.to].up:
                self.node_hears(message.to, message)
        elif self.writers[message.to].up:
            self.producer_hears(message.to, message)

    def cut_somebody_off(self) -> None:
        """Sometimes for a moment, sometimes for long; a mended cable is cut again."""
        if self.cuts is not None and self.cuts.random() < 0.04:
            everybody = ["coordinator", *self.nodes, *self.writers]
            self.cut_off = self.cuts.choice(everybody) if self.cut_off is None else None
            self.say(f"cut off: {self.cut_off}")

    def lose_message(self) -> None:
        if self.net:
            self.net.pop(self.rng.randrange(len(self.net)))

    def double_message(self) -> None:
        if self.net:
            self.net.append(self.rng.choice(self.net))

    # --- nodes ---

    def node_hears(self, name: NodeId, message: Message) -> None:
        node = self.nodes[name]
        stored = node.at(message.segment)
        if message.kind == "append":
            assert message.entry is not None
            replica, taken = core.take_append(
                stored.replica, index=message.index, count=1, known=message.known
            )
            if taken == "appended":
                stored.entries.append(message.entry)
            elif taken == "closed":
                self.send(Message(message.sender, "closed", name, message.segment))
            stored.replica = replica
            if taken in ("appended", "had already"):
                if "ack_before_fsync" in self.bugs:
                    self._ack(name, message)
                else:
                    node.unanswered.append(message)
        elif message.kind == "known":
            stored.replica = core.take_known(stored.replica, known=message.known)
        elif message.kind == "fence":
            self._sync(name)
            stored.replica, length = core.take_fence(stored.replica)
            if length is not None:
                self.send(Message("coordinator", "fenced", name, message.segment, length))
        elif message.kind == "copy":
            source = self.nodes[message.sender]
            if source.up and len(source.at(message.segment).entries) >= message.index:
                stored.replica, length = core.take_copy(stored.replica, length=message.index)
                if length is not None:
                    if length > len(stored.entries):
                        stored.entries = source.at(message.segment).entries[:length]
                    stored.synced = length
                    self.send(Message("coordinator", "fenced", name, message.segment, length))
        elif message.kind == "end":
            self._sync(name)
            stored.replica, end = core.take_end(stored.replica, end=message.index)
            if end is not None:
                stored.entries = stored.entries[:end]
                stored.synced = min(stored.synced, end)
                self.send(Message("coordinator", "ended", name, message.segment, end))

    def node_syncs(self) -> None:
        self._sync(self.rng.choice(list(self.nodes)))

    def _sync(self, name: NodeId) -> None:
        node = self.nodes[name]
        if not node.up:
            return
        for stored in node.stored.values():
            stored.synced = len(stored.entries)
        answered, node.unanswered = node.unanswered, []
        for message in answered:
            self._ack(name, message)

    def _ack(self, name: NodeId, message: Message) -> None:
        self.send(Message(message.sender, "ack", name, message.segment, message.index))

    def node_crashes(self) -> None:
        name = self.rng.choice(list(self.nodes))
        node = self.nodes[name]
        if not node.up:
            return
        self.say(f"{name} crashes")
        node.up = False
        node.unanswered = []
        for stored in node.stored.values():
            torn = len(stored.entries) > stored.synced
            kept = self.rng.randint(stored.synced, len(stored.entries))  # some of it may have made it
            stored.entries = stored.entries[:kept]
            if torn and "torn_tail_trusted" in self.bugs:
                stored.entries.append(Entry(0, 0))
            stored.synced = len(stored.entries)
            stored.replica = core.restarted(stored.replica, length=len(stored.entries))

    def node_restarts(self) -> None:
        down = [node for node in self.nodes.values() if not node.up and not node.lost]
        if down:
            self.rng.choice(down).up = True

    def node_loses_disk(self) -> None:
        """As many as may be lost; who comes back with another disk is another node."""
        if any(node.lost for node in self.nodes.values()):
            return
        name = self.rng.choice(list(self.nodes))
        self.say(f"{name} loses its disk")
        self.nodes[name] = Node(up=False, lost=True)

    # --- producers ---

    def producer_moves(self) -> None:
        name = self.rng.choice(list(self.writers))
        writer = self.writers[name]
        if not writer.up:
            if not self.turbulent:
                writer.up = True
            return
        state = writer.state
        if state.phase == "away":
            if not self.turbulent and (name != "p0" or self._owned()):
                return
            self.send(Message("coordinator", "open", name))
        elif state.phase == "asking":
            if writer.closing is not None:
                self.send(Message("coordinator", "close", name, *writer.closing))
            self.send(Message("coordinator", "segment", name, writer.after, state.token))
        elif self.rng.random() < 0.5 and writer.first + state.sent < EVENTS:
            writer.state = core.write(state)
            entry = Entry(writer.first + writer.state.sent, state.token)
            for node in state.acked:
                self.send(Message(node, "append", name, state.segment, writer.state.sent, state.done, entry))
        elif state.done and self.rng.random() < 0.5:
            for node in state.acked:
                self.send(Message(node, "known", name, state.segment, known=state.done))
        elif state.done < state.sent and self.rng.random() < 0.1:
            self._give_up(writer)

    def _owned(self) -> bool:
        return any(writer.up and writer.state.phase != "away" for writer in self.writers.values())

    def producer_hears(self, name: str, message: Message) -> None:
        writer = self.writers[name]
        if message.kind == "granted" and writer.state.phase == "away":
            writer.state = core.granted(token=message.index)
            writer.after, writer.closing = message.segment, None
        elif message.kind == "segment" and writer.state.phase == "asking":
            segment = self.log[message.segment]
            if segment.token == writer.state.token and message.segment > writer.after:
                writer.state = core.told_segment(writer.state, segment=message.segment, nodes=segment.nodes)
                writer.first, writer.closing = segment.first, None
        elif message.kind == "ack":
            writer.state = core.take_ack(
                writer.state, segment=message.segment, node=message.sender, index=message.index
            )
            for index in range(1, writer.state.done + 1):
                self.now_sure(Entry(writer.first + index, writer.state.token))
        elif message.kind == "closed":
            if writer.state.phase == "writing" and writer.state.segment == message.segment:
                self._give_up(writer)
        elif message.kind == "stand down":
            writer.state = core.stand_down(writer.state, token=message.index)

    def _give_up(self, writer: Writer) -> None:
        writer.closing = (writer.state.segment, writer.state.done)
        writer.after = writer.state.segment
        writer.state = core.give_up(writer.state)

    def producer_dies(self) -> None:
        writer = self.rng.choice(list(self.writers.values()))
        writer.state, writer.up = Producer(), self.rng.random() < 0.5

    def producer_takes_over(self) -> None:
        self.send(Message("coordinator", "open", self.rng.choice(list(self.writers))))

    # --- the coordinator ---

    def alive(self) -> frozenset[NodeId]:
        """Whom it takes to be alive; in turbulent times it errs."""
        found = {name for name, node in self.nodes.items() if node.up and name != self.cut_off}
        if self.turbulent and self.rng.random() < 0.2:
            found.discard(self.rng.choice(list(self.nodes)))
        return frozenset(found)

    def coordinator_hears(self, message: Message) -> None:
        if message.kind == "open":
            self.log = core.grant(self.log)
            self.send(Message(message.sender, "granted", segment=self.log.last, index=self.log.token))
        elif message.kind == "close":
            self.log = core.decide_by_producer(self.log, segment=message.segment, end=message.index)
        elif message.kind == "segment":
            self._segment_for(message)
        elif message.kind == "fenced":
            self.log = core.take_fenced(
                self.log, segment=message.segment, node=message.sender, length=message.index
            )
        elif message.kind == "ended":
            self.log = core.take_ended(
                self.log, segment=message.segment, node=message.sender, end=message.index
            )

    def _segment_for(self, message: Message) -> None:
        """The same answer to the same question."""
        after, token = message.segment, message.index
        if token != self.log.token:
            self.send(Message(message.sender, "stand down", index=self.log.token))
            return
        alive = sorted(self.alive())
        if self.log.last == after and len(alive) >= REPLICAS:
            place = frozenset(self.rng.sample(alive, REPLICAS))
            self.log = core.new_segment(self.log, token=token, place=place) or self.log
        if self.log.last > after and self.log[self.log.last].token == token:
            self.send(Message(message.sender, "segment", segment=self.log.last))

    def coordinator_moves(self) -> None:
        alive = self.alive()
        spare = sorted(alive)
        for node in sorted(core.to_fence(self.log)):
            self.send(Message(node, "fence", segment=self.log.last))
        for copy in core.to_copy(self.log, alive=alive, spare=spare):
            self.send(Message(copy.target, "copy", copy.source, copy.segment, copy.length))
        self.log = core.decide_by_fence(self.log, replicas=REPLICAS)
        for number, node in core.to_end(self.log):
            if "end_not_retried" in self.bugs and (number, node) in self.ended_once:
                continue
            self.ended_once.add((number, node))
            end = self.log[number].end
            assert end is not None
            self.send(Message(node, "end", segment=number, index=end))
        for copy in core.to_replace(self.log, alive=alive, spare=spare):
            self._replace(copy)

    def _replace(self, copy: core.Copying) -> None:
        source, target = self.nodes[copy.source], self.nodes[copy.target]
        gone = sorted(node for node in self.log[copy.segment].nodes if not self.nodes[node].up)
        if not (source.up and target.up and gone) or self.cut_off in (
            "coordinator",
            copy.source,
            copy.target,
        ):
            return
        entries = list(source.at(copy.segment).entries[: copy.length])
        target.stored[copy.segment] = Stored(
            Replica("sealed", copy.length, copy.length), entries, copy.length
        )
        self.log = core.replace_node(self.log, segment=copy.segment, gone=gone[0], new=copy.target)

    def coordinator_restarts(self) -> None:
        """What it has heard and not decided upon was never durable."""
        self.log = core.forget_fenced(self.log)

    # --- the consumer ---

    def consumer_reads(self) -> None:
        for number, segment in enumerate(self.log.segments, start=1):
            index = len(self.read) - segment.first
            name = self.rng.choice(sorted(segment.nodes))
            node = self.nodes[name]
            stored = node.stored.get(number)
            if (
                node.up
                and name != self.cut_off
                and stored is not None
                and 0 <= index < stored.replica.visible
            ):
                entry = stored.entries[index]
                self.must(entry.event == len(self.read) + 1, "entries are read in order, once")
                self.now_sure(entry)
                self.read.append(entry)

    # --- laws ---

    def must(self, held: bool, law: str) -> None:
        if not held:
            raise LawBroken(f"seed {self.seed}: {law}")

    def now_sure(self, entry: Entry) -> None:
        """Called committed: it was not called something else before."""
        self.must(self.sure.setdefault(entry.event, entry) == entry, "what is committed stays what it is")

    def check(self) -> None:
        for number, segment in enumerate(self.log.segments, start=1):
            if segment.end is not None:
                self.must(self.ends.setdefault(number, segment.end) == segment.end, "an end is decided once")
            self.must(segment.end is not None or number == self.log.last, "only the last segment is open")
        for name, node in self.nodes.items():
            for number, stored in node.stored.items():
                rank = ("none", "open", "fenced", "sealed").index(stored.replica.state)
                self.must(rank >= self.ranks.get((name, number), 0), "states move forward only")
                self.ranks[name, number] = rank
                self.must(len(stored.entries) == stored.replica.length, "a replica has what it says")
        for event, entry in self.sure.items():
            self._must_be_kept(event, entry)

    def _must_be_kept(self, event: int, entry: Entry) -> None:
        homes = [
            (number, segment)
            for number, segment in enumerate(self.log.segments, start=1)
            if segment.first < event and (segment.end is None or event <= segment.first + segment.end)
        ]
        self.must(len(homes) == 1, "a committed entry has one place")
        ((number, segment),) = homes
        for name in segment.nodes:
            if not self.nodes[name].lost:
                entries = self.nodes[name].at(number).entries
                place = event - segment.first
                kept = len(entries) >= place and entries[place - 1] == entry
                self.must(kept, "every replica keeps what is committed")


def live(
    seed: int, *, bugs: frozenset[str] = frozenset(), say: Callable[[str], None] = lambda _: None
) -> None:
    """One life; LawBroken when a law is."""
    World(seed, bugs, say).live()


def main(arguments: list[str]) -> None:
    from tests.journal.bugs import switched_on

    seed, *bug = arguments
    with switched_on(bug[0] if bug else None) as bugs:
        live(int(seed), bugs=bugs, say=print)
    print("every law holds")


if __name__ == "__main__":
    main(sys.argv[1:])
