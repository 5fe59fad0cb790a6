"""What a journal holds: records whose payload it does not look into.

A record's head says what the payload is and carries its checksum; a frame's own checksum covers the heads.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from truecut.errors import require

PAYLOAD_BYTES_MAX = 64 << 20

# payload bytes, payload CRC, generation, part, rows, kind, last, bytes of the codec, number of schemas
_HEAD = struct.Struct("<IIIIIBBBB")
_SCHEMA = struct.Struct("<Q")


class Kind(IntEnum):
    """What a record is about."""

    CHANGES = 1
    SCHEMA = 2
    UNIT = 3  # a backfilled range: its rows are in a file
    MARKER = 4


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the log. A transaction may span several: `part` counts them, `last` ends it; nothing of
    another one stands between."""

    payload: bytes
    kind: Kind = Kind.CHANGES
    codec: str = "lines/1"  # what the payload is written in, with its version
    generation: int = 1  # of the source; it never falls along the log
    schemas: tuple[int, ...] = ()
    part: int = 0
    last: bool = True
    rows: int = 1  # changes in the payload, for readers who take only so many at a time

    @property
    def head_size(self) -> int:
        """Bytes of its head as it is stored."""
        return _HEAD.size + len(self.codec.encode()) + _SCHEMA.size * len(self.schemas)

    def __post_init__(self) -> None:
        require(len(self.payload) <= PAYLOAD_BYTES_MAX, "a record's payload is within its bound")
        require(len(self.codec.encode()) < 256 and len(self.schemas) < 256, "a record's head is small")


class Damaged(ValueError):
    """Bytes that are not what was written."""


@dataclass(frozen=True, slots=True)
class Head:
    """A record without its payload."""

    record: Record
    payload_bytes: int
    payload_crc: int

    def with_payload(self, payload: bytes) -> Record:
        """The whole record; Damaged when the payload is not the one that was written."""
        if zlib.crc32(payload) != self.payload_crc:
            raise Damaged("payload")
        one = self.record
        return Record(payload, one.kind, one.codec, one.generation, one.schemas, one.part, one.last, one.rows)

    @property
    def generation(self) -> int:
        """Of the source."""
        return self.record.generation


def head_bytes(record: Record) -> bytes:
    """The head as it is stored."""
    codec = record.codec.encode()
    fixed = _HEAD.pack(
        len(record.payload),
        zlib.crc32(record.payload),
        record.generation,
        record.part,
        record.rows,
        record.kind,
        record.last,
        len(codec),
        len(record.schemas),
    )
    return fixed + codec + b"".join(map(_SCHEMA.pack, record.schemas))


def parse_heads(data: bytes, count: int) -> list[Head]:
    """As many heads as the frame says, which must fill the data exactly."""
    heads = []
    at = 0
    try:
        for _ in range(count):
            size, crc, generation, part, rows, kind, last, codec_bytes, schema_count = _HEAD.unpack_from(
                data, at
            )
            at += _HEAD.size
            codec = data[at : at + codec_bytes].decode()
            at += codec_bytes
            schemas = struct.unpack_from(f"<{schema_count}Q", data, at)
            at += schema_count * _SCHEMA.size
            if size > PAYLOAD_BYTES_MAX:
                raise Damaged("heads")
            record = Record(b"", Kind(kind), codec, generation, schemas, part, bool(last), rows)
            heads.append(Head(record, size, crc))
    except (struct.error, ValueError) as error:
        raise Damaged("heads") from error
    if at != len(data):
        raise Damaged("heads")
    return heads
