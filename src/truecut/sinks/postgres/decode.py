"""What a PostgreSQL sink holds, back in neutral types: the counterpart of `encode` and `types`.

Columns are asked for in a few types whose binary form is plain bytes or one big-endian number, and become
Arrow column by column. Infinite dates are what DuckDB has for them: the largest number, and its negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecut.model.table import Column
from truecut.model.types import Type
from truecut.sinks.postgres.types import Target

_EPOCH_DAYS = 10_957  # PostgreSQL counts from 2000
_EPOCH_US = 946_684_800_000_000
_I32, _I64 = np.iinfo(np.int32), np.iinfo(np.int64)

_Read = Callable[[pa.Array], pa.Array]


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
    kind = column.parsed
    if kind.kind != "list":
        return _scalar(kind, there.type)
    element = _scalar(kind.parts[0], there.type.removesuffix("[]"))
    asked = _ELEMENTS.get(element.asked, "{}")
    return Reader(asked, lambda raw: _lists(raw, element.read))


# An array is cast as a whole: to what its elements are asked for in.
_ELEMENTS = {
    "{}::int8": "{}::int8[]",
    "{}::float8": "{}::float8[]",
    "{}::text": "{}::text[]",
    "CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END": "{}::bpchar[]",  # keeps blanks
}


def _scalar(kind: Type, there: str) -> Reader:
    if kind.name == "BOOLEAN":
        return Reader("{}", lambda raw: _numbers(raw, "u1", pa.uint8()).cast(pa.bool_()))
    if kind.name in ("UBIGINT", "HUGEINT", "UHUGEINT"):
        return Reader("{}::text", lambda raw: raw.cast(pa.string()))
    if kind.is_integer:
        return Reader("{}::int8", lambda raw: _numbers(raw, ">i8", pa.int64()))
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


def _lists(raw: pa.Array, read: _Read) -> pa.Array:
    """Arrays of one dimension: how many dimensions, whether there are NULLs, the type; then of the dimension
    its length and first index; then the elements, each with its length."""
    elements: list[bytes | None] = []
    offsets = [0]
    for value in raw.to_pylist():
        if value is not None:
            elements += _elements(value)
        offsets.append(len(elements))
    inside = read(pa.array(elements, pa.binary()))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), inside, mask=raw.is_null() if raw.null_count else None
    )


def _elements(value: bytes) -> list[bytes | None]:
    dimensions, _, _ = struct.unpack_from(">iii", value)
    if dimensions == 0:
        return []
    count, _ = struct.unpack_from(">ii", value, 12)
    found: list[bytes | None] = []
    at = 20
    for _ in range(count):
        (length,) = struct.unpack_from(">i", value, at)
        at += 4
        found.append(None if length < 0 else value[at : at + length])
        at += max(0, length)
    return found
