"""What a journal holds: records whose payload it does not look into.

A record's head says what the payload is and carries its checksum; a frame's own checksum covers the heads.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from truecut.errors import require
from truecut.model.position import UNTOLD, SourcePosition

PAYLOAD_BYTES_MAX = 64 << 20

SOURCE_BYTES_MAX = (1 << 16) - 1

# payload bytes, payload CRC, generation, part, rows, kind, last, bytes of the codec, number of schemas,
# bytes of the source's position
_HEAD = struct.Struct("<IIIIIBBBBH")
_SCHEMA = struct.Struct("<Q")
_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1


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
    source_position: SourcePosition = UNTOLD  # the record's end in the source's own words

    @property
    def head_size(self) -> int:
        """Bytes of its head as it is stored."""
        texts = len(self.codec.encode()) + len(self.source_position.encode())
        return _HEAD.size + texts + _SCHEMA.size * len(self.schemas)

    def __post_init__(self) -> None:
        """Whatever is taken can be written, and read again."""
        require(isinstance(self.payload, bytes), "a record's payload is bytes")
        require(len(self.payload) <= PAYLOAD_BYTES_MAX, "a record's payload is within its bound")
        require(len(self.codec.encode()) < 256 and len(self.schemas) < 256, "a record's head is small")
        told = len(self.source_position.encode()) <= SOURCE_BYTES_MAX
        require(told, "a source's position is within its bound")
        numbers = 0 <= self.generation <= _U32 and 0 <= self.part <= _U32 and 0 <= self.rows <= _U32
        require(numbers, "a record's generation, part and rows are counts of 32 bits")
        require(isinstance(self.kind, Kind), "a record's kind is known")
        known = not self.schemas or (min(self.schemas) >= 0 and max(self.schemas) <= _U64)
        require(known, "a schema's id has 64 bits")


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
        parts = (one.schemas, one.part, one.last, one.rows, one.source_position)
        return Record(payload, one.kind, one.codec, one.generation, *parts)

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
        len(source := record.source_position.encode()),
    )
    return fixed + codec + b"".join(map(_SCHEMA.pack, record.schemas)) + source


def parse_heads(data: bytes, count: int) -> list[Head]:
    """As many heads as the frame says, which must fill the data exactly."""
    heads = []
    at = 0
    try:
        for _ in range(count):
            size, crc, generation, part, rows, kind, last, codec_bytes, schema_count, source_bytes = (
                _HEAD.unpack_from(data, at)
            )
            at += _HEAD.size
            codec = data[at : at + codec_bytes].decode()
            at += codec_bytes
            schemas = struct.unpack_from(f"<{schema_count}Q", data, at)
            at += schema_count * _SCHEMA.size
            source = SourcePosition(data[at : at + source_bytes].decode())
            at += source_bytes
            if size > PAYLOAD_BYTES_MAX:
                raise Damaged("heads")
            record = Record(b"", Kind(kind), codec, generation, schemas, part, bool(last), rows, source)
            heads.append(Head(record, size, crc))
    except (struct.error, ValueError) as error:
        raise Damaged("heads") from error
    if at != len(data):
        raise Damaged("heads")
    return heads
