"""What a PostgreSQL sink holds, back in neutral types: the counterpart of `encode` and `types`.

Columns are asked for in a few types whose binary form is plain bytes or one big-endian number, and become
Arrow column by column. Infinite dates are what DuckDB has for them: the largest number, and its negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecut.model.table import Column
from truecut.model.types import Type
from truecut.sinks.postgres.types import INTERVAL_PARTS, Target

_EPOCH_DAYS = 10_957  # PostgreSQL counts from 2000
_EPOCH_US = 946_684_800_000_000
_I32, _I64 = np.iinfo(np.int32), np.iinfo(np.int64)

_INTERVAL_FORM = np.dtype([("micros", ">i8"), ("days", ">i4"), ("months", ">i4")])

_Read = Callable[[pa.Array], pa.Array]


class AnotherShape(Exception):
    """An array of other dimensions, or counted from elsewhere, than this pipeline writes: somebody else's."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How one column is asked for, and what its bytes are. `{}` stands for the quoted name."""

    asked: str
    read: _Read

    def sql(self, quoted: str) -> str:
        """An expression for the column."""
        return self.asked.format(quoted)


def reader(column: Column, there: Target) -> Reader:
    """For a column that the sink holds as `there`."""
    kind, depth = column.parsed, 0
    while kind.kind == "list":
        kind, depth = kind.parts[0], depth + 1
    element = _element(kind, there.type.removesuffix("[]"))
    if not depth:
        return element
    asked = _ELEMENTS.get(element.asked, "{}")
    return Reader(asked, lambda raw: _lists(raw, depth, element.read))


# An array is cast as a whole: to what its elements are asked for in. As text by way of its own text, in which
# they are as their type writes them; only those of boxes are not separated by commas.
_AS_TEXTS = (
    "CASE WHEN pg_typeof({0}) = 'box[]'::regtype THEN {0}::bpchar[]::text[] ELSE {0}::text::text[] END"
)
_ELEMENTS = {
    "{}::int8": "{}::int8[]",
    "{}::text::int8": "{}::text::int8[]",  # a transaction's number is a number to no cast
    "{}::float8": "{}::float8[]",
    "{}::text": _AS_TEXTS,
    "CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END": _AS_TEXTS,
}


def _element(kind: Type, there: str) -> Reader:
    if kind.kind == "struct":
        return Reader("{}", _intervals)
    if there == '"char"':
        return Reader("{}", _single_bytes)
    if kind.name == "BOOLEAN":
        return Reader("{}", lambda raw: _numbers(raw, "u1", pa.uint8()).cast(pa.bool_()))
    if kind.name in ("UBIGINT", "HUGEINT", "UHUGEINT"):
        return Reader("{}::text", lambda raw: raw.cast(pa.string()))
    if kind.is_integer:
        return Reader(
            "{}::text::int8" if there in ("xid", "cid") else "{}::int8",
            lambda raw: _numbers(raw, ">i8", pa.int64()),
        )
    if kind.is_float:
        return Reader("{}::float8", lambda raw: _numbers(raw, ">f8", pa.float64()))
    if kind.name == "DECIMAL":
        digits = pa.decimal128(*kind.parameters)
        return Reader("{}::text", lambda raw: raw.cast(pa.string()).cast(digits))
    if kind.name == "BLOB":
        return Reader("{}", lambda raw: raw)
    if kind.name == "UUID":
        return Reader("{}", lambda raw: raw.cast(pa.binary(16)))
    if kind.name in _MOMENTS:
        return Reader("{}", _MOMENTS[kind.name])
    if there in ("text", "json"):
        return Reader("{}::text", lambda raw: raw.cast(pa.string()))
    # As its type writes it: a cast would take blanks off the end of some.
    return Reader(
        "CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END", lambda raw: raw.cast(pa.string())
    )


def _numbers(raw: pa.Array, form: str, kind: pa.DataType) -> pa.Array:
    return pa.array(_words(raw, form), kind, mask=_missing(raw))


def _words(raw: pa.Array, form: str) -> npt.NDArray[Any]:
    """Values of one width, as numbers; of a NULL, 0."""
    width = np.dtype(form).itemsize
    whole = raw.fill_null(bytes(width)).cast(pa.binary(width))
    data = whole.buffers()[1]
    if data is None:
        return np.zeros(0, form)
    words: npt.NDArray[Any] = np.frombuffer(data, form)[whole.offset : whole.offset + len(whole)]
    return words.astype(words.dtype.newbyteorder("="))


def _missing(raw: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(raw.is_null())


def _dates(raw: pa.Array) -> pa.Array:
    days = _words(raw, ">i4").astype(np.int64)
    counted = np.where(days == _I32.max, _I32.max, np.where(days == _I32.min, -_I32.max, days + _EPOCH_DAYS))
    return pa.array(counted.astype(np.int32), pa.int32(), mask=_missing(raw)).view(pa.date32())


def _instants(raw: pa.Array) -> pa.Array:
    moments = _words(raw, ">i8")
    infinite = (moments == _I64.max) | (moments == _I64.min)
    finite = np.where(infinite, 0, moments) + _EPOCH_US
    counted = np.where(infinite, np.where(moments > 0, _I64.max, -_I64.max), finite)
    return pa.array(counted, pa.int64(), mask=_missing(raw)).view(pa.timestamp("us"))


def _times(raw: pa.Array) -> pa.Array:
    return pa.array(_words(raw, ">i8"), pa.int64(), mask=_missing(raw)).view(pa.time64("us"))


_MOMENTS: dict[str, _Read] = {
    "DATE": _dates,
    "TIME": _times,
    "TIMESTAMP": _instants,
    "TIMESTAMP_S": _instants,
    "TIMESTAMP_MS": _instants,
    "TIMESTAMP WITH TIME ZONE": _instants,
}


def _intervals(raw: pa.Array) -> pa.Array:
    """Microseconds, days, months; infinity as PostgreSQL stores it."""
    whole = np.frombuffer(b"".join(raw.fill_null(bytes(16)).to_pylist()), _INTERVAL_FORM)
    parts = [
        pa.array(whole[name].astype(whole[name].dtype.newbyteorder("=")))
        for name in ("months", "days", "micros")
    ]
    return pa.StructArray.from_arrays(parts, names=list(INTERVAL_PARTS), mask=raw.is_null())


def _single_bytes(raw: pa.Array) -> pa.Array:
    """As PostgreSQL 16 shows the type "char"; older ones showed bytes that are no text."""
    coded = raw.dictionary_encode()
    texts = [_single_byte(value[0]) for value in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(coded.indices)


def _single_byte(value: int) -> str:
    return f"\\{value:03o}" if value > 127 else chr(value) if value else ""


def _lists(raw: pa.Array, depth: int, read: _Read) -> pa.Array:
    """Arrays: how many dimensions, whether there are NULLs, the type; then of each dimension its length and
    first index; then the elements, each with its length."""
    elements: list[bytes | None] = []
    ends: list[list[int]] = [[0] for _ in range(depth)]
    for value in raw.to_pylist():
        lengths, found = ((), []) if value is None else _array(value, depth)
        count = 1  # of lists at this level, for one value
        for level, length in enumerate(lengths):
            ends[level] += [ends[level][-1] + length * (n + 1) for n in range(count)]
            count *= length
        if not lengths:
            ends[0].append(ends[0][-1])
        elements += found
    made = read(pa.array(elements, pa.binary()))
    for offsets in reversed(ends[1:]):
        made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), made)
    mask = raw.is_null() if raw.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends[0], pa.int32()), made, mask=mask)


def _array(value: bytes, depth: int) -> tuple[Sequence[int], list[bytes | None]]:
    """The lengths of the dimensions, none for an empty array; and the elements."""
    dimensions, _, _ = struct.unpack_from(">iii", value)
    if dimensions == 0:
        return (), []
    shape = struct.unpack_from(f">{2 * dimensions}i", value, 12)
    lengths = shape[::2]
    if dimensions != depth or any(first != 1 for first in shape[1::2]):
        raise AnotherShape
    found: list[bytes | None] = []
    at = 12 + 8 * dimensions
    for _ in range(prod(lengths)):
        (length,) = struct.unpack_from(">i", value, at)
        at += 4
        found.append(None if length < 0 else value[at : at + length])
        at += max(0, length)
    return lengths, found
