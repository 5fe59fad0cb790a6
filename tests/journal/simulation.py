"""A world in which the segment log's pure machines live through everything that can go wrong.

One seed is one life: messages are lost, late, doubled and out of order; cables are cut, in one direction or
in both, also while a copy is under way; nodes crash and lose what they had not synced; replicas lose their
files or are damaged, disks are lost, one after the other; producers die, sleep and take over from each other;
the coordinator forgets what is not durable, hears late of damage, takes living nodes for dead (so it is with
clocks that jump: nothing else looks at one), and trims what was read; a reader goes by what it was told long
ago. The laws are checked at every step. Then everything heals, and the log has to hold every event, sealed
and read.

    python -m tests.journal.simulation SEED [BUG]     lives one life again, step by step
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.journal.simulated import (
    COORDINATOR,
    TORN,
    Cables,
    Copy,
    Entry,
    Message,
    Node,
    Stored,
    View,
    Writer,
)
from truecut.core import segment_log as core
from truecut.core.segment_log import Log, NodeId, Producer

REPLICAS = 2
NODES = 5
PRODUCERS = 2
EVENTS = 8
LOST_DISKS_MAX = 2
TURBULENT_STEPS = 250
CALM_STEPS = 6_000


class LawBroken(AssertionError):
    """What must never be was."""


@dataclass
class World:
    """One life."""

    seed: int
    bugs: frozenset[str] = frozenset()
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.cables = Cables()
        self.log = Log()
        self.damaged: dict[NodeId, frozenset[int]] = {}  # as the coordinator has heard
        self.nodes: dict[NodeId, Node] = {f"n{n}": Node() for n in range(NODES)}
        self.writers = {f"p{n}": Writer() for n in range(PRODUCERS)}
        self.net: list[Message] = []
        self.sure: dict[int, Entry] = {}
        self.view: list[View] = []
        self.read: list[Entry] = []
        self.turbulent = True
        self.hurt: set[int] = set()  # segments of which a replica was
        self.ended_once: set[tuple[int, NodeId]] = set()
        self.ends: dict[int, int] = {}
        self.ranks: dict[tuple[NodeId, int], int] = {}

    # --- the life ---

    def live(self) -> None:
        for _ in range(TURBULENT_STEPS):
            self.step()
        self.calm_down()
        for step in range(CALM_STEPS):
            self.step()
            if step % 50 == 0 and self.finished():
                return
        self.must(self.finished(), "the log goes on, is sealed and read")

    def calm_down(self) -> None:
        self.turbulent, self.cables = False, Cables()
        for node in self.nodes.values():
            node.up = not node.lost

    def finished(self) -> bool:
        sealed = all(
            self.nodes[node].lost or self.nodes[node].at(number).replica.state == "sealed"
            for number, segment in self.log.numbered()
            if segment.end is not None
            for node in segment.nodes
        )
        return sealed and len(self.read) == EVENTS and not core.to_end(self.log)

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self.deliver),
            (10, self.node_moves),
            (8, self.copies_move),
            (10, self.producer_moves),
            (8, self.coordinator_moves),
            (8, self.consumer_reads),
            (4, self.consumer_asks),
            (2, self.trim),
        ]
        if self.turbulent:
            actions += [
                (3, self.lose_message),
                (3, self.double_message),
                (3, self.cut_cables),
                (2, self.mend_cables),
                (2, self.node_crashes),
                (3, self.node_restarts),
                (1, self.node_loses_disk),
                (1, self.replica_is_hurt),
                (1, self.producer_dies),
                (1, self.producer_takes_over),
                (1, self.coordinator_restarts),
            ]
        weights = [weight for weight, _ in actions]
        self.rng.choices([action for _, action in actions], weights)[0]()
        self.check()

    # --- the network ---

    def send(self, message: Message) -> None:
        """In calm times nobody asks again before the first question has arrived."""
        if self.turbulent or message not in self.net:
            self.net.append(message)

    def deliver(self) -> None:
        if self.net:
            self.arrive(self.net.pop(self.rng.randrange(len(self.net)) if self.turbulent else 0))

    def arrive(self, message: Message) -> None:
        """Unless there is no way, or nobody at its end."""
        if not self.cables.whole(message.sender, message.to):
            return
        self.say(f"{message}")
        if message.to == COORDINATOR:
            self.coordinator_hears(message)
        elif message.to in self.nodes:
            if self.nodes[message.to].up:
                self.node_hears(message.to, message)
        elif self.writers[message.to].up:
            self.producer_hears(message.to, message)

    def cut_cables(self) -> None:
        """Of somebody, to all others or to one of them; what it hears, what it says, or both."""
        everybody = [COORDINATOR, *self.nodes, *self.writers]
        one = self.rng.choice(everybody)
        others = [other for other in everybody if other != one]
        if self.rng.random() < 0.5:
            others = [self.rng.choice(others)]
        hears, says = self.rng.choice([(True, True), (True, False), (False, True)])
        self.say(f"cut: {one} {'hears' * hears} {'says' * says} {others}")
        self.cables.cut |= {(other, one) for other in others if hears}
        self.cables.cut |= {(one, other) for other in others if says}

    def mend_cables(self) -> None:
        self.cables = Cables()

    def lose_message(self) -> None:
        if self.net:
            self.net.pop(self.rng.randrange(len(self.net)))

    def double_message(self) -> None:
        if self.net:
            self.net.append(self.rng.choice(self.net))

    # --- nodes ---

    def node_hears(self, name: NodeId, message: Message) -> None:
        node, number = self.nodes[name], message.segment
        stored = node.at(number)
        told: int | None = None
        if message.kind == "append":
            self._take_append(name, message, stored)
        elif message.kind == "known":
            node.put(number, core.take_known(stored.replica, known=message.known), stored.entries)
        elif message.kind == "fence":
            replica, told = core.take_fence(stored.replica)
            node.put(number, replica, stored.entries)
            self._tell("fenced", name, number, told)
        elif message.kind == "end":
            replica, told = core.take_end(stored.replica, end=message.index)
            node.put(number, replica, stored.entries[: replica.length])
            self._tell("ended", name, number, told)
        elif message.kind in ("copy", "copy sealed"):
            self._take_copy(name, message, stored)
        elif message.kind == "trimmed":
            node.drop(message.index, forgetful="trimmed_forgotten" in self.bugs)

    def _take_append(self, name: NodeId, message: Message, stored: Stored) -> None:
        assert message.entry is not None
        replica, taken = core.take_append(stored.replica, index=message.index, count=1, known=message.known)
        if taken == "closed":
            self.send(Message(message.sender, "closed", name, message.segment))
        elif taken != "gap":
            entries = [*stored.entries, message.entry] if taken == "appended" else stored.entries
            self.nodes[name].put(message.segment, replica, entries)
            if message.index <= replica.synced or "ack_before_fsync" in self.bugs:
                self.send(Message(message.sender, "ack", name, message.segment, message.index))
            else:
                self.nodes[name].unanswered.append(message)

    def _take_copy(self, name: NodeId, message: Message, stored: Stored) -> None:
        node, number, sealed = self.nodes[name], message.segment, message.kind == "copy sealed"
        if sealed:
            replica, wanted = core.take_replacement(stored.replica, end=message.index)
            if not wanted:
                node.put(number, replica, stored.entries[: replica.length])
                self._tell("copied", name, number, message.index)
        else:
            replica, told = core.take_copy(stored.replica, length=message.index)
            wanted = told is not None and replica is not stored.replica
            if not wanted:
                node.put(number, replica, stored.entries)
                self._tell("fenced", name, number, told)
        if wanted and number not in node.copies:
            node.copies[number] = Copy(message, sealed)

    def copies_move(self) -> None:
        """The next entry of a copy; it is one when it is whole, and nothing before."""
        for name, node in self.nodes.items():
            for number, copy in list(node.copies.items()) if node.up else ():
                source = self.nodes[copy.order.source]
                given = source.at(number)
                done = len(copy.entries) == copy.order.index
                broken = not done and not (
                    source.up
                    and self.cables.whole(copy.order.source, name)
                    and given.replica.state in ("fenced", "sealed")
                    and given.replica.length > len(copy.entries)
                )
                if done or broken:
                    del node.copies[number]
                if done or (broken and copy.entries and "half_copy_counted" in self.bugs):
                    self._copied(name, number, copy)
                elif not broken:
                    copy.entries.append(given.entries[len(copy.entries)])

    def _copied(self, name: NodeId, number: int, copy: Copy) -> None:
        node = self.nodes[name]
        stored, length = node.at(number), copy.order.index
        if copy.sealed:
            replica, _ = core.take_replacement(stored.replica, end=length)
            node.put(number, replica, copy.entries)
            self._tell("copied", name, number, length)
        else:
            replica, told = core.take_copy(stored.replica, length=length)
            if told is not None:
                node.put(number, replica, copy.entries if told > len(stored.entries) else stored.entries)
            self._tell("fenced", name, number, told)

    def _tell(self, kind: str, name: NodeId, number: int, told: int | None) -> None:
        if told is not None:
            self.send(Message(COORDINATOR, kind, name, number, told))

    def node_moves(self) -> None:
        name = self.rng.choice(list(self.nodes))
        if self.nodes[name].up:
            if self.rng.random() < 0.3:
                self.send(Message(COORDINATOR, "beat", name, damaged=self.nodes[name].damaged()))
            self.sync(name)

    def sync(self, name: NodeId) -> None:
        """Only now are appends answered."""
        node = self.nodes[name]
        for number, stored in list(node.stored.items()):
            replica, index = core.sync(stored.replica)
            node.put(number, replica, stored.entries)
            for writer in {one.sender for one in node.unanswered if one.segment == number}:
                self.send(Message(writer, "ack", name, number, index))
        node.unanswered = []

    def node_crashes(self) -> None:
        name = self.rng.choice(list(self.nodes))
        if self.nodes[name].up:
            self.crash(name)

    def crash(self, name: NodeId) -> None:
        """What was not synced is lost, or some of it is still there, and not on disk for all that."""
        self.say(f"{name} crashes")
        node = self.nodes[name]
        node.up, node.unanswered, node.copies = False, [], {}
        for number, stored in list(node.stored.items()):
            kept = self.rng.randint(stored.replica.synced, stored.replica.length)
            entries = stored.entries[:kept]
            if stored.replica.unsynced and "torn_tail_trusted" in self.bugs:
                entries.append(TORN)
            node.put(number, core.restarted(stored.replica, length=len(entries)), entries)

    def node_restarts(self) -> None:
        down = [node for node in self.nodes.values() if not node.up and not node.lost]
        if down:
            self.rng.choice(down).up = True

    def spared(self, name: NodeId, number: int) -> bool:
        """What is lost leaves another replica: the next may go when this one has been replaced. Whoever has
        told of a copy counts, heard or not: an end may rest on it."""
        segment, kinds = self.log[number], ["copied"]
        counted = set(segment.nodes)
        if segment.end is None:
            kinds, counted = ["fenced"], counted | set(segment.fenced)
        counted |= {one.sender for one in self.net if one.segment == number and one.kind in kinds}
        return name not in counted or all(self.nodes[other].has(number) for other in counted - {name})

    def node_loses_disk(self) -> None:
        """Who comes back with another disk is another node."""
        name = self.rng.choice(list(self.nodes))
        lost = sum(node.lost for node in self.nodes.values())
        spared = all(self.spared(name, number) for number, _ in self.log.numbered())
        if lost < LOST_DISKS_MAX and spared and not self.nodes[name].lost:
            self.say(f"{name} loses its disk")
            self.nodes[name] = Node(up=False, lost=True)

    def replica_is_hurt(self) -> None:
        """Its files are gone and its node does not know, or they cannot be read and it does."""
        name = self.rng.choice(list(self.nodes))
        for number, stored in list(self.nodes[name].stored.items()):
            known = number > self.log.trimmed and stored.good
            if known and number not in self.hurt and self.spared(name, number):
                self.say(f"{name} loses segment {number}")
                self.hurt.add(number)
                self.nodes[name].lose_files(number, noticed=self.rng.random() < 0.5)
                return

    # --- producers ---

    def producer_moves(self) -> None:
        name = self.rng.choice(list(self.writers))
        writer = self.writers[name]
        if not writer.up:
            writer.up = not self.turbulent
            return
        state = writer.state
        if state.phase == "away":
            if not self.turbulent and (name != "p0" or self._owned()):
                return
            self.send(Message(COORDINATOR, "open", name))
        elif state.phase == "asking":
            self.ask_for_segment(name)
        elif self.rng.random() < 0.5 and writer.first + state.sent < EVENTS:
            self.write(name)
        elif state.done and self.rng.random() < 0.5:
            for node in state.acked:
                self.send(Message(node, "known", name, state.segment, known=state.done))
        elif state.done < state.sent and self.rng.random() < 0.1:
            self.give_up(name)

    def ask_for_segment(self, name: str) -> None:
        writer = self.writers[name]
        if writer.closing is not None:
            self.send(Message(COORDINATOR, "close", name, *writer.closing))
        self.send(Message(COORDINATOR, "segment", name, writer.after, writer.state.token))

    def write(self, name: str) -> None:
        writer = self.writers[name]
        state = writer.state = core.write(writer.state)
        entry = Entry(writer.first + state.sent, state.token)
        for node in state.acked:
            self.send(Message(node, "append", name, state.segment, state.sent, state.done, entry))

    def _owned(self) -> bool:
        return any(writer.up and writer.state.phase != "away" for writer in self.writers.values())

    def producer_hears(self, name: str, message: Message) -> None:
        writer = self.writers[name]
        if message.kind == "granted" and writer.state.phase == "away":
            writer.state = core.granted(token=message.index)
            writer.after, writer.closing = message.segment, None
        elif message.kind == "segment" and writer.state.phase == "asking":
            if message.index == writer.state.token and message.segment > writer.after:
                told = core.told_segment(writer.state, segment=message.segment, nodes=message.nodes)
                writer.state, writer.first, writer.closing = told, message.first, None
        elif message.kind == "ack":
            writer.state = core.take_ack(
                writer.state, segment=message.segment, node=message.sender, index=message.index
            )
            for index in range(1, writer.state.done + 1):
                self.now_sure(Entry(writer.first + index, writer.state.token))
        elif message.kind == "closed":
            if writer.state.phase == "writing" and writer.state.segment == message.segment:
                self.give_up(name)
        elif message.kind == "stand down":
            writer.state = core.stand_down(writer.state, token=message.index)

    def give_up(self, name: str) -> None:
        writer = self.writers[name]
        writer.closing = (writer.state.segment, writer.state.done)
        writer.after = writer.state.segment
        writer.state = core.give_up(writer.state)

    def producer_dies(self) -> None:
        writer = self.rng.choice(list(self.writers.values()))
        writer.state, writer.up = Producer(), self.rng.random() < 0.5

    def producer_takes_over(self) -> None:
        self.send(Message(COORDINATOR, "open", self.rng.choice(list(self.writers))))

    # --- the coordinator ---

    def alive(self) -> frozenset[NodeId]:
        """Whom it takes to be alive; in turbulent times it errs."""
        heard = {
            name for name, node in self.nodes.items() if node.up and self.cables.whole(name, COORDINATOR)
        }
        if self.turbulent and self.rng.random() < 0.2:
            heard.discard(self.rng.choice(list(self.nodes)))
        return frozenset(heard)

    def sound(self, alive: frozenset[NodeId], number: int) -> frozenset[NodeId]:
        """Of those, who has not said that it has lost a segment."""
        return frozenset(node for node in alive if number not in self.damaged.get(node, ()))

    def coordinator_hears(self, message: Message) -> None:
        number, node = message.segment, message.sender
        if message.kind == "open":
            self.log = core.grant(self.log)
            self.send(Message(node, "granted", segment=self.log.last, index=self.log.token))
        elif message.kind == "segment":
            self._segment_for(message)
        elif message.kind == "beat":
            self.damaged[node] = message.damaged
            self.send(Message(node, "trimmed", index=self.log.trimmed))
        elif number <= self.log.trimmed:
            return
        elif message.kind == "close":
            self.log = core.decide_by_producer(self.log, segment=number, end=message.index)
        elif message.kind == "fenced":
            self.log = core.take_fenced(self.log, segment=number, node=node, length=message.index)
        elif message.kind == "ended":
            self.log = core.take_ended(self.log, segment=number, node=node, end=message.index)
        elif message.kind == "copied":
            self._take_copied(number, node)

    def _take_copied(self, number: int, node: NodeId) -> None:
        """Replace, or Repair."""
        segment = self.log[number]
        assert segment.end is not None
        if node in segment.nodes:
            self.log = core.take_ended(self.log, segment=number, node=node, end=segment.end)
            return
        gone = sorted(segment.nodes - self.alive())
        if gone:
            self.log = core.replace_node(self.log, segment=number, gone=gone[0], new=node)

    def _segment_for(self, message: Message) -> None:
        """The same answer to the same question."""
        after, token = message.segment, message.index
        if token != self.log.token:
            self.send(Message(message.sender, "stand down", index=self.log.token))
            return
        alive = sorted(self.alive())
        if self.log.last == after and len(alive) >= REPLICAS:
            self.log = core.new_segment(self.log, token=token, place=self.place(alive)) or self.log
        last = self.log[self.log.last] if self.log.last > after else None
        if last is not None and last.token == token:
            told = Message(message.sender, "segment", segment=self.log.last, index=token)
            self.send(replace(told, nodes=last.nodes, first=last.first))

    def place(self, alive: list[NodeId]) -> frozenset[NodeId]:
        return frozenset(self.rng.sample(alive, REPLICAS))

    def coordinator_moves(self) -> None:
        alive = self.alive()
        last = self.log.last
        good = self.sound(alive, last)
        for node in sorted(core.to_fence(self.log)):
            self.send(Message(node, "fence", segment=last))
        for copy in core.to_copy(self.log, alive=good, spare=sorted(good)):
            self._send_copy("copy", copy)
        self.log = core.decide_by_fence(self.log, replicas=REPLICAS)
        for number, node in core.to_end(self.log):
            if "end_not_retried" in self.bugs and (number, node) in self.ended_once:
                continue
            self.ended_once.add((number, node))
            end = self.log[number].end
            assert end is not None
            self.send(Message(node, "end", segment=number, index=end))
        for copy in core.to_replace(self.log, alive=alive, spare=sorted(good)):
            self._send_copy("copy sealed", copy)
            if "replaced_before_copied" in self.bugs:
                self._take_copied(copy.segment, copy.target)
        for node, damaged in self.damaged.items():
            for number in damaged & set(range(self.log.trimmed + 1, last + 1)):
                found = self.sound(alive, number)
                repair = core.to_repair(self.log, segment=number, node=node, alive=found)
                if repair is not None:
                    self._send_copy("copy sealed", repair)

    def _send_copy(self, kind: str, copy: core.Copying) -> None:
        order = Message(copy.target, kind, segment=copy.segment, index=copy.length, source=copy.source)
        self.send(order)

    def trim(self) -> None:
        """Its owner needs nothing of what was read."""
        self.log = core.trim(self.log, before=len(self.read) + 1)

    def coordinator_restarts(self) -> None:
        """What it has heard and not decided upon was never durable."""
        self.log = core.forget_fenced(self.log)
        self.damaged = {}

    # --- the consumer ---

    def consumer_asks(self) -> None:
        """What it is told it goes by, until it asks again."""
        self.view = [
            View(number, segment.first, tuple(sorted(segment.nodes)))
            for number, segment in self.log.numbered()
        ]

    def consumer_reads(self) -> None:
        for view in self.view:
            index = len(self.read) - view.first
            node = self.nodes[self.rng.choice(view.nodes)]
            stored = node.at(view.number)
            if node.up and 0 <= index < stored.replica.visible:
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
        for number, segment in self.log.numbered():
            if segment.end is not None:
                self.must(self.ends.setdefault(number, segment.end) == segment.end, "an end is decided once")
            self.must(segment.end is not None or number == self.log.last, "only the last segment is open")
        for name, node in self.nodes.items():
            for number, stored in node.stored.items():
                self._must_move_forward(name, number, stored)
        oldest = self.log.segments[0].first if self.log.segments else 0
        for event, entry in self.sure.items():
            if event > oldest:
                self._must_be_kept(event, entry)

    def _must_move_forward(self, name: NodeId, number: int, stored: Stored) -> None:
        if stored.good:
            rank = ("none", "open", "fenced", "sealed").index(stored.replica.state)
            self.must(rank >= self.ranks.get((name, number), 0), "states move forward only")
            self.ranks[name, number] = rank
            self.must(len(stored.entries) == stored.replica.length, "a replica has what it says")

    def _must_be_kept(self, event: int, entry: Entry) -> None:
        homes = [
            (number, segment)
            for number, segment in self.log.numbered()
            if segment.first < event and (segment.end is None or event <= segment.first + segment.end)
        ]
        self.must(len(homes) == 1, "a committed entry has one place")
        ((number, segment),) = homes
        keepers = [self.nodes[name] for name in segment.nodes if self.nodes[name].has(number)]
        self.must(bool(keepers), "a committed entry is somewhere")
        for node in keepers:
            stored, place = node.at(number), event - segment.first
            kept = stored.replica.synced >= place and stored.entries[place - 1] == entry
            self.must(kept, "every replica keeps what is committed, on disk")


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
