"""Arrow rows in the form that COPY … (FORMAT binary) takes, column by column: no Python for a single value.

Each row is a count of fields, then for each field its length and its bytes. Columns of fixed width become
blocks of numpy bytes; texts stay where they are; one join over all of them makes the rows. Intervals travel
as text: a server that has no infinite ones would take their bits for the longest finite ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"
ROWS_MAX, BYTES_MAX = 65_536, 32 << 20  # of one piece

_NULL = b"\xff\xff\xff\xff"
_OIDS = {
    "boolean": 16,
    "bytea": 17,
    '"char"': 18,
    "name": 19,
    "bigint": 20,
    "smallint": 21,
    "integer": 23,
    "text": 25,
    "json": 114,
    "real": 700,
    "double precision": 701,
    "date": 1082,
    "time without time zone": 1083,
    "timestamp without time zone": 1114,
    "timestamp with time zone": 1184,
}
_NUMBERS = {"smallint": ">i2", "integer": ">i4", "bigint": ">i8"}
_EPOCH_DAYS = 10_957  # PostgreSQL counts from 2000
_EPOCH_US = 946_684_800_000_000
_US = {"s": 1_000_000, "ms": 1000, "us": 1}
_I32, _I64 = np.iinfo(np.int32), np.iinfo(np.int64)

Piece = Any  # a block of bytes (numpy, rows × width), or an Arrow array of binary without NULLs


class OutOfRange(Exception):
    """A value lies outside of what PostgreSQL holds."""


class Ragged(Exception):
    """A list of lists is no array."""


def copy_data(rows: pa.Table, staged: Sequence[str]) -> Iterator[memoryview]:
    """The rows of COPY's binary form, in pieces; the columns in the order of `staged`, their types."""
    height = max(1, min(ROWS_MAX, rows.num_rows * BYTES_MAX // max(1, rows.nbytes)))
    for batch in rows.to_batches(max_chunksize=height):
        yield _encoded(batch, staged)


def _encoded(batch: pa.RecordBatch, staged: Sequence[str]) -> memoryview:
    count = np.frombuffer(len(staged).to_bytes(2, "big"), np.uint8)
    pieces: list[Piece] = [np.broadcast_to(count, (batch.num_rows, 2))]
    for column, kind in zip(batch.columns, staged, strict=True):
        pieces += _fields(column, kind)
    joined = _joined(pieces)
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :]
    return memoryview(joined.buffers()[2])[offsets[0] : offsets[len(joined)]]


def _joined(pieces: list[Piece]) -> pa.Array:
    """Rows out of columns; blocks beside each other are one."""
    arrays, blocks = [], []
    for piece in pieces:
        if isinstance(piece, np.ndarray):
            blocks.append(piece)
            continue
        if blocks:
            arrays.append(_binary(np.concatenate(blocks, axis=1)))
        arrays, blocks = [*arrays, piece], []
    if blocks:
        arrays.append(_binary(np.concatenate(blocks, axis=1)))
    if len(arrays) == 1:
        return arrays[0]
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.binary()))


def _binary(block: Any) -> pa.Array:
    """Each row of a block as one value."""
    height, width = block.shape
    offsets = np.arange(height + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(block)
    return pa.Array.from_buffers(pa.binary(), height, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _fields(column: pa.Array, kind: str) -> list[Piece]:
    """Length and bytes of each value of a column."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kind.endswith("[]"):
        return _sized(_lists(column, kind.removesuffix("[]")))
    if kind == '"char"':
        return _sized(_single_bytes(column))
    if kind in ("text", "json", "bytea", "name"):
        return _sized(_texts(column))
    numbers = _big_endian(column, kind)
    width = numbers.dtype.itemsize
    lengths = np.broadcast_to(np.frombuffer(width.to_bytes(4, "big"), np.uint8), (len(numbers), 4))
    block = np.concatenate([lengths, numbers.view(np.uint8).reshape(-1, width)], axis=1)
    if not column.null_count:
        return [block]
    values = _binary(block)
    return [pc.if_else(column.is_valid(), values, pa.scalar(_NULL, pa.binary()))]


def _sized(values: pa.Array) -> list[Piece]:
    """Values of any width, with NULLs, as lengths and bytes."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False).astype(">i4")
    filled = values.fill_null(b"") if values.null_count else values
    return [lengths.view(np.uint8).reshape(-1, 4), filled]


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_struct(kind):
        column = _intervals(column)
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        column = column if large else column.cast(pa.string())  # numbers: their digits
    return column.cast(pa.binary())


_INFINITE = (
    (_I32.max, _I32.max, _I64.max),
    (_I32.min, _I32.min, _I64.min),
)  # and its negative, as it is stored


def _intervals(column: pa.StructArray) -> pa.Array:
    """Months, days and microseconds; or infinity."""
    parts = column.flatten()
    units = (" mons ", " days ", " microseconds")
    words = [word for part, unit in zip(parts, units, strict=True) for word in (part.cast(pa.string()), unit)]
    found = pc.binary_join_element_wise(*words, "")
    for values, name in zip(_INFINITE, ("infinity", "-infinity"), strict=True):
        same = [
            pc.equal(part, pa.scalar(value, part.type)) for part, value in zip(parts, values, strict=True)
        ]
        found = pc.if_else(pc.and_(pc.and_(same[0], same[1]), same[2]), name, found)
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.string()))


def _single_bytes(column: pa.Array) -> pa.Array:
    """Of the type "char", as PostgreSQL 16 shows it: nothing is the byte zero, and those that are no ASCII
    are three octal digits."""
    coded = _texts(column).dictionary_encode()
    bytes_of = [_single_byte(text) for text in coded.dictionary.to_pylist()]
    return pa.array(bytes_of, pa.binary()).take(coded.indices)


def _single_byte(text: bytes) -> bytes:
    if len(text) == 4 and text[:1] == b"\\":
        return int(text[1:], 8).to_bytes(1, "big")
    return text or b"\0"


def _lists(column: pa.Array, element: str) -> pa.Array:
    """Arrays: how many dimensions, whether there are NULLs (nobody asks), the type; of each dimension its
    length, counted from 1; the elements."""
    lengths, elements = _dimensions(column)
    sizes = lengths.prod(axis=1)
    inside = _joined(_fields(elements, element))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    bodies = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), inside), pa.scalar(b"", pa.binary()))
    depth = lengths.shape[1]
    heads = np.ones((len(column), 3 + 2 * depth), ">i4")
    heads[:, :3] = [depth, 0, _OIDS[element]]
    heads[:, 3::2] = lengths
    full = _joined([heads.view(np.uint8).reshape(len(column), -1), bodies])
    empty = np.array([0, 0, _OIDS[element]], ">i4").tobytes()
    values = pc.if_else(pa.array(sizes == 0), pa.scalar(empty, pa.binary()), full)
    return pc.if_else(column.is_valid(), values, pa.scalar(None, pa.binary()))


def _dimensions(column: pa.Array) -> tuple[Any, pa.Array]:
    """The lengths of each value's dimensions (rows × depth; 0 for nothing in it), and the elements of all."""
    if not pa.types.is_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    inside = column.flatten()
    kind = inside.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return sizes[:, np.newaxis], inside
    below, elements = _dimensions(inside)
    firsts = np.zeros((len(sizes), below.shape[1]), np.int64)
    firsts[sizes > 0] = below[(np.cumsum(sizes) - sizes)[sizes > 0]]
    # An array has no list within it that is missing, empty, or longer than the one beside it.
    if inside.null_count or (below == 0).any() or (np.repeat(firsts, sizes, axis=0) != below).any():
        raise Ragged
    return np.concatenate([sizes[:, np.newaxis], firsts], axis=1), elements


# --- values of fixed width ----------------------------------------------------------------------------


def _big_endian(column: pa.Array, kind: str) -> Any:
    if kind == "boolean":
        return _raw(column.cast(pa.uint8()), np.uint8)
    if kind in _NUMBERS:
        return pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(_NUMBERS[kind])
    if kind == "real":
        return _raw(column, np.int32).astype(">i4")
    if kind == "double precision":
        return _raw(column, np.int64).astype(">i8")
    if kind == "date":
        return _days(_raw(column, np.int32)).astype(">i4")
    if kind == "time without time zone":
        return _raw(column.cast(pa.time64("us")), np.int64).astype(">i8")
    return _instants(_raw(column, np.int64), column).astype(">i8")


def _raw(column: pa.Array, kind: Any) -> Any:
    """The bits of a column, whatever they mean; those of NULLs are anything."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), kind)
    values = np.frombuffer(data, kind)[column.offset : column.offset + len(column)]
    if column.null_count:
        values = np.where(column.is_valid().to_numpy(zero_copy_only=False), values, kind(0))
    return values


def _days(days: Any) -> Any:
    """DuckDB's infinities are the largest number and its negative."""
    counted = days.astype(np.int64) - _EPOCH_DAYS
    infinite = np.abs(days.astype(np.int64)) == _I32.max
    if np.any((counted <= _I32.min) & ~infinite):
        raise OutOfRange
    return np.where(infinite, np.where(days > 0, _I32.max, _I32.min), counted)


def _instants(values: Any, column: pa.Array) -> Any:
    factor = _US[column.type.unit]
    infinite = (values == _I64.max) | (values == -_I64.max)
    finite = np.where(infinite, 0, values)
    if np.any((finite > _I64.max // factor) | (finite < (_I64.min + 1 + _EPOCH_US) // factor)):
        raise OutOfRange
    return np.where(infinite, np.where(values > 0, _I64.max, _I64.min), finite * factor - _EPOCH_US)
