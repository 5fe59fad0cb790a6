"""What every codec gives: changes, whatever the payload is written in.

A codec is a pure function: payloads in, changes out. It is given several payloads at once, because many
small ones cost less together; each change says which of them it comes from. What it cannot read it refuses
with `Undecodable`; it never guesses. Whoever writes a record names its tables in the head, by `schema_id`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from truecut.model.change import AFTER, BEFORE, COMMITTED_AT, IMAGE, OP, SEQ, TRANSACTION, UNCHANGED

RECORD = "_truecut_record"  # int32: which of the payloads

_CONTROL_FIELDS = (
    pa.field(RECORD, pa.int32(), nullable=False),
    pa.field(OP, pa.uint8(), nullable=False),
    pa.field(SEQ, pa.int64(), nullable=False),
    pa.field(TRANSACTION, pa.string()),
    pa.field(COMMITTED_AT, pa.timestamp("us", tz="UTC")),
    pa.field(IMAGE, pa.uint8(), nullable=False),
    pa.field(UNCHANGED, pa.list_(pa.int32())),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one table, or of none (messages), with the columns of `changes_schema`."""

    table: str | None
    key: tuple[str, ...]
    rows: pa.RecordBatch


class Undecodable(ValueError):
    """A payload that is not what its codec writes. The reason names no value."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index  # which of the payloads
        self.reason = reason


Codec: TypeAlias = Callable[[Sequence[bytes]], Sequence[Changes]]


def changes_schema(image: pa.DataType) -> pa.Schema:
    """Of changes whose rows, before and after, are of this type: a struct for a table."""
    return pa.schema([*_CONTROL_FIELDS, pa.field(BEFORE, image), pa.field(AFTER, image)])


def schema_id(table: str, columns: pa.DataType) -> int:
    """What a record's head says of a table in it: its name in the upper half, its columns in the lower.

    It tells which records to look into; two tables may share one, so whoever looks checks.
    """
    return table_hash(table) << 32 | zlib.crc32(str(columns).encode())


def table_hash(table: str) -> int:
    """The upper half of a schema id."""
    return zlib.crc32(table.encode())
