"""Whether a column holds values of a form: widths do not matter, kinds and scales do.

Values are compared as bytes, and 7 in a column of floating point numbers would be the 7 of a whole one. But
whoever reads the sink gets another type than the source has, and 7.5 may be next.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from truecut_verify.digest import Form

_IS = {
    "bool": pa.types.is_boolean,
    "float": pa.types.is_floating,
    "date": pa.types.is_date,
    "time": pa.types.is_time,
    "timestamp": pa.types.is_timestamp,
}
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_OWN = {"arrow.bool8": "bool", "arrow.uuid": "uuid"}  # Arrow's names, as DuckDB tells them
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_NAMES = {  # of PostgreSQL's own types; a text may be the text of anything
    "int": ("int2", "int4", "int8", "oid", "xid", "cid", "xid8", "numeric"),
    "decimal": ("numeric",),
    "bool": ("bool",),
    "float": ("float4", "float8"),
    "bytes": ("bytea",),
    "uuid": ("uuid",),
    "date": ("date",),
    "time": ("time",),
    "timestamp": ("timestamp", "timestamptz"),
}


def holds(kind: pa.DataType, form: Form) -> bool:
    """A column as Arrow has it."""
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name in _OWN:
            return bool(form == _OWN[kind.extension_name])
        kind = kind.storage_type
    if isinstance(form, dict):
        return _holds_parts(kind, form)
    name, _, scale = form.partition(":")
    if name == "decimal" or (name == "int" and pa.types.is_decimal(kind)):
        return bool(pa.types.is_decimal(kind) and kind.scale == int(scale or 0))
    if name == "int":  # those of sixteen bytes may come as bytes
        return bool(pa.types.is_integer(kind) or pa.types.is_fixed_size_binary(kind))
    if name in ("text", "bytes"):
        return any(one(kind) for one in (_TEXTS if name == "text" else _BYTES))
    return name in _IS and bool(_IS[name](kind))


def _holds_parts(kind: pa.DataType, form: dict[str, Any]) -> bool:
    if "list" in form:
        return any(one(kind) for one in _LISTS) and holds(kind.value_type, form["list"])
    if "map" in form:
        key, held = form["map"]
        return pa.types.is_map(kind) and holds(kind.key_type, key) and holds(kind.item_type, held)
    parts = form.get("struct", [])
    if not pa.types.is_struct(kind) or kind.num_fields != len(parts):
        return False
    fields = [kind.field(n) for n in range(kind.num_fields)]
    return all(
        one.name == name and holds(one.type, part) for one, (name, part) in zip(fields, parts, strict=True)
    )


def server_holds(kind: str, scale: int | None, form: Form, *, is_array: bool) -> bool:
    """A column of PostgreSQL: its type's name, and the scale of a numeric one that has one."""
    lists = False
    while isinstance(form, dict) and "list" in form:
        form, lists = form["list"], True
    if isinstance(form, dict):
        return kind == "interval" and is_array == lists
    name, _, wanted = form.partition(":")
    if name == "text":
        return True
    scaled = kind != "numeric" or lists or scale == int(wanted or 0)
    return is_array == lists and kind in _NAMES.get(name, ()) and scaled
