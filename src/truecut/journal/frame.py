"""A frame: the records that one sync made durable, with a checksum that is chained to the frame before.

A sync covers exactly one frame. So behind a frame that was torn by a crash there is nothing, and a good
frame behind a bad one is proof that the bad one was whole once: corruption. A frame names its log, its writer
and its place, because a payload may hold any bytes: those of a frame, too. docs/journal-format.md has every
byte.

    header | heads of the records | their payloads
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from truecut.errors import require
from truecut.journal.record import Damaged, Head, Record, head_bytes, parse_heads

MAGIC = b"TCF1"
_HEADER = struct.Struct("<4s16sQIIQIII")
HEADER_BYTES = _HEADER.size
HEADS_BYTES_MAX = 16 << 20
APPEND_HEADS_BYTES_MAX = HEADS_BYTES_MAX // 2  # of one append; a frame holds several small ones
PAYLOADS_BYTES_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Header:
    """What can be said of a frame without reading its payloads."""

    log_id: bytes
    first: int  # the number of its first record
    count: int
    heads_bytes: int
    epoch: int  # of the writer
    payloads_bytes: int
    previous_crc: int
    crc: int  # of header and heads; the heads hold the payloads' own

    @property
    def last(self) -> int:
        """The number of its last record."""
        return self.first + self.count - 1

    @property
    def fields(self) -> tuple[bytes | int, ...]:
        """All that stands before the checksum."""
        return (
            MAGIC,
            self.log_id,
            self.first,
            self.count,
            self.heads_bytes,
            self.epoch,
            self.payloads_bytes,
            self.previous_crc,
        )

    @property
    def heads_end(self) -> int:
        """Bytes of the frame without its payloads."""
        return HEADER_BYTES + self.heads_bytes

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        return self.heads_end + self.payloads_bytes


def size_of(records: Sequence[Record]) -> int:
    """Bytes of one append within a frame, which it must fit into: a frame that is too large is never good."""
    heads_bytes = sum(record.head_size for record in records)
    payloads_bytes = sum(len(record.payload) for record in records)
    require(
        heads_bytes <= APPEND_HEADS_BYTES_MAX, "the records of one append fit into a frame by their number"
    )
    require(
        payloads_bytes <= PAYLOADS_BYTES_MAX // 2, "the records of one append fit into a frame by their size"
    )
    return heads_bytes + payloads_bytes


def encode(
    records: Sequence[Record], *, log_id: bytes, first: int, epoch: int, previous_crc: int
) -> tuple[Header, bytes]:
    """A frame of these records, and its bytes up to the payloads, which follow as they are."""
    heads = b"".join(map(head_bytes, records))
    payloads_bytes = sum(len(record.payload) for record in records)
    header = Header(log_id, first, len(records), len(heads), epoch, payloads_bytes, previous_crc, 0)
    header = replace(header, crc=_crc(header, heads))
    return header, _HEADER.pack(*header.fields, header.crc) + heads


def beginning(log_id: bytes) -> bytes:
    """What every frame of a log begins with."""
    return MAGIC + log_id


def parse_header(data: bytes) -> Header:
    """The header alone: plausible, and not yet checked."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        raise Damaged("header")
    header = Header(*_HEADER.unpack(data[:HEADER_BYTES])[1:])
    if header.heads_bytes > HEADS_BYTES_MAX or not header.count:
        raise Damaged("header")
    return header


def check_heads(header: Header, data: bytes) -> list[Head]:
    """The heads, once the frame's checksum has been found right."""
    if len(data) != header.heads_bytes or _crc(header, data) != header.crc:
        raise Damaged("checksum")
    heads = parse_heads(data, header.count)
    if sum(head.payload_bytes for head in heads) != header.payloads_bytes:
        raise Damaged("lengths")
    return heads


def check_payloads(heads: Sequence[Head], data: memoryview) -> list[Record]:
    """The records, each payload checked."""
    records = []
    at = 0
    for head in heads:
        records.append(head.with_payload(bytes(data[at : at + head.payload_bytes])))
        at += head.payload_bytes
    return records


def read_records(file: BinaryIO, header: Header) -> Iterator[Record]:
    """The rest of a frame whose header has been read, record by record, each checked; a payload is read to
    where it stays."""
    for head in check_heads(header, file.read(header.heads_bytes)):
        yield head.with_payload(_read_exactly(file, head.payload_bytes))


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise Damaged("payloads")
    return data


def whole(records: Sequence[Record], *, log_id: bytes, first: int, epoch: int) -> bytes:
    """A frame in one piece, chained to none: as it travels."""
    _, head = encode(records, log_id=log_id, first=first, epoch=epoch, previous_crc=0)
    return b"".join([head, *(record.payload for record in records)])


def decode(data: memoryview) -> tuple[Header, list[Record]]:
    """A frame in one piece, checked; Damaged when it is anything else."""
    header, heads, payloads = _apart(data)
    return header, check_payloads(heads, payloads)


def decode_heads(data: memoryview) -> tuple[Header, list[Head]]:
    """A frame without its payloads."""
    header = parse_header(bytes(data[:HEADER_BYTES]))
    return header, check_heads(header, bytes(data[HEADER_BYTES:]))


def verify(data: memoryview) -> Header:
    """As `decode`, where the records are not wanted."""
    header, heads, payloads = _apart(data)
    at = 0
    for head in heads:
        if zlib.crc32(payloads[at : at + head.payload_bytes]) != head.payload_crc:
            raise Damaged("payload")
        at += head.payload_bytes
    return header


def _apart(data: memoryview) -> tuple[Header, list[Head], memoryview]:
    header = parse_header(bytes(data[:HEADER_BYTES]))
    if header.size != len(data):
        raise Damaged("length")
    heads = check_heads(header, bytes(data[HEADER_BYTES : header.heads_end]))
    return header, heads, data[header.heads_end :]


def _crc(header: Header, heads: bytes) -> int:
    return zlib.crc32(heads, zlib.crc32(_HEADER.pack(*header.fields, 0)))
