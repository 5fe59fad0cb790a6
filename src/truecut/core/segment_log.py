"""One log made of segments, each written to all of its replicas: coordinator, node and producer.

Promises:
  L1  committed is what all replicas of a segment have on disk; it stays, at its place, as it is
  L2  the end of a segment is decided once, and only where enough nodes have everything below it
  L3  a replica's state moves forward only: none, open, fenced, sealed; a fenced one takes no append
  L4  fencing and telling the length are one step; nobody else's word for a length counts
  L5  what can be read is committed
  L6  acknowledgements count for the segment they were given for, and for no other
  L7  a node begins no replica of a segment that it ever had something of, or that is trimmed; what was there
      and is not is damaged, never empty
Follows specs/SegmentLog.tla; every public function here is one of its actions. No I/O, no clock: what is
durable, and who is alive, is passed in. Entries are counted from 1 within their segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from truecut.errors import require

NodeId = str
State = Literal["none", "open", "fenced", "sealed", "missing", "damaged"]

# --- the node -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replica:
    """What a node has of a segment: how many entries, how many of them are committed, and how many, the last
    ones, are not on disk yet. A damaged one has no word in anything; a missing one was there once."""

    state: State = "none"
    length: int = 0
    seen: int = 0
    unsynced: int = 0

    @property
    def visible(self) -> int:
        """How many may be read."""
        return min(self.seen, self.length)

    @property
    def synced(self) -> int:
        """How many a crash leaves."""
        return self.length - self.unsynced


def absent(*, segment: int, held: int) -> Replica:
    """Where a node has nothing: it may begin there, or it has lost what it had. `held` is the highest segment
    of the log that it ever had something of, or knows to be trimmed (L7)."""
    return Replica("missing" if segment <= held else "none")


Taken = Literal["appended", "had already", "gap", "closed"]


def take_append(replica: Replica, *, index: int, count: int, known: int) -> tuple[Replica, Taken]:
    """TakeAppend: the entries `index…`, if they follow what is there. Answered once they are synced."""
    if replica.state not in ("none", "open"):
        return replica, "closed"
    if index > replica.length + 1:
        return replica, "gap"
    last = index + count - 1
    length = max(replica.length, last)
    seen = max(replica.seen, min(known, length))
    taken = Replica("open", length, seen, replica.unsynced + length - replica.length)
    return taken, "appended" if last > replica.length else "had already"


def sync(replica: Replica) -> tuple[Replica, int]:
    """Sync: what was written is on disk, and can be acknowledged up to here."""
    return replace(replica, unsynced=0), replica.length


def take_known(replica: Replica, *, known: int) -> Replica:
    """TakeKnown: the committed length of a log that has gone quiet."""
    return replace(replica, seen=max(replica.seen, min(known, replica.length)))


def take_fence(replica: Replica) -> tuple[Replica, int | None]:
    """TakeFence: no append from here on; the length to report, once the fence and all of it are durable (L3,
    L4). What is lost has no length (L7)."""
    if replica.state in ("missing", "damaged"):
        return Replica("damaged"), None
    if replica.state == "sealed":
        return replica, None
    return replace(replica, state="fenced", unsynced=0), replica.length


def take_copy(replica: Replica, *, length: int) -> tuple[Replica, int | None]:
    """TakeCopy: as many entries as a fenced replica has, copied to where there were none or fewer.

    A copy may have been made of a shorter replica that is gone by now: it would block the log for ever if it
    could not grow. It never shrinks, so whatever it told before remains true; and where one is lost no other
    is made: it says that it is damaged, so that another node is asked.
    """
    if replica.state == "missing":
        return Replica("damaged"), None
    if replica.state not in ("none", "fenced"):
        return replica, None
    if replica.state == "fenced" and replica.length >= length:
        return replica, replica.length  # there is nothing to copy
    copied = Replica("fenced", max(replica.length, length), replica.seen)
    return copied, copied.length


def take_end(replica: Replica, *, end: int) -> tuple[Replica, int | None]:
    """TakeEnd: cut to the end and sealed; everything below it is committed. Where a segment ends with nothing
    nothing is missing."""
    if replica.state == "damaged" or (replica.state == "missing" and end > 0):
        return Replica("damaged"), None
    if replica.length < end:
        return replica, None
    if replica.state == "sealed":
        return replica, end
    return Replica("sealed", end, end), end


def take_replacement(replica: Replica, *, end: int) -> tuple[Replica, bool]:
    """Replace and Repair, at the node that is to have a finished segment; and whether it has to copy it. What
    it has is enough if it can be sealed there, and gives way otherwise."""
    sealed, told = take_end(replica, end=end)
    if told == end and sealed.length == end:
        return sealed, False
    return Replica("sealed", end, end), True


def restarted(replica: Replica, *, length: int) -> Replica:
    """CrashNode: what is left is what was on disk, and perhaps more that is not there for all that; what is
    committed has to be heard anew (L5)."""
    if replica.state in ("sealed", "damaged"):
        return replica
    return Replica(replica.state, length, 0, max(0, length - replica.synced))


# --- the producer -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Producer:
    """Whoever believes to own the log, and how far it has got in its segment."""

    phase: Literal["away", "asking", "writing"] = "away"
    token: int = 0
    segment: int = 0
    sent: int = 0
    acked: Mapping[NodeId, int] = field(default_factory=dict)  # of the segment's replicas
    done: int = 0  # committed


def granted(*, token: int) -> Producer:
    """Grant, as its new owner hears of it."""
    return Producer("asking", token)


def told_segment(producer: Producer, *, segment: int, nodes: Iterable[NodeId]) -> Producer:
    """NewSegment, as its producer hears of it: nothing is sent, nothing acknowledged (L6)."""
    return Producer("writing", producer.token, segment, acked=dict.fromkeys(sorted(nodes), 0))


def write(producer: Producer, *, count: int = 1) -> Producer:
    """Write: the next entries go to every replica."""
    require(producer.phase == "writing", "a producer writes to its segment")
    return replace(producer, sent=producer.sent + count)


def take_ack(producer: Producer, *, segment: int, node: NodeId, index: int) -> Producer:
    """TakeAck: committed is what all replicas have acknowledged (L1)."""
    if producer.phase != "writing" or segment != producer.segment or index <= producer.acked.get(node, 0):
        return producer
    acked = {**producer.acked, node: index}
    done = max(producer.done, min(producer.sent, *acked.values()))
    return replace(producer, acked=acked, done=done)


def give_up(producer: Producer) -> Producer:
    """GiveUp: the segment is to end with what is committed; another one is asked for."""
    require(producer.phase == "writing", "a producer gives up its segment")
    return replace(producer, phase="asking")


def stand_down(producer: Producer, *, token: int) -> Producer:
    """StandDown: somebody else owns the log."""
    return Producer() if producer.phase != "away" and producer.token != token else producer


# --- the coordinator ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """What the coordinator knows of a segment."""

    first: int  # how many entries the log has before it
    nodes: frozenset[NodeId]
    token: int
    end: int | None = None
    ended: frozenset[NodeId] = frozenset()  # who has acknowledged the end
    fenced: Mapping[NodeId, int] = field(default_factory=dict)  # what fenced replicas have told


@dataclass(frozen=True, slots=True)
class Log:
    """The segments in order; only the last may be undecided."""

    segments: tuple[Segment, ...] = ()
    token: int = 0  # of the owner
    trimmed: int = 0  # how many segments there were before the first

    def __getitem__(self, number: int) -> Segment:
        """Segments are counted from 1 for the life of the log; those that are trimmed are not there."""
        require(self.trimmed < number <= self.last, "a segment of the log")
        return self.segments[number - 1 - self.trimmed]

    @property
    def last(self) -> int:
        """The number of the last segment; 0 while there is none."""
        return self.trimmed + len(self.segments)

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        """The segments with their numbers."""
        return enumerate(self.segments, start=self.trimmed + 1)

    @property
    def undecided(self) -> Segment | None:
        """The segment that is still written to, or whose end has to be found."""
        return self.segments[-1] if self.segments and self.segments[-1].end is None else None

    @property
    def next_first(self) -> int:
        """How many entries the log has, once its last segment is decided."""
        last = self.segments[-1] if self.segments else None
        return 0 if last is None else last.first + (last.end or 0)


def grant(log: Log) -> Log:
    """Grant: whoever asks becomes the owner, with a token above all others."""
    return replace(log, token=log.token + 1)


def new_segment(log: Log, *, token: int, place: frozenset[NodeId]) -> Log | None:
    """NewSegment: for the owner, on these nodes, behind a decided end; None while that is not so."""
    if token != log.token or log.undecided is not None:
        return None
    return replace(log, segments=(*log.segments, Segment(log.next_first, place, token)))


def decide_by_producer(log: Log, *, segment: int, end: int) -> Log:
    """DecideByProducer: what it has committed, all replicas have. Once (L2)."""
    if segment <= log.trimmed:
        return log
    found = log[segment]
    return log if found.end is not None else _with(log, segment, replace(found, end=end))


def to_fence(log: Log) -> frozenset[NodeId]:
    """AskFence: the replicas of an undecided segment whose owner is gone."""
    found = log.undecided
    return found.nodes if found is not None and found.token != log.token else frozenset()


def take_fenced(log: Log, *, segment: int, node: NodeId, length: int) -> Log:
    """TakeFenced: a fenced replica has told what it has; the longest is the latest, as copies may grow."""
    if segment <= log.trimmed:
        return log
    found = log[segment]
    if found.end is not None or length <= found.fenced.get(node, -1):
        return log
    return _with(log, segment, replace(found, fenced={**found.fenced, node: length}))


def forget_fenced(log: Log) -> Log:
    """CrashCoordinator: what it had heard and not decided upon is asked for again."""
    found = log.undecided
    return log if found is None else _with(log, log.last, replace(found, fenced={}))


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy to be made: the first `length` entries of a segment, from one node to another."""

    segment: int
    source: NodeId
    target: NodeId
    length: int


def to_copy(log: Log, *, alive: frozenset[NodeId], spare: Iterable[NodeId]) -> list[Copying]:
    """AskCopy: in the place of replicas that are gone, other nodes take what a fenced one has."""
    found = log.undecided
    if found is None or found.token == log.token or found.nodes <= alive:
        return []
    told = {node: length for node, length in found.fenced.items() if node in found.nodes & alive}
    if not told:
        return []
    source = min(told, key=lambda node: (told[node], node))
    targets = [node for node in spare if node not in found.nodes][: len(found.nodes - alive)]
    return [Copying(log.last, source, target, told[source]) for target in targets]


def decide_by_fence(log: Log, *, replicas: int) -> Log:
    """DecideByFence: the shortest length that a fenced replica has told and enough nodes have (L2)."""
    found = log.undecided
    if found is None or found.token == log.token:
        return log
    for length in sorted(found.fenced[node] for node in found.nodes if node in found.fenced):
        holders = sorted(node for node, told in found.fenced.items() if told >= length)
        if len(holders) >= replicas:
            chosen = sorted(holders, key=lambda node: (node not in found.nodes, node))[:replicas]
            return _with(log, log.last, replace(found, end=length, nodes=frozenset(chosen)))
    return log


def to_end(log: Log) -> list[tuple[int, NodeId]]:
    """AskEnd: who has to be told, again and again, where a segment ends."""
    return [
        (number, node)
        for number, segment in log.numbered()
        if segment.end is not None
        for node in sorted(segment.nodes - segment.ended)
    ]


def take_ended(log: Log, *, segment: int, node: NodeId, end: int) -> Log:
    """TakeEnded: a replica is sealed."""
    if segment <= log.trimmed:
        return log
    found = log[segment]
    if found.end != end or node not in found.nodes:
        return log
    return _with(log, segment, replace(found, ended=found.ended | {node}))


def to_replace(log: Log, *, alive: frozenset[NodeId], spare: Iterable[NodeId]) -> list[Copying]:
    """What Replace needs: copies of finished segments that have lost a replica."""
    wanted = []
    for number, segment in log.numbered():
        sources = _sources(segment, alive)
        targets = [node for node in spare if node not in segment.nodes][: len(segment.nodes - alive)]
        if segment.end is not None and sources:
            wanted += [Copying(number, sources[0], target, segment.end) for target in targets]
    return wanted


def to_repair(log: Log, *, segment: int, node: NodeId, alive: frozenset[NodeId]) -> Copying | None:
    """What Repair needs: a copy of a finished segment for a replica that says it is damaged."""
    found = log[segment]
    sources = [other for other in _sources(found, alive) if other != node or found.end == 0]
    if found.end is None or node not in found.nodes or not sources:
        return None
    return Copying(segment, sources[0], node, found.end)


def _sources(segment: Segment, alive: frozenset[NodeId]) -> list[NodeId]:
    """Who can give a finished segment. One that ends with nothing anybody can: else it would wait for ever
    where all that had it are gone."""
    return sorted(alive if segment.end == 0 else segment.ended & alive)


def replace_node(log: Log, *, segment: int, gone: NodeId, new: NodeId) -> Log:
    """Replace: another node has copied the finished segment."""
    if segment <= log.trimmed:
        return log
    found = log[segment]
    if found.end is None or gone not in found.nodes or new in found.nodes:
        return log
    nodes = (found.nodes - {gone}) | {new}
    return _with(log, segment, replace(found, nodes=nodes, ended=(found.ended - {gone}) | {new}))


def trim(log: Log, *, before: int) -> Log:
    """Trim: forget the segments that lie before an entry of the log, and are sealed everywhere. The last one
    stays: it says where the log goes on."""
    kept = list(log.segments)
    while len(kept) > 1 and kept[0].ended == kept[0].nodes and kept[1].first < before:
        kept.pop(0)
    return replace(log, segments=tuple(kept), trimmed=log.last - len(kept))


def _with(log: Log, number: int, segment: Segment) -> Log:
    segments = list(log.segments)
    segments[number - 1 - log.trimmed] = segment
    return replace(log, segments=tuple(segments))
