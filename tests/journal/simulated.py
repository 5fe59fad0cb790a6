"""What the simulated world consists of: messages, replicas with their entries, nodes, producers, cables."""

from __future__ import annotations

from dataclasses import dataclass, field

from truecut.core import segment_log as core
from truecut.core.segment_log import NodeId, Producer, Replica

COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Entry:
    event: int
    token: int  # of the producer that wrote it


TORN = Entry(0, 0)


@dataclass(frozen=True, slots=True)
class Message:
    """Whatever its receiver learns is in it: the sender may know better by then."""

    to: str
    kind: str
    sender: str = COORDINATOR
    segment: int = 0
    index: int = 0  # also a length, an end, a token
    known: int = 0
    entry: Entry | None = None
    source: str = ""  # of a copy
    nodes: frozenset[NodeId] = frozenset()
    first: int = 0
    damaged: frozenset[int] = frozenset()


@dataclass(slots=True)
class Stored:
    """A replica with its entries."""

    replica: Replica
    entries: list[Entry] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.replica.state not in ("missing", "damaged")


@dataclass(slots=True)
class Copy:
    """On its way, entry by entry."""

    order: Message
    sealed: bool
    entries: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """A disk, and whether somebody runs on it. `held` is as durable as the node's name."""

    up: bool = True
    lost: bool = False  # the disk
    held: int = 0
    stored: dict[int, Stored] = field(default_factory=dict)
    unanswered: list[Message] = field(default_factory=list)
    copies: dict[int, Copy] = field(default_factory=dict)

    def at(self, segment: int) -> Stored:
        found = self.stored.get(segment)
        return Stored(core.absent(segment=segment, held=self.held)) if found is None else found

    def put(self, segment: int, replica: Replica, entries: list[Entry]) -> None:
        """What a node has it remembers to have had."""
        if replica.state not in ("none", "missing"):
            self.stored[segment] = Stored(replica, entries)
            self.held = max(self.held, segment)

    def has(self, segment: int) -> bool:
        """Whether it could give what it was asked to keep."""
        return not self.lost and self.at(segment).good

    def damaged(self) -> frozenset[int]:
        return frozenset(number for number, one in self.stored.items() if not one.good)

    def drop(self, trimmed: int, *, forgetful: bool = False) -> None:
        for number in [number for number in self.stored if number <= trimmed]:
            del self.stored[number]
        self.held = max(self.stored, default=0) if forgetful else max(self.held, trimmed)

    def lose_files(self, segment: int, *, noticed: bool) -> None:
        """Of one replica. What it owed answers for is gone with it."""
        del self.stored[segment]
        self.unanswered = [message for message in self.unanswered if message.segment != segment]
        if noticed:
            self.stored[segment] = Stored(Replica("damaged"))


@dataclass(slots=True)
class Writer:
    state: Producer = field(default_factory=Producer)
    up: bool = True
    first: int = 0  # entries before its segment
    after: int = 0  # the segment before the one that it asks for
    closing: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A segment as a reader was told of it, perhaps long ago."""

    number: int
    first: int
    nodes: tuple[NodeId, ...]


@dataclass(slots=True)
class Cables:
    """From everybody to everybody, each direction by itself."""

    cut: set[tuple[str, str]] = field(default_factory=set)

    def whole(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self.cut
