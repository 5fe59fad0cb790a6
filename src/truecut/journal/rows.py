"""The codec `rows/1`: typed changes of one or several tables in a record.

    "TCR1" | CRC of the rest | for each table: bytes of its block (u64), its block

A block is an Arrow IPC stream, compressed by zstd, of one batch with the columns of `changes_schema` (less
the number of the record). The table's name and key are metadata of its schema. `seq` is the order over all
tables of the record, and no two changes of a record have the same.

The journal has a checksum of its own; this one goes with the payload wherever it is carried, so that Arrow
is never given bytes that nobody wrote.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from truecut.errors import require
from truecut.journal.decoding import RECORD, Changes, Undecodable, changes_schema, schema_id
from truecut.journal.record import Kind, Record
from truecut.model.change import AFTER, BEFORE, EVENT_NAMES, FULL_IMAGE, IMAGE, OP, SEQ, UNCHANGED

CODEC = "rows/1"
TABLES_MAX = 255

_MAGIC = b"TCR1"
_CRC = struct.Struct("<I")
_BLOCK = struct.Struct("<Q")
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")
_TABLE, _KEY = b"truecut.table", b"truecut.key"
# Whatever Arrow, JSON and struct say of bytes that are not theirs.
_REFUSALS = (pa.ArrowException, ValueError, OSError, LookupError, TypeError, MemoryError, struct.error)


def record_of(
    tables: Sequence[Changes],
    *,
    generation: int = 1,
    part: int = 0,
    last: bool = True,
    kind: Kind = Kind.CHANGES,
) -> Record:
    """A record that holds these changes, with what its readers look for in its head."""
    ids = tuple(schema_id(str(one.table), one.rows.schema.field(AFTER).type) for one in tables)
    rows = sum(one.rows.num_rows for one in tables)
    return Record(encode(tables), kind, CODEC, generation, ids, part, last, rows)


def rows_schema(columns: pa.Schema) -> pa.Schema:
    """Of the changes of a table with these columns, as they are encoded."""
    schema = changes_schema(pa.struct(list(columns)))
    return schema.remove(schema.get_field_index(RECORD))


def encode(tables: Sequence[Changes]) -> bytes:
    """One payload of the changes of these tables. `rows` have the columns of `rows_schema`."""
    require(len(tables) <= TABLES_MAX, "a record's head names at most so many tables")
    seqs = pa.chunked_array([one.rows.column(SEQ) for one in tables], pa.int64())
    require(pc.count_distinct(seqs).as_py() == len(seqs), "no two changes of a record have the same seq")
    rest = b"".join(_BLOCK.pack(len(block)) + block for block in map(_encode_block, tables))
    return _MAGIC + _CRC.pack(zlib.crc32(rest)) + rest


def _encode_block(one: Changes) -> bytes:
    columns = one.rows.schema.field(AFTER).type
    require(one.table is not None and pa.types.is_struct(columns), "rows are of a table")
    expected = rows_schema(pa.schema(list(columns)))
    require(one.rows.schema.equals(expected), "changes have the columns of rows/1")
    _check(one, expected)
    schema = expected.with_metadata({_TABLE: str(one.table).encode(), _KEY: json.dumps(one.key).encode()})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema, options=_OPTIONS) as writer:
        writer.write_batch(one.rows.replace_schema_metadata(schema.metadata))
    block: bytes = out.getvalue().to_pybytes()
    return block


def decode(payload: bytes) -> list[Changes]:
    """What `encode` was given; ValueError where the bytes are anything else."""
    if payload[:4] != _MAGIC or len(payload) < 8:
        raise ValueError("it does not begin as rows/1 does")
    if zlib.crc32(payload[8:]) != _CRC.unpack_from(payload, 4)[0]:
        raise ValueError("its checksum is wrong")
    return [_decode_block(block) for block in _blocks(payload)]


def decode_all(payloads: Sequence[bytes]) -> list[Changes]:
    """The changes of several records, each with the number of its record."""
    found = []
    for index, payload in enumerate(payloads):
        try:
            tables = decode(payload)
        except _REFUSALS as error:
            # The text of Arrow's errors may hold values.
            reason = str(error) if type(error) is ValueError else f"Arrow refuses it ({type(error).__name__})"
            raise Undecodable(index, reason) from None
        for one in tables:
            number = pa.repeat(pa.scalar(index, pa.int32()), one.rows.num_rows)
            schema = changes_schema(one.rows.schema.field(AFTER).type)
            rows = pa.RecordBatch.from_arrays([number, *one.rows.columns], schema=schema)
            found.append(Changes(one.table, one.key, rows))
    return found


def _blocks(payload: bytes) -> Iterator[memoryview]:
    at = 8
    while at < len(payload):
        (size,) = _BLOCK.unpack_from(payload, at)
        at += _BLOCK.size
        if size > len(payload) - at:
            raise ValueError("it ends in the middle of a table")
        yield memoryview(payload)[at : at + size]
        at += size


def _decode_block(block: memoryview) -> Changes:
    with pa.ipc.open_stream(block) as reader:
        batches = list(reader)
    if len(batches) != 1:
        raise ValueError("a table has not one batch")
    rows = batches[0]
    rows.validate(full=True)  # before anything looks into it
    metadata = rows.schema.metadata or {}
    one = Changes(metadata[_TABLE].decode(), tuple(json.loads(metadata[_KEY])), rows)
    columns = rows.schema.field(AFTER).type
    if not pa.types.is_struct(columns) or not rows.schema.equals(rows_schema(pa.schema(list(columns)))):
        raise ValueError("a table has other columns than those of rows/1")
    try:
        _check(one, rows.schema)
    except AssertionError as error:
        raise ValueError(str(error)) from None
    return Changes(one.table, one.key, rows.replace_schema_metadata(None))


def _check(one: Changes, schema: pa.Schema) -> None:
    """What everybody who reads the changes relies on."""
    rows = one.rows
    columns: list[str] = [field.name for field in schema.field(AFTER).type]
    require(len(set(columns)) == len(columns), "column names are unique")
    require(set(one.key) <= set(columns), "key columns are columns")
    require(
        all(rows.column(name).null_count == 0 for name in (OP, SEQ, IMAGE)), "op, seq and image are there"
    )
    known = pc.is_in(rows.column(OP), pa.array(list(EVENT_NAMES), pa.uint8()))
    require(pc.all(known, min_count=0).as_py(), "ops are known")
    images = pc.less_equal(rows.column(IMAGE), FULL_IMAGE)
    require(pc.all(images, min_count=0).as_py(), "images are known")
    absent = set(pc.unique(rows.column(UNCHANGED).flatten()).to_pylist())
    keys = {columns.index(name) for name in one.key}
    require(absent <= set(range(len(columns))) - keys, "absent columns are columns, and none of the key")
    require(_keys_stay(one), "an update keeps its key")


def _keys_stay(one: Changes) -> bool:
    """Floating-point keys are left out, since NaN is not equal to itself, and nested ones, which Arrow does
    not compare."""
    rows = one.rows
    both = pc.and_(rows.column(BEFORE).is_valid(), rows.column(AFTER).is_valid())
    for name in one.key:
        kind = rows.schema.field(AFTER).type.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            continue
        old, new = (pc.struct_field(rows.column(image), name) for image in (BEFORE, AFTER))
        if pc.any(pc.and_(both, pc.not_equal(old, new))).as_py():
            return False
    return True
