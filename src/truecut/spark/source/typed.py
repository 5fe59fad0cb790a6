"""Columns of one table as Spark knows them: which type each gets, and how older and newer rows fit it.

Promises: a value arrives exactly as it was, or not at all. A column that a record does not have yet is NULL;
one that the reader does not know yet is left out; a type that does not hold every value of the record's is
refused, whatever the values are.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from truecut.spark.source.json_text import SPARK_DIGITS_MAX, is_bytes, is_list, list_offsets, plain_text

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # of the largest integer of so many bits


class Incompatible(ValueError):
    """A column whose values the wanted type does not hold."""

    def __init__(self, have: pa.DataType, want: pa.DataType, *, column: str = "") -> None:
        super().__init__(f"{have} does not fit {want}")
        self.have, self.want, self.column = have, want, column


def spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type of the Spark type that holds every value of this one; text where Spark has none."""
    match kind:
        case _ if pa.types.is_unsigned_integer(kind):
            wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
            return wider[kind.bit_width]
        case _ if pa.types.is_decimal(kind):
            fits = kind.precision <= SPARK_DIGITS_MAX and 0 <= kind.scale <= kind.precision
            return pa.decimal128(kind.precision, kind.scale) if fits else pa.string()
        case _ if pa.types.is_float16(kind):
            return pa.float32()
        case _ if is_bytes(kind):
            return pa.binary()
        case _ if pa.types.is_timestamp(kind):
            return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
        case _ if pa.types.is_dictionary(kind):
            return spark_arrow_type(kind.value_type)
        case _ if pa.types.is_date(kind):
            return pa.date32()
        case _ if pa.types.is_struct(kind):
            return pa.struct([pa.field(one.name, spark_arrow_type(one.type)) for one in kind])
        case _ if pa.types.is_map(kind):
            return pa.map_(spark_arrow_type(kind.key_type), spark_arrow_type(kind.item_type))
        case _ if is_list(kind):
            return pa.list_(pa.field("element", spark_arrow_type(kind.value_type)))
        case _ if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return kind
        case _:
            return pa.string()


def conform(values: pa.Array, want: pa.DataType) -> pa.Array:
    """The same values in the wanted type; Incompatible where that does not hold them all."""
    have = values.type
    if have.equals(want):
        return values
    if pa.types.is_dictionary(have):
        return conform(values.dictionary_decode(), want)
    if pa.types.is_null(have):
        return pa.nulls(len(values), want)
    for same, rebuild in _NESTED:
        if same(have) and same(want):
            return rebuild(values, want)
    if not _holds(have, want):
        raise Incompatible(have, want)
    if pa.types.is_string(want) and not (pa.types.is_string(have) or pa.types.is_large_string(have)):
        return plain_text(values)
    try:
        return values.cast(want)
    except pa.ArrowInvalid:  # nanoseconds that microseconds cannot tell
        raise Incompatible(have, want) from None


def _holds(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of one type is a value of the other; for types that are not nested."""
    if pa.types.is_integer(have):
        return _holds_integers(have, want)
    if pa.types.is_floating(have):
        return bool(pa.types.is_floating(want)) and want.bit_width >= have.bit_width
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale)
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(want):
        return (have.tz is None) == (want.tz is None)
    if is_bytes(have):
        return is_bytes(want)
    if pa.types.is_date(have):
        return bool(pa.types.is_date(want))
    text = pa.types.is_string(have) or pa.types.is_large_string(have)
    return bool(pa.types.is_string(want) and (text or spark_arrow_type(have) == pa.string()))


def _holds_integers(have: pa.DataType, want: pa.DataType) -> bool:
    unsigned = bool(pa.types.is_unsigned_integer(have))
    bits: int = have.bit_width
    if pa.types.is_signed_integer(want):
        return bool(want.bit_width >= bits + unsigned)
    if pa.types.is_decimal(want):
        return bool(want.precision - want.scale >= _DIGITS[bits])
    exact = {pa.float32(): 16, pa.float64(): 32}  # integers of so many bits keep all of them
    return bits <= exact.get(want, 0)


def _struct(values: pa.Array, want: pa.DataType) -> pa.Array:
    have = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    columns = []
    for field in want:
        try:
            found = have.get(field.name)
            columns.append(pa.nulls(len(values), field.type) if found is None else conform(found, field.type))
        except Incompatible as error:
            column = f"{field.name}.{error.column}" if error.column else field.name
            raise Incompatible(error.have, error.want, column=column) from None
    return pa.StructArray.from_arrays(columns, fields=list(want), mask=values.is_null())


def _list(values: pa.Array, want: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(
        list_offsets(values), conform(values.flatten(), want.value_type), type=want
    )


def _map(values: pa.Array, want: pa.DataType) -> pa.Array:
    kind = values.type
    entries = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    keys, items = entries.flatten().flatten()
    offsets = list_offsets(entries)
    return pa.MapArray.from_arrays(
        offsets, conform(keys, want.key_type), conform(items, want.item_type), type=want
    )


_NESTED: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, pa.DataType], pa.Array]], ...] = (
    (pa.types.is_struct, _struct),
    (is_list, _list),
    (pa.types.is_map, _map),
)
