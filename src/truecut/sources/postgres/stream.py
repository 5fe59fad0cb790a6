"""The messages of pgoutput, without their rows: kinds, transactions, and the order of changes.

Owns what stands around the rows: Begin and Commit, the relation that a change is of, truncates, logical
messages. Everything is read for many messages at once. Promises: what does not have the form of the
protocol (text format, not streamed) is refused with its place; nothing is read beyond a message's end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from truecut.journal.decoding import Undecodable
from truecut.sources.postgres import framing

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

BEGIN, COMMIT, RELATION, TYPE, ORIGIN = b"BCRYO"
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = b"IUDTM"
DATA_BYTES_MAX = (1 << 31) - 1  # Arrow's offsets have 32 bits

_EPOCH_US = 946_684_800_000_000  # 2000-01-01, where PostgreSQL's time begins
_SIZES = {BEGIN: 21, COMMIT: 26}
# The least that a message of each kind has; a change has its relation, and a tuple of no columns.
_SIZES_MIN = np.full(256, -1, np.int64)
_SIZES_MIN[[BEGIN, COMMIT, RELATION, TYPE, ORIGIN]] = 21, 26, 10, 7, 10
_SIZES_MIN[[INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE]] = 8, 8, 8, 6, 15
_SEQS = np.zeros(256, np.int64)  # numbers that a message takes: a changed key is a delete and an insert
_SEQS[[INSERT, UPDATE, DELETE, MESSAGE]] = 2, 2, 2, 1


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that goes on in the next record: its Begin, and how far its changes are numbered."""

    xid: int
    commit_lsn: int
    committed_at_us: int
    seq: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a stream, in its order; all but the last have their Commit."""

    xids: Ints
    commit_lsns: Ints
    end_lsns: Ints  # of those with a Commit
    committed_at_us: Ints


@dataclass(frozen=True, slots=True)
class Stream:
    """Messages and what holds for each of them."""

    data: Bytes
    starts: Ints
    ends: Ints
    firsts: Ints  # the first message of each payload
    bases: Ints  # where each payload begins
    kinds: Bytes
    transaction: Ints  # the number of its transaction; -1 outside of any
    seqs: Ints  # the number of its first change within the transaction
    transactions: Transactions
    open: Open | None

    def broken(self, message: int, reason: str) -> Undecodable:
        """An error that says where."""
        payload = int(np.searchsorted(self.firsts, message, side="right")) - 1
        place = message - int(self.firsts[payload])
        byte = int(self.starts[message] - self.bases[payload])
        return Undecodable(payload, f"message {place}, at byte {byte}: {reason}")

    def payload_of(self, messages: Ints) -> Ints:
        """Which of the payloads these messages are of."""
        if len(self.firsts) == 1:
            return np.zeros(len(messages), np.int64)
        return np.searchsorted(self.firsts, messages, side="right") - 1

    def number(self, at: Ints, width: int) -> Ints:
        """Big-endian unsigned integers of so many bytes, which must all be there."""
        shape = (max(0, len(self.data) - width + 1),)
        # Picked as opaque bytes: numpy copies those as they lie, and swaps them afterwards, all at once.
        view: npt.NDArray[np.void] = np.ndarray(shape, f"V{width}", self.data, strides=(1,))
        return view[at].view(f">u{width}").astype(np.int64)

    def of_kind(self, kind: int) -> Ints:
        """The numbers of all messages of a kind."""
        return np.flatnonzero(self.kinds == kind)


def read(payloads: Sequence[bytes], opened: Open | None = None) -> Stream:
    """The messages of these payloads, which follow each other; `opened` as the one before them left it."""
    bare = _join(payloads)
    bare = replace(bare, kinds=_kinds(bare))
    transaction = _membership(bare, opened)
    transactions = _transactions(bare, opened)
    seqs, following = _seqs(bare, transaction, opened)
    left = _left_open(transactions, following)
    return replace(bare, transaction=transaction, seqs=seqs, transactions=transactions, open=left)


_NO_INTS = np.zeros(0, np.int64)
_NOTHING = (np.zeros(0, np.uint8), _NO_INTS, _NO_INTS, Transactions(*[_NO_INTS] * 4), None)


def _join(payloads: Sequence[bytes]) -> Stream:
    """The messages, of which nothing is known yet."""
    if sum(map(len, payloads)) > DATA_BYTES_MAX:
        raise ValueError(f"at most {DATA_BYTES_MAX} bytes are decoded at once")
    framed = [_unframe(index, payload) for index, payload in enumerate(payloads)]
    data = np.frombuffer(payloads[0] if len(payloads) == 1 else b"".join(payloads), np.uint8)
    bases = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    starts = [offsets[:-1] + base for offsets, base in zip(framed, bases, strict=False)]
    ends = [offsets[1:] + base for offsets, base in zip(framed, bases, strict=False)]
    firsts = np.cumsum([0, *map(len, starts)], dtype=np.int64)[:-1]
    begins, limits = np.concatenate([_NO_INTS, *starts]), np.concatenate([_NO_INTS, *ends])
    return Stream(data, begins, limits, firsts, bases, *_NOTHING)


def _unframe(index: int, payload: bytes) -> Ints:
    try:
        return framing.decode(payload)[0]
    except ValueError as error:
        raise Undecodable(index, str(error)) from None


def _kinds(stream: Stream) -> Bytes:
    sizes = stream.ends - stream.starts
    _refuse(stream, sizes == 0, "it is empty")
    kinds = stream.data[stream.starts]
    least = _SIZES_MIN[kinds]
    _refuse(stream, least < 0, "its kind is unknown here")
    _refuse(stream, sizes < least, "it is too short for its kind")
    for kind, size in _SIZES.items():
        _refuse(stream, (kinds == kind) & (sizes != size), "it is too long for its kind")
    return kinds


def _refuse(stream: Stream, wrong: Flags, reason: str) -> None:
    if wrong.any():
        raise stream.broken(int(np.argmax(wrong)), reason)


def _membership(stream: Stream, opened: Open | None) -> Ints:
    """Begin, changes, Commit, one after another. Only messages of their own stand outside."""
    begins, commits = stream.kinds == BEGIN, stream.kinds == COMMIT
    begun, ended = np.cumsum(begins), np.cumsum(commits)
    before = (begun - begins) - (ended - commits) + (opened is not None)
    _refuse(stream, begins & (before != 0), "a transaction begins before the last one has ended")
    outside = (before == 0) & ~begins
    loose = (stream.kinds == MESSAGE) | (stream.kinds == RELATION) | (stream.kinds == TYPE)
    _refuse(stream, outside & ~loose, "it is not within a transaction")
    number = begun - 1 + (opened is not None)
    number[outside] = -1
    return number


def _transactions(stream: Stream, opened: Open | None) -> Transactions:
    begins, commits = stream.starts[stream.of_kind(BEGIN)], stream.starts[stream.of_kind(COMMIT)]
    lsns, times = stream.number(begins + 1, 8), stream.number(begins + 9, 8) + _EPOCH_US
    xids = stream.number(begins + 17, 4)
    if opened is not None:
        xids, lsns = np.append(opened.xid, xids), np.append(opened.commit_lsn, lsns)
        times = np.append(opened.committed_at_us, times)
    committed, commit_times = stream.number(commits + 2, 8), stream.number(commits + 18, 8) + _EPOCH_US
    wrong = (committed != lsns[: len(commits)]) | (commit_times != times[: len(commits)])
    if wrong.any():
        message = int(stream.of_kind(COMMIT)[np.argmax(wrong)])
        raise stream.broken(message, "it ends another transaction than the one that began")
    return Transactions(xids, lsns, stream.number(commits + 10, 8), times)


def _seqs(stream: Stream, transaction: Ints, opened: Open | None) -> tuple[Ints, int]:
    """The number of each message's first change, and the one that comes next."""
    taken = _SEQS[stream.kinds]
    truncates = stream.of_kind(TRUNCATE)
    taken[truncates] = _truncated_count(stream, truncates)
    total = np.cumsum(taken)
    before = total - taken
    base = np.append(-(opened.seq if opened else 0), before)  # a Begin's own; before it, what was carried
    began = np.maximum.accumulate(np.where(stream.kinds == BEGIN, np.arange(1, len(taken) + 1), 0))
    seqs = np.where(transaction < 0, 0, before - base[began])
    following = int(total[-1] - base[began[-1]]) if len(taken) else int(-base[0])
    return seqs, following


def _left_open(transactions: Transactions, following: int) -> Open | None:
    if len(transactions.xids) == len(transactions.end_lsns):
        return None
    return Open(
        int(transactions.xids[-1]),
        int(transactions.commit_lsns[-1]),
        int(transactions.committed_at_us[-1]),
        following,
    )


# --- truncates, relations, messages: few, so one by one ---------------------------------------------------


def _truncated_count(stream: Stream, messages: Ints) -> Ints:
    counts = stream.number(stream.starts[messages] + 1, 4)
    wrong = stream.ends[messages] - stream.starts[messages] != 6 + 4 * counts
    if wrong.any():
        raise stream.broken(int(messages[np.argmax(wrong)]), "its relations do not fill it")
    return counts


def truncated(stream: Stream) -> tuple[Ints, Ints, Ints]:
    """For each relation of each truncate: the message, the relation's oid, its number among them."""
    messages = stream.of_kind(TRUNCATE)
    counts = _truncated_count(stream, messages)
    which = np.repeat(messages, counts)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, stream.number(stream.starts[which] + 6 + 4 * nth, 4), nth


@dataclass(frozen=True, slots=True)
class Announced:
    """A Relation message: what the rows that follow it look like."""

    message: int
    oid: int
    schema: str
    table: str
    replica_identity: str
    columns: tuple[tuple[bool, str, int, int], ...]  # in the replica identity, name, type oid, typmod


_HEAD, _COLUMN = struct.Struct(">I"), struct.Struct(">II")


def announced(stream: Stream) -> Iterator[Announced]:
    """Every Relation message."""
    for message in stream.of_kind(RELATION).tolist():
        raw = stream.data[stream.starts[message] : stream.ends[message]].tobytes()
        try:
            yield _announced(message, raw)
        except (ValueError, IndexError, struct.error):
            raise stream.broken(message, "it is not a relation") from None


def _announced(message: int, raw: bytes) -> Announced:
    (oid,) = _HEAD.unpack_from(raw, 1)
    schema, at = _text(raw, 5)
    table, at = _text(raw, at)
    identity, count = chr(raw[at]), int.from_bytes(raw[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        name, after = _text(raw, at + 1)
        type_oid, typmod = _COLUMN.unpack_from(raw, after)
        columns.append((bool(raw[at] & 1), name, type_oid, typmod - (typmod >> 31 << 32)))
        at = after + _COLUMN.size
    if at != len(raw) or identity not in "dnif":
        raise ValueError
    return Announced(message, oid, schema or "pg_catalog", table, identity, tuple(columns))


def _text(raw: bytes, at: int) -> tuple[str, int]:
    end = raw.index(b"\0", at)
    return raw[at:end].decode(), end + 1


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What `pg_logical_emit_message` wrote. One that is not transactional has a place of its own."""

    message: int
    transactional: bool
    lsn: int
    prefix: str
    content: bytes


_MESSAGE = struct.Struct(">BQ")


def logical_messages(stream: Stream) -> Iterator[LogicalMessage]:
    """Every logical message."""
    for message in stream.of_kind(MESSAGE).tolist():
        raw = stream.data[stream.starts[message] : stream.ends[message]].tobytes()
        try:
            yield _logical_message(message, raw)
        except (ValueError, struct.error):
            raise stream.broken(message, "it is not a logical message") from None


def _logical_message(message: int, raw: bytes) -> LogicalMessage:
    flags, lsn = _MESSAGE.unpack_from(raw, 1)
    prefix, at = _text(raw, 10)
    (size,) = _HEAD.unpack_from(raw, at)
    content = raw[at + 4 :]
    if flags > 1 or len(content) != size:
        raise ValueError
    return LogicalMessage(message, flags == 1, lsn, prefix, content)
