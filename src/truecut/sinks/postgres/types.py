"""What PostgreSQL calls a neutral type: only where it holds every value of it, to the bit.

A value travels in PostgreSQL's binary form, or as text that a cast makes the value (numbers of any size,
UUID, intervals). What has no exact form is refused with the reason: TIMESTAMP_NS has digits that a timestamp
drops, structs and maps have no counterpart that keeps their types. A list of lists is an array of as many
dimensions; a value of it that is ragged is refused when it comes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from truecut.model.table import Column, TableSchema
from truecut.model.types import Type
from truecut.sinks.copies import TableStop

NAME_BYTES_MAX = 63
INTERVAL_PARTS = ("months", "days", "micros")  # of the struct in which an interval travels
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})  # every table has them
_BINARY = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "UTINYINT": "smallint",
    "USMALLINT": "integer",
    "UINTEGER": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "JSON": "json",
    "BLOB": "bytea",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP_S": "timestamp without time zone",
    "TIMESTAMP_MS": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
}
_AS_TEXT = {
    "UBIGINT": "numeric(20,0)",
    "HUGEINT": "numeric(39,0)",
    "UHUGEINT": "numeric(39,0)",
    "UUID": "uuid",
}
_REASONS = {
    "TIMESTAMP_NS": "its timestamps keep microseconds",
    "struct": "it has no type that keeps the types of the fields",
    "map": "it has no type that keeps the types of keys and values",
}
# Built-in types that a PostgreSQL source may name, whose texts are read back as the same value. Not those
# that name an object of the source's database (regclass and its like): here it would be another one.
_NATIVE = re.compile(
    r"postgres:((?:numeric|money|text|character varying|character|bpchar|bit varying|bit|json|jsonb|jsonpath"
    r"|xml|inet|cidr|macaddr8?|point|line|lseg|box|path|polygon|circle|tsvector|tsquery|pg_lsn|oid|xid8?|cid|tid"
    r"|int2vector|oidvector|txid_snapshot|pg_snapshot|refcursor"
    r"|(?:int4|int8|num|ts|tstz|date)(?:multi)?range)(?:\(\d+(?:,-?\d+)?\))?"
    r'|time(?:\(\d\))? with time zone|name|"char")(?:\[\])*'
)
_INTERVAL = re.compile(
    r"postgres:(interval(?: (?:year|month|day|hour|minute|second)(?: to (?:month|hour|minute|second))?)?"
    r"(?:\(\d\))?)(?:\[\])*"
)
_TRAVEL_AS_TEXT = frozenset({"VARCHAR", "JSON", "UINTEGER", "UBIGINT", "DECIMAL"})
_AS_THEMSELVES = frozenset({"name", '"char"'})  # a cast would cut what is too long, and say so to nobody
_INCOMPARABLE = frozenset(
    {"json", "xml", "jsonpath", "point", "polygon", "line", "path", "box", "circle", "lseg"}
    | {"xid", "cid", "txid_snapshot", "pg_snapshot", "refcursor", "int2vector"}
)
_INTEGERS = ("smallint", "integer", "bigint")


@dataclass(frozen=True, slots=True)
class Target:
    """One column at the sink: its type, as PostgreSQL itself spells it, and how its values are staged."""

    name: str
    type: str
    staged: str

    def value(self, quoted: str) -> str:
        """SQL that makes the value of what is staged under that quoted name."""
        return quoted if self.staged == self.type else f"{quoted}::{self.type}"

    @property
    def comparable(self) -> bool:
        """Whether `=` and an index know the type."""
        return self.type.removesuffix("[]") not in _INCOMPARABLE


def targets(table: str, schema: TableSchema) -> tuple[Target, ...]:
    """The columns of a table; TableStop when there is one that PostgreSQL cannot hold exactly."""
    return tuple(target(table, column) for column in schema.columns)


def target(table: str, column: Column) -> Target:
    """One column."""
    kind, array = column.parsed, column.parsed.kind == "list"
    while kind.kind == "list":
        kind = kind.parts[0]
    found = _element(kind, column.native)
    if found is None:
        message = (
            f"{table}: column {column.name} has the type {column.parsed}, which PostgreSQL cannot hold "
            f"exactly: {_reason(kind)}; leave the table out for this sink"
        )
        raise TableStop(table, "TC3030", message)
    check_name(table, column.name)
    if column.name in _SYSTEM_COLUMNS:
        message = (
            f"{table}: every table of PostgreSQL has a column {column.name} of its own; rename it "
            "at the source, or leave the table out for this sink"
        )
        raise TableStop(table, "TC3034", message)
    if array and found[0] == '"char"':  # whose arrays nobody can ask for as text
        found = ("text", "text")
    tail = "[]" if array else ""  # of however many dimensions
    return Target(column.name, found[0] + tail, found[1] + tail)


def check_name(table: str, name: str) -> None:
    """PostgreSQL would cut it short, and say so to nobody."""
    if len(name.encode()) > NAME_BYTES_MAX:
        raise TableStop(table, "TC3031", f"{table}: the name {name} is longer than PostgreSQL's 63 bytes")


def _element(kind: Type, native: str) -> tuple[str, str] | None:
    """Type, and the type in which it is staged."""
    if kind.kind == "struct":
        match = _INTERVAL.fullmatch(native)
        return (match[1], "text") if match is not None and kind.names == INTERVAL_PARTS else None
    if kind.kind != "scalar":
        return None
    match = _NATIVE.fullmatch(native)
    if match is not None and kind.name in _TRAVEL_AS_TEXT:
        return match[1], match[1] if match[1] in _AS_THEMSELVES else "text"
    if kind.name == "DECIMAL":
        precision, scale = (*kind.parameters, 0)[:2] if kind.parameters else (18, 3)
        return f"numeric({precision},{scale})", "text"
    if kind.name in _BINARY:
        return _BINARY[kind.name], _BINARY[kind.name]
    return (_AS_TEXT[kind.name], "text") if kind.name in _AS_TEXT else None


def _reason(kind: Type) -> str:
    known = _REASONS.get(kind.name if kind.kind == "scalar" else kind.kind)
    return known or "it has no such type"


def widens(old: str, new: str) -> bool:
    """Whether every value of the old type is the same value of the new one, so that a column may follow."""
    if old.endswith("[]") != new.endswith("[]"):
        return False
    old, new = old.removesuffix("[]"), new.removesuffix("[]")
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) <= _INTEGERS.index(new)
    if old in ("smallint", "integer") and new == "double precision":
        return True
    if (old, new) == ("smallint", "real"):
        return True
    return (old, new) == ("real", "double precision") or _digits_grow(old, new) or _length_grows(old, new)


def _length_grows(old: str, new: str) -> bool:
    """Texts and bits of any length that may be longer now; what is padded to its length is another value."""
    before, after = _length(old), _length(new)
    if before is None or after is None or before[0] != after[0]:
        return False
    return after[1] is None or (before[1] is not None and before[1] <= after[1])


def _length(kind: str) -> tuple[str, int | None] | None:
    """Of which family, and how long at most; None where a length says something else, or nothing."""
    match = re.fullmatch(r"(text|character varying|bit varying)(?:\((\d+)\))?", kind)
    if match is None:
        return None
    family = "character varying" if match[1] == "text" else match[1]
    return family, None if match[2] is None else int(match[2])


_DIGITS = {"smallint": (5, 0), "integer": (10, 0), "bigint": (19, 0)}


def _digits_grow(old: str, new: str) -> bool:
    before, after = _digits(old), _digits(new)
    if before is None or after is None or new in _DIGITS:
        return False
    return before[0] - before[1] <= after[0] - after[1] and before[1] <= after[1]


def _digits(kind: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"numeric\((\d+),(\d+)\)", kind)
    return _DIGITS.get(kind) if match is None else (int(match[1]), int(match[2]))
