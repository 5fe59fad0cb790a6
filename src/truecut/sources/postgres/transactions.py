"""Messages in commit order, cut into blocks for the journal: whole transactions, or parts of a large one.

Promises: a transaction is given out once its Commit is there, never in part; one that ends at or before
`after` never, because the journal has it; order is that of commits. A block can be read by itself: it
announces every relation before its first change, in its own copy of the server's Relation message.
A transaction of which the journal holds the first parts (`Unfinished`) is gone on with, behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from truecut.errors import require
from truecut.sources.postgres import messages as wire
from truecut.sources.postgres.reassembly import Whole
from truecut.sources.postgres.spool import Spool

BLOCK_BYTES = 256 << 10  # about, of one record
RELATIONS_MAX = 200  # in one record, whose head names them
_TRUNCATE_BYTES_MAX = 6 + 4 * RELATIONS_MAX

_Array = npt.NDArray[np.int64]


class Elsewhere(ValueError):
    """The server sends another transaction than the one that the journal has begun with."""


@dataclass(frozen=True, slots=True, eq=False)
class Announcement:
    """A relation's Type messages, then its Relation message. One that says the same again is another one: the
    server repeats itself where something has changed, and that may be what no message tells."""

    messages: tuple[bytes, ...]

    @property
    def oid(self) -> int:
        """Of the relation."""
        return wire.relation_oid(self.messages[-1])


@dataclass(frozen=True, slots=True)
class Block:
    """What becomes one record."""

    messages: Sequence[bytes]
    relations: tuple[Announcement, ...]  # that its changes are of
    rows: int
    part: int = 0
    end: int | None = None  # the source's position behind it; None: the transaction goes on
    whole: tuple[Announcement, ...] = ()  # of the first part: what all parts together announce


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A large transaction whose first parts are in the journal, and its last is not."""

    commit_lsn: int
    xid: int
    parts: int
    messages: int  # that count: announcements and origins differ from one reading to the next


class Transactions:
    """Of one decoding session."""

    def __init__(
        self,
        *,
        after: int,
        unfinished: Unfinished | None = None,
        spool: Callable[[], Spool] = Spool,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.position = after  # everything that committed up to here has been given out
        self._unfinished = unfinished
        self._spool = spool
        self._block_bytes = block_bytes
        self._known: dict[int, Announcement] = {}
        self._types: list[bytes] = []  # announced for the relation that comes next
        self._begun: Spool | None = None  # a transaction whose commit has not come

    @property
    def resuming(self) -> bool:
        """Whether the transaction that the journal has begun with has not come yet."""
        return self._unfinished is not None

    def take(self, come: Sequence[bytes] | Whole) -> Iterator[Block]:
        """The blocks that this completes: messages that go on where the last ended, or a transaction that was
        streamed."""
        if isinstance(come, Whole):
            return self._take_whole(replace(come, changes=lambda: map(_narrowed, come.changes())))
        return self._take(_narrowed(come))

    def _take(self, messages: Sequence[bytes]) -> Iterator[Block]:
        messages, beat = _without_heartbeats(messages)
        kinds = _kinds(messages)
        ends = np.flatnonzero((kinds == wire.COMMIT) | _alone(messages, kinds))
        if self._begun is not None and len(ends):
            first = int(ends[0]) + 1
            self._begun.add(messages[:first])
            spool, self._begun = self._begun, None
            yield from self._finish(spool)
            messages, kinds, ends = messages[first:], kinds[first:], ends[1:] - first
        done = int(ends[-1]) + 1 if len(ends) else 0
        if done:
            yield from self._blocks(messages[:done], kinds[:done], ends)
        if done < len(messages):
            self._begin(messages[done:])
        self.position = max(self.position, beat)

    def _take_whole(self, transaction: Whole) -> Iterator[Block]:
        require(self._begun is None, "a streamed transaction commits between two others")
        if transaction.size <= self._block_bytes and self._unfinished is None:
            between = [one for chunk in transaction.changes() for one in chunk]
            yield from self._take([transaction.begin, *between, transaction.commit])
        else:
            yield from self._parts(transaction)
        transaction.close()

    def close(self) -> None:
        """The session is over: forget what has not committed."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None

    # --- transactions that have not ended yet ---

    def _begin(self, messages: Sequence[bytes]) -> None:
        if self._begun is None:
            if messages[0][0] != wire.BEGIN:
                raise wire.Unreadable(f"{chr(messages[0][0])!r} outside of a transaction")
            self._begun = self._spool()
        self._begun.add(messages)

    def _finish(self, spool: Spool) -> Iterator[Block]:
        first, last = b"", b""
        for chunk in spool.chunks():
            first, last = first or (chunk or [b""])[0], (chunk or [last])[-1]
        whole = Whole(first, lambda: _inner(spool), last, spool.bytes, spool.close)
        yield from self._take_whole(whole)

    # --- several in one block ---

    def _blocks(self, messages: Sequence[bytes], kinds: _Array, ends: _Array) -> Iterator[Block]:
        _check_shape(messages, kinds, ends)
        limits = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))[ends]
        start = size = unit = 0
        while unit < len(ends):
            upto = int(np.searchsorted(limits, size + self._block_bytes, "right"))
            upto = max(upto, unit + 1)
            stop = int(ends[upto - 1]) + 1
            yield from self._several(messages[start:stop], kinds[start:stop], ends[unit:upto] - start)
            start, size, unit = stop, int(limits[upto - 1]), upto

    def _several(self, messages: Sequence[bytes], kinds: _Array, ends: _Array) -> Iterator[Block]:
        """These transactions as one block; less those that the journal has; a large one in parts."""
        places = [_end(messages[int(at)]) for at in ends]
        fresh = next((n for n, place in enumerate(places) if place > self.position), len(places))
        if fresh:
            skipped = int(ends[fresh - 1]) + 1
            self._learn(messages[:skipped], kinds[:skipped])
            messages, kinds, ends = messages[skipped:], kinds[skipped:], ends[fresh:] - skipped
        if not messages:
            return
        require(sorted(places) == places, "transactions come in the order of their commits")
        if self._unfinished is not None:
            first = int(ends[0]) + 1
            yield from self._parts(_whole(messages[:first]))
            if len(ends) > 1:
                yield from self._several(messages[first:], kinds[first:], ends[1:] - first)
            return
        yield from self._within_bounds(messages, kinds, ends)

    def _within_bounds(self, messages: Sequence[bytes], kinds: _Array, ends: _Array) -> Iterator[Block]:
        """As one block, or cut at a commit; one transaction that is too large by itself, in parts."""
        if cut := self._cut_at(messages, kinds, ends):
            at = int(ends[cut - 1]) + 1
            yield from self._within_bounds(messages[:at], kinds[:at], ends[:cut])
            yield from self._within_bounds(messages[at:], kinds[at:], ends[cut:] - at)
        elif len(ends) == 1 and kinds[0] == wire.BEGIN and self._is_large(messages, kinds):
            yield from self._parts(_whole(messages))
        else:
            self.position = _end(messages[int(ends[-1])])
            yield self._block(messages, kinds, part=0, end=self.position)

    def _cut_at(self, messages: Sequence[bytes], kinds: _Array, ends: _Array) -> int:
        """How many transactions belong together; 0 for all. A head names only so many relations. And what is
        announced in the same words as before may be another schema: it begins a block, so that within a
        block each announcement means one."""
        if len(ends) > 1 and _named(messages, kinds) > RELATIONS_MAX:
            return len(ends) // 2
        known = {oid: one.messages[-1] for oid, one in self._known.items()} if len(ends) > 1 else {}
        for at in np.flatnonzero(kinds == wire.RELATION).tolist() if len(ends) > 1 else ():
            oid = wire.relation_oid(messages[at])
            if known.get(oid) == messages[at] and at > ends[0]:
                return int(np.searchsorted(ends, at))
            known[oid] = messages[at]
        return 0

    def _is_large(self, messages: Sequence[bytes], kinds: _Array) -> bool:
        """Whether one transaction needs several blocks."""
        return _size(messages) > 2 * self._block_bytes or _named(messages, kinds) > RELATIONS_MAX

    # --- one in several blocks ---

    def _parts(self, transaction: Whole) -> Iterator[Block]:
        end = wire.commit(transaction.commit).end_lsn
        if end <= self.position:
            for chunk in transaction.changes():
                self._learn(chunk, _kinds(chunk))
            return
        whole = self._announced_by(transaction)
        part, skip = self._resumed(wire.begin(transaction.begin))
        for messages in _cut(transaction, self._block_bytes):
            behind, skip = _skipped(messages, skip)
            self._learn(messages[:behind], _kinds(messages[:behind]))
            rest = messages[behind:]
            if messages[-1] is transaction.commit:
                self.position = end
                yield self._part(rest, part, end, whole)
            elif rest:
                yield self._part(rest, part, None, whole)
                part += 1

    def _part(self, messages: Sequence[bytes], part: int, end: int | None, whole: Any) -> Block:
        found = self._block(messages, _kinds(messages), part=part, end=end)
        return Block(found.messages, found.relations, found.rows, part, end, whole)

    def _resumed(self, first: wire.Begin) -> tuple[int, int]:
        """How many parts and messages of it the journal has."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is None:
            return 0, 0
        if (first.commit_lsn, first.xid) != (unfinished.commit_lsn, unfinished.xid):
            raise Elsewhere(f"a transaction at {wire.lsn_text(first.commit_lsn)}")
        return unfinished.parts, unfinished.messages

    def _announced_by(self, transaction: Whole) -> tuple[Announcement, ...]:
        """Every relation of the transaction, as it stands at each of its changes."""
        known, types = dict(self._known), list(self._types)
        found: dict[tuple[bytes, ...], Announcement] = {}
        for chunk in transaction.changes():
            for one in self._block(chunk, _kinds(chunk), part=0, end=None).relations:
                found.setdefault(one.messages, one)
        self._known, self._types = known, types
        return tuple(found.values())

    # --- one block ---

    def _block(self, messages: Sequence[bytes], kinds: _Array, *, part: int, end: int | None) -> Block:
        missing = [self._announcement(oid) for oid in _unannounced(messages, kinds)]
        relations = dict.fromkeys(missing)
        relations.update(dict.fromkeys(self._learn(messages, kinds)))
        front = 1 if messages and kinds[0] == wire.BEGIN else 0
        extra = [message for announcement in missing for message in announcement.messages]
        all_messages = [*messages[:front], *extra, *messages[front:]] if extra else messages
        rows = int(np.count_nonzero(np.isin(kinds, _CHANGES)))
        return Block(all_messages, tuple(relations), rows, part, end)

    def _announcement(self, oid: int) -> Announcement:
        if oid not in self._known:
            raise wire.Unreadable(f"a change of the relation {oid}, which was not announced")
        return self._known[oid]

    def _learn(self, messages: Sequence[bytes], kinds: _Array) -> list[Announcement]:
        """What is announced here."""
        learnt = []
        for at in np.flatnonzero((kinds == wire.RELATION) | (kinds == wire.TYPE)).tolist():
            self._types.append(messages[at])
            if kinds[at] == wire.RELATION:
                learnt.append(Announcement(tuple(self._types)))
                self._known[wire.relation_oid(messages[at])] = learnt[-1]
                self._types = []
        return learnt


_CHANGES = np.array(sorted(wire.CHANGES))


def _kinds(messages: Sequence[bytes]) -> _Array:
    kinds = np.fromiter((one[0] for one in messages), np.int64, len(messages))
    strange = set(np.unique(kinds).tolist()) - wire.KNOWN
    if strange:
        raise wire.Unreadable(f"messages of an unknown kind {chr(min(strange))!r}")
    return kinds


def _check_shape(messages: Sequence[bytes], kinds: _Array, ends: _Array) -> None:
    """Every transaction begins once, right behind the one before."""
    starts = np.concatenate([[0], ends[:-1] + 1])[kinds[ends] == wire.COMMIT]
    begins = np.flatnonzero(kinds == wire.BEGIN)
    if not np.array_equal(starts, begins):
        raise wire.Unreadable("a transaction without its Begin, or with two")
    if any(len(messages[at]) != wire.BEGIN_BYTES for at in begins.tolist()):
        raise wire.Unreadable("a Begin of the wrong length")


def _alone(messages: Sequence[bytes], kinds: _Array) -> npt.NDArray[np.bool_]:
    """Logical messages that are of no transaction: each is a whole by itself."""
    found = np.zeros(len(kinds), np.bool_)
    for at in np.flatnonzero(kinds == wire.MESSAGE).tolist():
        found[at] = not wire.logical_message(messages[at])[0]
    return found


def _without_heartbeats(messages: Sequence[bytes]) -> tuple[Sequence[bytes], int]:
    """Our own say only how far the server is: everything that committed before one has come before it."""
    beats = [at for at, one in enumerate(messages) if one[0] == wire.MESSAGE and _is_heartbeat(one)]
    if not beats:
        return messages, 0
    gone = set(beats)
    return [one for at, one in enumerate(messages) if at not in gone], _end(messages[beats[-1]])


def _is_heartbeat(message: bytes) -> bool:
    transactional, _, ours = wire.logical_message(message)
    return ours and not transactional


def _end(message: bytes) -> int:
    """The source's position behind the last message of a transaction, or one that stands alone."""
    if message[0] == wire.COMMIT:
        return wire.commit(message).end_lsn
    return wire.logical_message(message)[1]


def _used(messages: Sequence[bytes], kinds: _Array) -> dict[int, int]:
    """Relations that are changed, each with the place of its first change."""
    rows = np.flatnonzero((kinds == wire.INSERT) | (kinds == wire.UPDATE) | (kinds == wire.DELETE))
    oids = np.frombuffer(b"".join([messages[at][1:5] for at in rows.tolist()]), ">u4")
    found, first = np.unique(oids, return_index=True)
    used = dict(zip(found.tolist(), rows[first].tolist(), strict=True))
    for at in np.flatnonzero(kinds == wire.TRUNCATE).tolist():
        for oid in wire.truncated_oids(messages[at]):
            used[oid] = min(at, used.get(oid, at))
    return used


def _unannounced(messages: Sequence[bytes], kinds: _Array) -> list[int]:
    """Relations that are changed before these messages announce them."""
    announced: dict[int, int] = {}
    for at in np.flatnonzero(kinds == wire.RELATION).tolist():
        announced.setdefault(wire.relation_oid(messages[at]), at)
    return [oid for oid, at in _used(messages, kinds).items() if announced.get(oid, at) >= at]


def _named(messages: Sequence[bytes], kinds: _Array) -> int:
    """How many schemas a block of these would name, at most."""
    return len(_unannounced(messages, kinds)) + int(np.count_nonzero(kinds == wire.RELATION))


def _narrowed(messages: Sequence[bytes]) -> Sequence[bytes]:
    """A Truncate of more relations than a block may name, as several."""
    if not any(one[0] == wire.TRUNCATE and len(one) > _TRUNCATE_BYTES_MAX for one in messages):
        return messages
    return [part for one in messages for part in (_narrow(one) if one[0] == wire.TRUNCATE else (one,))]


def _narrow(truncate: bytes) -> Iterator[bytes]:
    oids = wire.truncated_oids(truncate)
    for first in range(0, len(oids), RELATIONS_MAX):
        yield wire.truncate(truncate[5], oids[first : first + RELATIONS_MAX])


def _whole(messages: Sequence[bytes]) -> Whole:
    """A transaction that is in memory."""
    inner = messages[1:-1]
    return Whole(messages[0], lambda: iter([inner]), messages[-1], _size(inner), _nothing)


def _size(messages: Sequence[bytes]) -> int:
    return sum(map(len, messages))


def _nothing() -> None:
    """There is nothing to close."""


def _inner(spool: Spool) -> Iterator[Sequence[bytes]]:
    """All but the first and the last message."""
    held: list[bytes] | None = None
    for chunk in spool.chunks():
        if held is None:
            held = chunk[1:]
        elif chunk:
            yield held
            held = chunk
    yield (held or [])[:-1]


def _cut(transaction: Whole, size_max: int) -> Iterator[list[bytes]]:
    """Its messages, in pieces of about that size; the last one ends with the commit."""
    piece, size, relations = [transaction.begin], 0, set[bytes]()
    for chunk in transaction.changes():
        for message in chunk:
            names = _names(message)
            if len(relations) + len(names) > RELATIONS_MAX and not relations.issuperset(names):
                yield piece
                piece, size, relations = [], 0, set()
            piece.append(message)
            size += len(message)
            relations.update(names)
            if size >= size_max and message[0] not in wire.SCHEMA:
                yield piece
                piece, size, relations = [], 0, set()
    yield [*piece, transaction.commit]


def _names(message: bytes) -> Sequence[bytes]:
    """What a block may have to name for this message."""
    if message[0] in wire.ROWS:
        return (message[1:5],)
    if message[0] == wire.TRUNCATE:
        return [message[at : at + 4] for at in range(6, len(message), 4)]
    return (message,) if message[0] == wire.RELATION else ()


def _skipped(messages: Sequence[bytes], skip: int) -> tuple[int, int]:
    """How many of these the first `skip` that count take up; and how many are still to be skipped."""
    at = 0
    while skip and at < len(messages):
        skip -= messages[at][0] not in wire.UNCOUNTED
        at += 1
    return at, skip
