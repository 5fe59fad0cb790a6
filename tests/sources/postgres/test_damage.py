"""Each kind of damage to a message is refused, and says which message of which payload it is."""

from __future__ import annotations

import struct

import pytest

from tests.sources.postgres.streams import RELATIONS
from truecut.journal.decoding import Undecodable
from truecut.sources.postgres import framing
from truecut.sources.postgres.decode import decode

BEGIN = struct.pack(">cQqI", b"B", 100, 5, 7)
COMMIT = struct.pack(">cBQQq", b"C", 0, 100, 108, 5)


def text(value: bytes) -> bytes:
    return b"t" + struct.pack(">I", len(value)) + value


def change(kind: bytes, *parts: bytes, oid: int = 2) -> bytes:
    return kind + struct.pack(">I", oid) + b"".join(parts)


ROW = struct.pack(">H", 2) + text(b"a") + text(b"bc")
HALF = struct.pack(">H", 2) + text(b"a") + b"t\0\0"
LONG = struct.pack(">H", 2) + text(b"a") + b"t\xff\xff\xff\xffbc"

DAMAGE = {
    "it is empty": b"",
    "its kind is unknown here": b"S" + bytes(9),
    "it is too short for its kind": b"I\0\0",
    "it is too long for its kind": BEGIN + b"\0",
    "a transaction begins before the last one has ended": BEGIN,
    "it ends another transaction": struct.pack(">cBQQq", b"C", 0, 101, 108, 5),
    "its row has not the 2 columns": change(b"I", b"N", struct.pack(">H", 3), text(b"a") * 3),
    "it ends in the middle of its row": change(b"I", b"N", struct.pack(">H", 2), text(b"a")),
    "it ends in the middle of a value's length": change(b"I", b"N", HALF),
    "a value ends after its message": change(b"I", b"N", LONG),
    "a value is of an unknown kind": change(b"I", b"N", struct.pack(">H", 2), text(b"a"), b"b\0\0\0\1x"),
    "it goes on after its row": change(b"D", b"K", ROW, b"\0"),
    "its row is of an unknown kind": change(b"I", b"K", ROW),
    "its new row is of an unknown kind": change(b"U", b"K", ROW, b"O", ROW),
    "it ends before its new row": change(b"U", b"K", ROW),
    "it ends before its row": change(b"U", b"K", ROW, b"N"),
    "an old row lacks a value": change(b"D", b"O", struct.pack(">H", 2), text(b"a"), b"u"),
    "an inserted row lacks a value": change(b"I", b"N", struct.pack(">H", 2), text(b"a"), b"u"),
    "its relations do not fill it": b"T" + struct.pack(">IBI", 2, 0, 1),
    "it is not a relation": b"R" + struct.pack(">I", 2) + b"public\0b\0" + b"d\0\1",
    "it is not a logical message": b"M" + struct.pack(">BQ", 1, 9) + b"p\0" + struct.pack(">I", 9) + b"xyz",
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_damage_says_where(reason: str) -> None:
    """The second message of the second payload; what is whole before it does not hide it."""
    whole = [BEGIN, change(b"I", b"N", ROW), COMMIT]
    hurt = [BEGIN, DAMAGE[reason], *([] if DAMAGE[reason][:1] == b"C" else [COMMIT])]
    byte = 4 + 4 * len(hurt) + len(BEGIN)
    with pytest.raises(Undecodable, match=rf"^message 1, at byte {byte}: {reason}") as refused:
        decode([framing.encode(whole), framing.encode(hurt)], RELATIONS)
    assert refused.value.index == 1


@pytest.mark.parametrize(
    "message", [change(b"I", b"N", ROW), COMMIT, b"M" + struct.pack(">BQ", 1, 9) + b"p\0" + bytes(4)]
)
def test_what_belongs_to_a_transaction_stands_in_one(message: bytes) -> None:
    """A change, a Commit or a transactional message without a Begin: a record was lost before."""
    with pytest.raises(Undecodable, match=r"^message 0, at byte 8: it is not within a transaction"):
        decode([framing.encode([message])], RELATIONS)


def test_a_payload_that_is_cut_is_refused_as_a_whole() -> None:
    """Framing and messages must end together."""
    payload = framing.encode([BEGIN, COMMIT])
    for end in range(len(payload)):
        with pytest.raises(Undecodable):
            decode([payload, payload[:end]], RELATIONS)
