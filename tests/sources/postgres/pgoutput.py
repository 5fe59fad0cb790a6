"""pgoutput, written and read by hand for tests: a server's stream made up, and a plain parser of a real one.

Shares no code with Truecut: what capture makes of a stream is judged with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Transaction:
    """What one committed transaction did: its changes as sent, each beside its relation as announced."""

    xid: int
    commit_lsn: int
    end_lsn: int
    changes: tuple[tuple[bytes, tuple[bytes, ...]], ...]


def begin(xid: int, lsn: int) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 7, xid)


def commit(lsn: int, end: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, end, 7)


def relation(oid: int, name: str = "t") -> bytes:
    columns = b"\x01id\0" + struct.pack(">Ii", 20, -1)
    return b"R" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0d" + b"\0\1" + columns


def insert(oid: int, text: bytes) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N\0\1t" + struct.pack(">I", len(text)) + text


def logical(lsn: int, prefix: str, *, transactional: bool, content: bytes = b"") -> bytes:
    head = b"M" + struct.pack(">BQ", transactional, lsn) + prefix.encode() + b"\0"
    return head + struct.pack(">I", len(content)) + content


def streamed(message: bytes, xid: int) -> bytes:
    return message[:1] + struct.pack(">I", xid) + message[1:]


def stream_start(xid: int, *, first: bool) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


STREAM_STOP = b"E"


def stream_commit(xid: int, lsn: int, end: int) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, lsn, end, 7)


def stream_abort(xid: int, sub: int) -> bytes:
    return b"A" + struct.pack(">II", xid, sub)


def split(payload: bytes) -> list[bytes]:
    """The messages of a payload of `pgoutput/1`."""
    (count,) = struct.unpack_from("<I", payload)
    lengths = struct.unpack_from(f"<{count}I", payload, 4)
    at = 4 + 4 * count
    found = []
    for length in lengths:
        found.append(payload[at : at + length])
        at += length
    assert at == len(payload)
    return found


def transactions(messages: Iterable[bytes]) -> list[Transaction]:
    """What a stream says that is not streamed, one transaction after another."""
    return list(_transactions(messages))


def _transactions(messages: Iterable[bytes]) -> Iterator[Transaction]:
    known: dict[bytes, tuple[bytes, ...]] = {}
    types: list[bytes] = []
    xid: int | None = None
    changes: list[tuple[bytes, tuple[bytes, ...]]] = []
    for message in messages:
        kind = message[:1]
        if kind == b"B":
            assert xid is None, "a transaction inside another"
            _, _, xid = struct.unpack(">QqI", message[1:])
            changes = []
        elif kind == b"C":
            assert xid is not None
            _, lsn, end, _ = struct.unpack(">BQQq", message[1:])
            yield Transaction(xid, lsn, end, tuple(changes))
            xid = None
        elif kind == b"Y":
            types.append(message)
        elif kind == b"R":
            known[message[1:5]] = (*types, message)
            types = []
        elif kind == b"M" and xid is None:
            (lsn,) = struct.unpack(">Q", message[2:10])
            if not message[10:].startswith(b"truecut\0"):
                yield Transaction(0, lsn, lsn, ((message, ()),))
        else:
            assert xid is not None, kind
            changes.append((message, tuple(part for oid in _oids(message) for part in known[oid])))
    assert xid is None, "a transaction without its end"


def _oids(message: bytes) -> Sequence[bytes]:
    if message[:1] in (b"I", b"U", b"D"):
        return [message[1:5]]
    if message[:1] == b"T":
        (count,) = struct.unpack(">I", message[1:5])
        return [message[6 + 4 * n : 10 + 4 * n] for n in range(count)]
    return []


def require_announced(messages: Sequence[bytes]) -> None:
    """Every relation is announced before it is changed."""
    known: set[bytes] = set()
    for message in messages:
        if message[:1] == b"R":
            known.add(message[1:5])
        assert set(_oids(message)) <= known


def difference(found: Sequence[Transaction], expected: Sequence[Transaction]) -> str | None:
    """The first one, in few words; None when there is none."""
    for at, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"transaction {at}: {_said(one, other)}, expected {_said(other, one)}"
    return None if len(found) == len(expected) else f"{len(found)} transactions, expected {len(expected)}"


def _said(one: Transaction, other: Transaction) -> str:
    pairs = enumerate(zip(one.changes, other.changes, strict=False))
    first = next(((n, a) for n, (a, b) in pairs if a != b), None)
    return f"xid {one.xid} at {one.commit_lsn}-{one.end_lsn}, {len(one.changes)} changes, first other {first}"
