"""Arrow values as JSON text, a column at a time.

Numbers are JSON numbers with all their digits. What JSON has no number for (NaN, the infinities) is text, and
so are decimals of more than 38 digits, which readers would round, dates and times (ISO 8601, with a Z where
the type has a time zone) and bytes (base64). Spark's `from_json` reads each of them back as it was. A map is
a list of keys and values.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

SPARK_DIGITS_MAX = 38  # of a decimal

_ESCAPED = r'[\x00-\x1f"\\]'
_NOTHING: Mapping[int, pa.Array] = {}


def json_text(values: pa.Array) -> pa.Array:
    """The JSON of each value; `null` for NULL."""
    return pc.fill_null(_text(values), "null")


def json_objects(values: pa.StructArray, absent: Mapping[int, pa.Array] = _NOTHING) -> pa.Array:
    """The JSON object of each row, NULL where there is no row. `absent`: for the number of a column, in which
    rows it is to be left out."""
    pieces: list[pa.Array | str] = ["{"]
    for number, (field, column) in enumerate(zip(values.type, values.flatten(), strict=True)):
        name = f"{json.dumps(field.name, ensure_ascii=False)}:"
        piece = pc.binary_join_element_wise(name, json_text(column), "," if absent else "", "")
        if number in absent:
            piece = pc.if_else(absent[number], "", piece)
        pieces += [piece] if absent or number == 0 else [",", piece]
    if len(pieces) == 1:
        pieces = [pa.repeat(pa.scalar("{"), len(values))]
    joined = pc.binary_join_element_wise(*pieces, "")
    if absent:
        joined = pc.utf8_rtrim(joined, ",")  # each piece brought its own comma
    objects = pc.binary_join_element_wise(joined, "}", "")
    return pc.if_else(values.is_valid(), objects, pa.scalar(None, pa.string()))


def _text(values: pa.Array) -> pa.Array:
    kind = values.type
    match kind:
        case _ if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or _is_short_decimal(kind):
            return values.cast(pa.string())
        case _ if pa.types.is_floating(kind):
            return _of_floats(values)
        case _ if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return _of_strings(values.cast(pa.string()))
        case _ if is_bytes(kind):
            texts = [None if one is None else base64.b64encode(one).decode() for one in values.to_pylist()]
            return _quoted(pa.array(texts, pa.string()))
        case _ if pa.types.is_null(kind):
            return pa.nulls(len(values), pa.string())
        case _ if pa.types.is_dictionary(kind):
            return _text(values.dictionary_decode())
        case _ if pa.types.is_struct(kind):
            return json_objects(values)
        case _ if pa.types.is_map(kind):
            entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
            return _text(values.cast(pa.list_(entry)))
        case _ if is_list(kind):
            return _of_lists(values)
        case _:
            return _quoted(plain_text(values))


def plain_text(values: pa.Array) -> pa.Array:
    """Dates, times and whatever else has one text only; ValueError where Arrow cannot write it."""
    if pa.types.is_timestamp(values.type):
        zone = "" if values.type.tz is None else "Z"
        texts = values.cast(pa.timestamp(values.type.unit)).cast(pa.string())
        texts = pc.binary_join_element_wise(
            pc.replace_substring(texts, " ", "T", max_replacements=1), zone, ""
        )
    else:
        texts = values.cast(pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():  # Arrow's way to say that it cannot
        raise ValueError(f"a {values.type} is out of range")
    return texts


def _is_short_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) and kind.precision <= SPARK_DIGITS_MAX


def is_bytes(kind: pa.DataType) -> bool:
    """Of any length."""
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Of any length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def list_offsets(values: pa.Array) -> pa.Array:
    """Where each list begins among the `flatten`ed values; NULL for a NULL list."""
    lengths = pc.fill_null(pc.list_value_length(values).cast(pa.int32()), 0)
    ends = pc.cumulative_sum(lengths) if len(lengths) else lengths
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    valid = pa.concat_arrays([values.is_valid(), pa.array([True])])
    return pc.if_else(valid, offsets, pa.scalar(None, pa.int32()))


def _of_lists(values: pa.Array) -> pa.Array:
    texts = pa.ListArray.from_arrays(list_offsets(values), json_text(values.flatten()))
    return pc.binary_join_element_wise("[", pc.binary_join(texts, ","), "]", "")


def _of_floats(values: pa.Array) -> pa.Array:
    values = values.cast(pa.float32()) if pa.types.is_float16(values.type) else values
    texts = values.cast(pa.string())
    finite = pc.is_finite(values)
    if pc.all(finite, min_count=0).as_py():
        return texts
    special = pc.replace_substring(pc.replace_substring(texts, "inf", "Infinity"), "nan", "NaN")
    return pc.if_else(finite, texts, _quoted(special))


def _of_strings(values: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(values, _ESCAPED)).as_py():
        return _quoted(values)
    texts = [None if one is None else json.dumps(one, ensure_ascii=False) for one in values.to_pylist()]
    return pa.array(texts, pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
