"""The messages of pgoutput, as far as capture looks into them: their kind and a few fixed fields.

Owns the layout of heads. Whatever a row holds is not read here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

BEGIN, COMMIT, ORIGIN, MESSAGE = b"B"[0], b"C"[0], b"O"[0], b"M"[0]
RELATION, TYPE, TRUNCATE = b"R"[0], b"Y"[0], b"T"[0]
INSERT, UPDATE, DELETE = b"I"[0], b"U"[0], b"D"[0]
STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT = b"S"[0], b"E"[0], b"c"[0], b"A"[0]
PREPARING = frozenset(b"bPKrp")  # of a slot with two_phase
SCHEMA = frozenset((RELATION, TYPE))
STREAMING = frozenset((STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT))
ROWS = frozenset((INSERT, UPDATE, DELETE))
CHANGES = ROWS | {TRUNCATE, MESSAGE}
UNCOUNTED = SCHEMA | {ORIGIN}  # not the same in every reading: a streamed transaction has no Origin
KNOWN = frozenset((BEGIN, COMMIT, ORIGIN)) | SCHEMA | CHANGES | STREAMING

EPOCH_MS = 946_684_800_000  # 2000-01-01, where PostgreSQL's time begins
HEARTBEAT = "truecut"  # the prefix of our own logical messages

_BEGIN = struct.Struct(">cQqI")
BEGIN_BYTES = _BEGIN.size
_COMMIT = struct.Struct(">cBQQq")
_STREAM_START = struct.Struct(">cIB")
_STREAM_COMMIT = struct.Struct(">cIBQQq")
_STREAM_ABORT = struct.Struct(">cII")
_LOGICAL = struct.Struct(">cBQ")
_HEARTBEAT = HEARTBEAT.encode() + b"\0"


class Unreadable(ValueError):
    """A message that is not what the protocol says; it names no value."""


class Begin(NamedTuple):
    """Of a transaction that has committed at `commit_lsn`."""

    commit_lsn: int
    committed_us: int  # since 2000-01-01
    xid: int

    def message(self) -> bytes:
        """As the server sends it."""
        return _BEGIN.pack(b"B", *self)

    @property
    def committed_ms(self) -> int:
        """Since 1970."""
        return self.committed_us // 1000 + EPOCH_MS


class Commit(NamedTuple):
    """The end of a transaction. `end_lsn` is behind its commit record: what may be confirmed."""

    flags: int
    commit_lsn: int
    end_lsn: int
    committed_us: int

    def message(self) -> bytes:
        """As the server sends it."""
        return _COMMIT.pack(b"C", *self)


def begin(message: bytes) -> Begin:
    """The fields of a Begin."""
    return Begin(*_fields(_BEGIN, message)[1:])


def commit(message: bytes) -> Commit:
    """The fields of a Commit."""
    return Commit(*_fields(_COMMIT, message)[1:])


def stream_start(message: bytes) -> tuple[int, bool]:
    """Of which transaction a block follows, and whether it is its first."""
    _, xid, first = _fields(_STREAM_START, message)
    return xid, bool(first)


def stream_commit(message: bytes) -> tuple[Begin, Commit]:
    """What a transaction that was not streamed would have begun and ended with."""
    _, xid, flags, commit_lsn, end_lsn, committed_us = _fields(_STREAM_COMMIT, message)
    return Begin(commit_lsn, committed_us, xid), Commit(flags, commit_lsn, end_lsn, committed_us)


def stream_abort(message: bytes) -> tuple[int, int]:
    """The transaction, and the part of it that is gone: itself, or a subtransaction."""
    if len(message) < _STREAM_ABORT.size:
        raise Unreadable("a Stream Abort that is too short")
    _, xid, gone = _STREAM_ABORT.unpack_from(message)
    return xid, gone


def logical_message(message: bytes) -> tuple[bool, int, bool]:
    """Of a logical message: whether it is part of a transaction, where it ends in the log (which is where the
    next record begins), whether it is our own."""
    if len(message) < _LOGICAL.size:
        raise Unreadable("a logical message that is too short")
    _, flags, lsn = _LOGICAL.unpack_from(message)
    return bool(flags & 1), lsn, message.startswith(_HEARTBEAT, _LOGICAL.size)


def relation_oid(message: bytes) -> int:
    """Of a Relation message, or of a change of one relation."""
    return int.from_bytes(message[1:5], "big")


def truncated_oids(message: bytes) -> tuple[int, ...]:
    """The relations that a Truncate empties."""
    count = int.from_bytes(message[1:5], "big")
    if len(message) != 6 + 4 * count:
        raise Unreadable("a Truncate of the wrong length")
    return struct.unpack_from(f">{count}I", message, 6)


def truncate(flags: int, oids: Sequence[int]) -> bytes:
    """A Truncate of these relations."""
    return struct.pack(f">cIB{len(oids)}I", b"T", len(oids), flags, *oids)


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Read what PostgreSQL wrote; ValueError when it is anything else."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"not a place in the WAL: {text!r}")
    return int(high, 16) << 32 | int(low, 16)


def _fields(layout: struct.Struct, message: bytes) -> tuple[int, ...]:
    if len(message) != layout.size:
        raise Unreadable(f"a message {chr(message[0]) if message else ''!r} of {len(message)} bytes")
    return layout.unpack(message)
