"""The form in which a type's values are made into bytes: few forms, because widths do not matter.

A certificate names forms, not types, so that its reader needs no grammar of types.
"""

from __future__ import annotations

from typing import Any

from truecut.errors import require
from truecut.model.types import Type

Form = str | dict[str, Any]

_FORMS = {
    "BOOLEAN": "bool",
    "FLOAT": "float",
    "DOUBLE": "float",
    "VARCHAR": "text",
    "JSON": "text",
    "BLOB": "bytes",
    "UUID": "uuid",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_S": "timestamp",
    "TIMESTAMP_MS": "timestamp",
    "TIMESTAMP_NS": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
}


def form_of(kind: Type) -> Form:
    """`int`, `decimal:2`, {"list": "text"}, …"""
    match kind.kind:
        case "list":
            return {"list": form_of(kind.parts[0])}
        case "map":
            return {"map": [form_of(part) for part in kind.parts]}
        case "struct":
            fields = zip(kind.names, kind.parts, strict=True)
            return {"struct": [[name, form_of(part)] for name, part in fields]}
    if kind.is_integer:
        return "int"
    if kind.name == "DECIMAL":
        return f"decimal:{kind.parameters[1]}"
    require(kind.name in _FORMS, "a type that was copied has a form")
    return _FORMS[kind.name]
