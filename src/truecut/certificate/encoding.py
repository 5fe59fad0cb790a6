"""Values as bytes, one way only: what digests are made of.

Owns the canonical forms of docs/certificate-format.md, a column at a time. Promises: equal values of a type
have equal bytes whatever their width at hand, other values other bytes (-0.0 is not 0.0, and a decimal of
another scale is another value); NULL has none. The independent verifier says the same in plain words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truecut.model.types import Type

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_NAN = np.uint64(0x7FF8_0000_0000_0000)  # all that are not a number are one value
_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class Encoded:
    """The values of a column: all their bytes in a row, where each begins, and which are there at all."""

    data: Bytes
    offsets: Ints  # one more than there are values
    there: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.there)

    @property
    def lengths(self) -> Ints:
        """Of each value."""
        return np.diff(self.offsets)


def encode(column: pa.Array, kind: Type) -> Encoded:
    """A column of one type, of the grammar of `model.types`."""
    there = np.asarray(column.is_valid())
    if kind.kind != "scalar":
        return _gathered(_nested(column, kind), there)
    if kind.name in ("VARCHAR", "JSON", "BLOB"):
        return _variable(column, there)
    if kind.name == "UUID":
        return _uuids(column, there)
    if kind.name == "DECIMAL":
        return _decimals(column, kind.parameters[1], there)
    if kind.name in ("UBIGINT", "HUGEINT", "UHUGEINT"):
        return _gathered(map(_whole, _wide(column, kind)), there)
    if kind.name == "TIMESTAMP_NS":
        return _gathered(map(_moment, column.view(pa.int64()).to_pylist()), there)
    return _fixed(_numbers(column, kind), there)


# --- columns ------------------------------------------------------------------------------------------


def _numbers(column: pa.Array, kind: Type) -> npt.NDArray[Any]:
    """Each value as one big-endian word of eight bytes, or one byte."""
    if kind.name == "BOOLEAN":
        return np.asarray(column.fill_null(False).cast(pa.uint8())).astype(np.uint8)
    if kind.is_float:
        return _floats(np.asarray(column.fill_null(0.0)).astype(np.float64))
    if kind.name == "DATE":
        return np.asarray(column.cast(pa.date32()).view(pa.int32()).fill_null(0)).astype(">i8")
    if kind.name == "TIME":
        return np.asarray(column.cast(pa.time64("us")).view(pa.int64()).fill_null(0)).astype(">i8")
    if kind.name.startswith("TIMESTAMP"):
        return np.asarray(_microseconds(column).fill_null(0)).astype(">i8")
    return np.asarray(column.fill_null(0)).astype(">i8")


def _floats(values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    bits = values.view(np.uint64).copy()
    bits[np.isnan(values)] = _NAN
    return bits.astype(">u8")


def _microseconds(column: pa.Array) -> pa.Array:
    factor = _US[column.type.unit]
    return column.view(pa.int64()) if factor == 1 else pc.multiply_checked(column.view(pa.int64()), factor)


def _fixed(words: npt.NDArray[Any], there: npt.NDArray[np.bool_]) -> Encoded:
    data = np.ascontiguousarray(words[there]).view(np.uint8)
    return Encoded(data, _offsets(there * words.dtype.itemsize), there)


def _variable(column: pa.Array, there: npt.NDArray[np.bool_]) -> Encoded:
    column = column.cast(pa.large_binary())
    ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    if there.all():
        return Encoded(data[ends[0] : ends[-1]], ends - ends[0], there)
    starts, lengths = ends[:-1][there], np.diff(ends)[there]
    offsets = _offsets(np.where(there, np.diff(ends), 0))
    return Encoded(data[spread(starts, lengths)], offsets, there)


def _uuids(column: pa.Array, there: npt.NDArray[np.bool_]) -> Encoded:
    """Sixteen bytes each, also where they come as text: 36 characters, four of them dashes."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_fixed_size_binary(column.type):
        return _variable(column.cast(pa.binary()), there)
    text = _variable(column, there).data.reshape(-1, 36)
    digits = np.delete(text, (8, 13, 18, 23), axis=1)
    nibbles = np.where(digits >= ord("a"), digits - ord("a") + 10, digits - ord("0"))
    data = (nibbles[:, ::2] << 4 | nibbles[:, 1::2]).astype(np.uint8).reshape(-1)
    return Encoded(data, _offsets(there * 16), there)


def _decimals(column: pa.Array, scale: int, there: npt.NDArray[np.bool_]) -> Encoded:
    """One byte for the scale, then the digits as a number of sixteen bytes."""
    column = column.cast(pa.decimal128(38, scale))
    raw = np.frombuffer(column.buffers()[1], np.uint8)
    raw = raw[column.offset * 16 : (column.offset + len(column)) * 16].reshape(-1, 16)[there]
    scales = np.full((len(raw), 1), scale, np.uint8)
    data = np.hstack([scales, raw[:, ::-1]]).reshape(-1)
    return Encoded(data, _offsets(there * 17), there)


def spread(starts: Ints, lengths: Ints) -> Ints:
    """The indexes of all bytes of all pieces, in order."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    indexes: Ints = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return indexes


def _offsets(lengths: npt.NDArray[Any]) -> Ints:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _gathered(values: Iterable[bytes], there: npt.NDArray[np.bool_]) -> Encoded:
    """Values that come one by one; those that are not there have no bytes."""
    known = [value if here else b"" for value, here in zip(values, there, strict=True)]
    data = np.frombuffer(b"".join(known), np.uint8)
    return Encoded(data, _offsets(np.array([len(value) for value in known], np.int64)), there)


# --- one by one: types that are rare or nested ----------------------------------------------------------


def _wide(column: pa.Array, kind: Type) -> Iterator[int]:
    """Whole numbers of sixteen bytes: decimals without a scale, or the bytes themselves."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    signed = kind.name == "HUGEINT"
    for value in column.to_pylist():
        is_raw = isinstance(value, bytes)
        yield int.from_bytes(value, "little", signed=signed) if is_raw else int(value or 0)


def _whole(value: int) -> bytes:
    """Eight bytes where they do, as for every other whole number."""
    for size in (8, 16):
        if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            return value.to_bytes(size, "big", signed=True)
    return value.to_bytes(17, "big", signed=True)


def _moment(nanoseconds: int | None) -> bytes:
    """Microseconds, as for every other time; two bytes more where they do not say all."""
    whole, rest = divmod(nanoseconds or 0, 1000)
    return whole.to_bytes(8, "big", signed=True) + (rest.to_bytes(2, "big") if rest else b"")


def _nested(column: pa.Array, kind: Type) -> Iterator[bytes]:
    if kind.kind == "struct":
        fields = [items(column.field(n), part) for n, part in enumerate(kind.parts)]
        return (b"".join(one) for one in zip(*fields, strict=True))
    if kind.kind == "map":
        pairs = zip(items(column.keys, kind.parts[0]), items(column.items, kind.parts[1]), strict=True)
        return _runs(column, [key + value for key, value in pairs], ordered=True)
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    return _runs(column, items(column.values, kind.parts[0]), ordered=False)


def _runs(column: pa.Array, parts: Sequence[bytes], *, ordered: bool) -> Iterator[bytes]:
    """How many, then each of them; a map has no order of its own."""
    ends = np.asarray(column.offsets).tolist()
    for start, end in pairwise(ends):
        mine = sorted(parts[start:end]) if ordered else parts[start:end]
        yield (end - start).to_bytes(8, "big") + b"".join(mine)


def items(column: pa.Array, kind: Type) -> list[bytes]:
    """Each value so that it ends by itself: 0 for NULL; 1, the length in eight bytes, and the bytes."""
    found = encode(column, kind)
    data, ends = found.data.tobytes(), found.offsets.tolist()
    return [
        b"\1" + (end - start).to_bytes(8, "big") + data[start:end] if here else b"\0"
        for (start, end), here in zip(pairwise(ends), found.there.tolist(), strict=True)
    ]
