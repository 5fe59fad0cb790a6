"""Reading a replicated log: from any replica of each segment, and from another one when that fails.

The coordinator is asked where segments are; what it said is remembered, so that reading goes on while it is
down. Which entries may be read is the nodes' word, never the coordinator's alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from truecut.errors import Retry, TruecutError
from truecut.journal import faults as journal_faults
from truecut.journal.contract import Entry, Outline
from truecut.journal.frame import Header, decode, decode_heads
from truecut.journal.record import Damaged, Head, Record
from truecut.journal.replicated import bulk, faults
from truecut.journal.replicated.wire import Message, Peer
from truecut.journal.security import Security
from truecut.listen_address import Address
from truecut.model.position import Position

PATIENCE_S = 30.0  # for a replica that can be read
AGAIN_S = 0.02
LOOK_S = 10.0  # of one question that waits for more
AVOID_S = 5.0  # a node that did not answer, while there are others
BULK_ENTRIES_MIN = 16  # fewer are not worth a connection
BULK_AGAIN_S = 60.0  # until a node is asked again that could not be read in bulk
_NOT_OFFERED = "TC6043"  # what a node says that does not know of it, or whose wire is encrypted

_T = TypeVar("_T", Record, Head)


@dataclass(frozen=True, slots=True)
class _Segment:
    number: int
    first: int  # entries of the log before it
    end: int | None
    nodes: tuple[str, ...]  # addresses

    @property
    def last(self) -> float:
        """The number of its last entry, as far as it is decided."""
        return float("inf") if self.end is None else self.first + self.end


@dataclass(frozen=True, slots=True)
class _Form(Generic[_T]):
    """What of a record is asked for, and how it is read off a frame."""

    without_payloads: bool
    decode: Callable[[memoryview], tuple[Header, list[_T]]]
    bulk: _Bulk[_T] | None


_Frames = Iterator[tuple[Header, Iterable[_T]]]
_Bulk = Callable[[str, Message], _Frames[_T]]
_Fetch = Callable[[Message], _Frames[_T]]
_RECORDS = _Form(False, decode, bulk.fetch)
_HEADS = _Form(True, decode_heads, None)


class ReplicatedReader:
    """Sees what is committed and nothing else."""

    def __init__(
        self,
        coordinator: str,
        log: str,
        *,
        security: Security | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._security = security or Security()
        self._coordinator = Peer(coordinator, self._security)
        self._log = log
        self._patience_s = patience_s
        self._segments: list[_Segment] = []  # from some entry on, without a gap
        self._tail: list[_Segment] = []  # the last two
        self._head: Position | None = None  # the furthest that was seen
        self._trimmed = 0  # how many entries the log has lost at its beginning
        self._peers: dict[str, Peer] = {}
        self._failed_at: dict[str, float] = {}
        self._no_bulk: dict[str, float] = {}  # until when a node is not asked for it
        self._sizes: dict[int, int] = {}  # of sealed segments, which do not change

    def head(self, *, entries: int = 0) -> Position | None:
        """The last committed position; `entries`: as many are known to be committed, so it is not before."""
        deadline = time.monotonic() + self._patience_s
        while True:
            head = self._furthest(self._look_for_head(beyond=None, wait_s=0.0))
            if (head.place if head else 0) >= max(entries, self._decided()):
                return head
            if time.monotonic() > deadline:
                raise faults.no_replica(self._log, self._tail[-1].number if self._tail else 0)
            time.sleep(AGAIN_S)

    def wait(self, *, after: Position | None, timeout_s: float) -> Position | None:
        """The head, as soon as it is behind `after`; what it is when the time is over."""
        deadline = time.monotonic() + timeout_s
        beyond = after.place if after else 0
        while True:
            left = max(0.0, deadline - time.monotonic())
            head = self._furthest(self._look_for_head(beyond=beyond, wait_s=min(left, LOOK_S)))
            if left == 0.0 or (head is not None and head.place > beyond):
                return head
            if head is None:
                time.sleep(min(AGAIN_S, left))

    def size(self, *, after: Position | None = None) -> int:
        """How many bytes each replica keeps of the records behind a position, in whole segments."""
        number = after.place if after else 0
        kept = 0
        for segment in self._ask(entry=number + 1) or ():
            if (size := self._sizes.get(segment.number)) is None:
                look = self._look(segment, beyond=-1, wait_s=0.0)
                size = look["bytes"] if look is not None and segment.first + look["length"] > number else 0
                if look is not None and look["state"] == "sealed" and size:
                    self._sizes[segment.number] = size
            kept += size
        return kept

    def oldest(self) -> Position | None:
        """The first position that is still there."""
        head = self.head()
        self._ask(entry=0)
        if head is None or head.place <= self._trimmed:
            return None
        after = Position(head.generation, self._trimmed)
        return next(self.read_committed(after=after, last=self._trimmed + 1)).position

    def read(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Entry]:
        """The committed records in `(after, upto]`."""
        head = self.head()
        if head is not None:
            last = head.place if upto is None else min(upto.place, head.place)
            yield from self.read_committed(after=after, last=last)

    def heads(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Outline]:
        """The same without payloads."""
        head = self.head()
        if head is not None:
            last = head.place if upto is None else min(upto.place, head.place)
            yield from self.heads_committed(after=after, last=last)

    def read_committed(self, *, after: Position | None, last: int) -> Iterator[Entry]:
        """The records behind a position up to a place, of which the caller knows that it is committed."""
        for position, record in self._between(after, last, _RECORDS):
            yield Entry(position, record)

    def heads_committed(self, *, after: Position | None, last: int) -> Iterator[Outline]:
        """The same without payloads."""
        for position, head in self._between(after, last, _HEADS):
            yield Outline(position, head)

    def _between(self, after: Position | None, last: int, form: _Form[_T]) -> Iterator[tuple[Position, _T]]:
        number = 1 if after is None else after.place + 1
        deadline = time.monotonic() + self._patience_s
        while number <= last:
            segment = self._segment_with(number, after)
            read_one = False
            for position, found in self._from_replicas(segment, number, last, form) if segment else ():
                read_one = True
                number = position.place + 1
                yield position, found
            if read_one:
                deadline = time.monotonic() + self._patience_s
            elif time.monotonic() > deadline:
                raise faults.no_replica(self._log, segment.number if segment else 0)
            else:
                time.sleep(AGAIN_S)
                self._ask_for_segments(number)

    def close(self) -> None:
        """Let connections go."""
        for peer in [self._coordinator, *self._peers.values()]:
            peer.close()

    # --- where things are ---

    def _segment_with(self, number: int, after: Position | None) -> _Segment | None:
        found = self._known(number)
        if found is None or number <= self._trimmed:
            self._ask_for_segments(number)
            found = self._known(number)
        if number <= self._trimmed:
            raise journal_faults.trimmed(self._log, after=after, oldest=self.oldest())
        return found

    def _known(self, number: int) -> _Segment | None:
        return next((one for one in self._segments if one.first < number <= one.last), None)

    def _ask_for_segments(self, number: int) -> None:
        """From the one with this entry on. While nobody answers, what is known has to do."""
        self._segments = self._ask(entry=number) or self._segments

    def _ask(self, *, entry: int | None, newer_than: int = -1, wait_s: float = 0.0) -> list[_Segment] | None:
        """None while the coordinator does not answer; an error at the very first question."""
        request: Message = {"log": self._log, "entry": entry, "newer_than": newer_than, "wait_s": wait_s}
        try:
            answer = self._coordinator.ask("coordinator.segments", request, timeout_s=wait_s + 2.0)
        except TruecutError as error:
            if self._tail and error.fault.retry is Retry.RETRYABLE:
                return None
            raise
        self._trimmed = answer["first"]
        return [_segment(found) for found in answer["segments"]]

    # --- how far it goes ---

    def _look_for_head(self, *, beyond: int | None, wait_s: float) -> Position | None:
        """From the last segment back to the first one that can be read. Waits at the last one only: for more
        entries while it is open, for another segment behind it when it is finished."""
        if not self._tail:
            self._tail = self._ask(entry=None, newer_than=0, wait_s=wait_s) or []
        for segment in reversed(self._tail):
            last = segment is self._tail[-1]
            asked = -1 if beyond is None else max(-1, beyond - segment.first)
            look = self._look(segment, beyond=asked, wait_s=wait_s if last and segment.end is None else 0.0)
            if last and (look is None or look["state"] == "sealed"):
                done = look is not None and beyond is not None and segment.first + look["visible"] <= beyond
                if self._newer(segment, wait_s=wait_s if done else 0.0):
                    return self._look_for_head(beyond=beyond, wait_s=0.0)
            if look is not None and look["visible"]:
                return Position(look["generation"], segment.first + look["visible"])
        return None

    def _decided(self) -> int:
        """How many entries the coordinator knows to be committed; nodes may hear of it a little later."""
        return max((one.first + one.end for one in self._tail if one.end is not None), default=0)

    def _furthest(self, head: Position | None) -> Position | None:
        """What was committed once is, whatever can be reached now."""
        if head is not None and (self._head is None or head > self._head):
            self._head = head
        return self._head

    def _newer(self, segment: _Segment, *, wait_s: float) -> bool:
        """Whether the log goes on behind its last known segment."""
        self._tail = self._ask(entry=None, newer_than=segment.number, wait_s=wait_s) or self._tail
        return self._tail[-1].number > segment.number

    def _look(self, segment: _Segment, *, beyond: int, wait_s: float) -> dict[str, Any] | None:
        """Of the replica that shows most, or of one that waits until it shows more."""
        best: dict[str, Any] | None = None
        for address in self._replicas(segment):
            request: Message = {"log": self._log, "segment": segment.number, "beyond": beyond}
            try:
                look = self._peer(address).ask(
                    "node.look", {**request, "wait_s": wait_s}, timeout_s=wait_s + 2.0
                )
            except TruecutError:
                self._failed_at[address] = time.monotonic()
                continue
            if best is None or look["visible"] > best["visible"]:
                best = look
            if look["state"] == "sealed" or wait_s > 0:
                return best
        return best

    # --- reading ---

    def _from_replicas(
        self, segment: _Segment, number: int, upto: int, form: _Form[_T]
    ) -> Iterator[tuple[Position, _T]]:
        """What the replicas show of a range, one after the other until it is whole."""
        for address in self._replicas(segment):
            for fetch in self._ways(address, upto - number + 1, form):
                ticket = {"log": self._log, "segment": segment.number, "upto": upto - segment.first}
                asked = {**ticket, "after": number - 1 - segment.first}
                try:
                    for header, found in fetch(asked):
                        if header.first > number:
                            raise Damaged("order")
                        for place, one in enumerate(found, start=header.first):
                            if number <= place <= upto:
                                yield Position(one.generation, place), one
                                number = place + 1
                    if number > min(upto, segment.last):
                        break  # or a connection was closed between two frames: the call gets the rest
                except TruecutError:
                    self._failed_at[address] = time.monotonic()
                    break
                except Damaged:
                    self._failed_at[address] = time.monotonic()
            if number > min(upto, segment.last):
                return

    def _ways(self, address: str, entries: int, form: _Form[_T]) -> list[_Fetch[_T]]:
        """How to get frames from a node, each for the rest of what the one before it did not get. The last is
        a call: the node itself checks what it sends then, and says what is wrong."""
        by_call: _Fetch[_T] = lambda asked: self._by_call(address, asked, form)  # noqa: E731
        if (
            form.bulk is None
            or entries < BULK_ENTRIES_MIN
            or time.monotonic() < self._no_bulk.get(address, 0.0)
        ):
            return [by_call]
        in_bulk = form.bulk
        return [lambda asked: self._in_bulk(address, asked, in_bulk), by_call]

    def _by_call(self, address: str, asked: Message, form: _Form[_T]) -> _Frames[_T]:
        for data in self._peer(address).get({**asked, "heads": form.without_payloads}):
            yield form.decode(data)

    def _in_bulk(self, address: str, asked: Message, fetch: _Bulk[_T]) -> _Frames[_T]:
        """Damaged when a call has to do. Nothing is wrong with a node that has no port for it, or one that
        cannot be reached from here."""
        try:
            told = self._peer(address).ask("node.bulk", asked)
            yield from fetch(Address.parse(address).host, told)
        except TruecutError as error:
            if error.fault.code != _NOT_OFFERED:
                raise
            self._no_bulk[address] = time.monotonic() + BULK_AGAIN_S
            raise Damaged("bulk") from error
        except (OSError, LookupError, TypeError, ValueError, ArithmeticError) as error:  # Damaged, too
            self._no_bulk[address] = time.monotonic() + BULK_AGAIN_S
            raise Damaged("bulk") from error

    def _replicas(self, segment: _Segment) -> list[str]:
        """In turn from segment to segment, those that failed lately last."""
        lately = time.monotonic() - AVOID_S
        turn = segment.number % max(1, len(segment.nodes))
        ordered = [*segment.nodes[turn:], *segment.nodes[:turn]]
        return sorted(ordered, key=lambda address: self._failed_at.get(address, lately) > lately)

    def _peer(self, address: str) -> Peer:
        if address not in self._peers:
            self._peers[address] = Peer(address, self._security)
        return self._peers[address]


def _segment(found: Message) -> _Segment:
    return _Segment(found["segment"], found["first"], found["end"], tuple(found["nodes"].values()))
