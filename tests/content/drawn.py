"""Types and values by chance: nested types, floats by their bits, texts that are easily damaged. All of it is
SQL, so that what was drawn can be read and done again by hand."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.content.values import SCALARS

Draw = st.DrawFn

FLOATS = ("FLOAT", "DOUBLE")
PLAIN = tuple(SCALARS)
KEYS = tuple(kind for kind in SCALARS if kind not in ("JSON", "BOOLEAN"))
ROUTES = ("VARCHAR", "INTEGER", "DATE", "TIMESTAMP WITH TIME ZONE", "DECIMAL(4,1)", "UUID", "DOUBLE", "BLOB")
RESPELLED = ("INTEGER", "DECIMAL(4,1)", "DECIMAL(4,1)", "FLOAT", "DATE")  # when they are widened
WIDER = {
    "TINYINT": ("SMALLINT", "BIGINT", "FLOAT", "DECIMAL(8,2)"),
    "SMALLINT": ("INTEGER", "FLOAT", "DOUBLE"),
    "INTEGER": ("BIGINT", "FLOAT", "DOUBLE", "DECIMAL(18,3)"),
    "BIGINT": ("DOUBLE", "FLOAT"),
    "UTINYINT": ("USMALLINT", "SMALLINT", "UBIGINT"),
    "USMALLINT": ("UINTEGER", "BIGINT"),
    "UINTEGER": ("BIGINT", "UBIGINT", "DOUBLE"),
    "UBIGINT": ("DOUBLE",),
    "FLOAT": ("DOUBLE",),
    "DECIMAL(4,1)": ("DECIMAL(9,4)", "DECIMAL(5,1)", "DOUBLE"),
    "DECIMAL(9,4)": ("DECIMAL(18,4)", "FLOAT"),
    "DATE": ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP WITH TIME ZONE"),
    "TIMESTAMP_S": ("TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS"),
    "TIMESTAMP_MS": ("TIMESTAMP",),
    "TIMESTAMP": ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP_NS"),
    "BOOLEAN": ("INTEGER",),
    "VARCHAR": ("JSON",),
}
CHANGED_TWICE = tuple(name for name, wide in WIDER.items() if any(one in WIDER for one in wide))


@dataclass(frozen=True)
class Kind:
    """A type. Of a float: the sign of its zeros and the bits of its NaNs, one for each column, because a
    Parquet dictionary takes them for one (docs/ducklake.md)."""

    name: str  # a scalar's type, or STRUCT, LIST, MAP
    parts: tuple[tuple[str, Kind], ...] = ()
    minus: bool = False
    payload: int = 0

    @property
    def sql(self) -> str:
        kinds = [kind.sql for _, kind in self.parts]
        if self.name == "STRUCT":
            return f"STRUCT({', '.join(f'{name} {kind.sql}' for name, kind in self.parts)})"
        if self.name == "LIST":
            return f"{kinds[0]}[]"
        return f"MAP({', '.join(kinds)})" if self.name == "MAP" else self.name

    def with_parts(self, parts: Mapping[str, Kind]) -> Kind:
        return Kind(self.name, tuple(parts.items()), self.minus, self.payload)


def only_grows(old: Kind, new: Kind) -> bool:
    """Whether whole numbers and decimals became wider ones, so that no value is read otherwise."""
    if new.parts:
        pairs = zip(old.parts, new.parts, strict=True)
        return all(was == now or only_grows(was, now) for (_, was), (_, now) in pairs)
    return all(
        kind.name.endswith(("INT", "INTEGER")) or kind.name.startswith("DECIMAL") for kind in (old, new)
    )


@st.composite
def scalars(draw: Draw, names: tuple[str, ...] = (*PLAIN, *FLOATS, *FLOATS)) -> Kind:
    name = draw(st.sampled_from(names))
    if name not in FLOATS:
        return Kind(name)
    return Kind(name, minus=draw(st.booleans()), payload=draw(st.sampled_from([0, 1, 0x155555])))


def kinds() -> st.SearchStrategy[Kind]:
    """Any type that is carried, a few levels deep."""

    def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
        fields = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            fields.map(lambda some: Kind("STRUCT", tuple((f"f{n}", one) for n, one in enumerate(some)))),
            inner.map(lambda one: Kind("LIST", (("element", one),))),
            inner.map(lambda one: Kind("MAP", (("key", Kind("VARCHAR")), ("value", one)))),
        )

    return st.one_of(scalars(), scalars(), st.recursive(scalars(), nested, max_leaves=4))


@st.composite
def values(draw: Draw, kind: Kind, nulls: bool = True) -> str:
    """A value of the type, as an SQL expression."""
    if nulls and draw(st.integers(0, 5)) == 0:
        return f"CAST(NULL AS {kind.sql})"
    if kind.name == "STRUCT":
        fields = ", ".join(f"'{name}': {draw(values(part))}" for name, part in kind.parts)
        return f"CAST({{{fields}}} AS {kind.sql})"
    if kind.name == "LIST":
        items = draw(st.lists(values(kind.parts[0][1]), max_size=3))
        return f"CAST([{', '.join(items)}] AS {kind.sql})"
    if kind.name == "MAP":
        names = draw(st.lists(st.sampled_from(["'k'", "''", "'it''s'", "'\\'"]), max_size=2, unique=True))
        pairs = ", ".join(f"{name}: {draw(values(kind.parts[1][1]))}" for name in names)
        return f"CAST(MAP {{{pairs}}} AS {kind.sql})"
    return f"CAST({draw(_scalar(kind))} AS {kind.sql})"


def _scalar(kind: Kind) -> st.SearchStrategy[str]:
    if kind.name in FLOATS:
        return _float(kind)
    known = st.sampled_from(SCALARS.get(kind.name, ["0"]))
    if kind.name == "VARCHAR":
        return st.one_of(known, st.text(max_size=5).map(text))
    if kind.name == "BLOB":
        return st.one_of(known, st.binary(max_size=4).map(lambda b: f"from_hex('{b.hex()}')"))
    if kind.name.endswith("INT") or kind.name.endswith("INTEGER"):
        return st.one_of(
            known, st.integers(0, 100).map(str), st.just("16777217" if "BIG" in kind.name else "7")
        )
    return known


@st.composite
def _float(draw: Draw, kind: Kind) -> str:
    wide = kind.name == "DOUBLE"
    size, mantissa = (64, 52) if wide else (32, 23)
    quiet = (1 << 22 | kind.payload) << (mantissa - 23)
    sign = int(kind.minus) << (size - 1)
    infinite = ((1 << (size - 1 - mantissa)) - 1) << mantissa
    bits = draw(
        st.one_of(
            st.sampled_from([sign, sign | infinite | quiet, infinite, 1 << (size - 1) | infinite, 1]),
            st.integers(0, (1 << size) - 1),
            st.floats(0, 1, width=64 if wide else 32).map(lambda value: _bits(value, wide)),
        )
    )
    if bits & infinite == infinite and bits & ((1 << mantissa) - 1):
        bits = sign | infinite | quiet  # one NaN for each column
    elif not bits & ((1 << (size - 1)) - 1):
        bits = sign  # and one zero
    return f"CAST('{bits:0{size}b}' AS BIT)"


def _bits(value: float, wide: bool) -> int:
    return int.from_bytes(struct.pack(">d" if wide else ">f", value), "big")


def text(value: str) -> str:
    """A text as SQL; a NUL cannot stand in a statement."""
    parts = value.encode("utf-8", "ignore").decode().split("\0")
    return " || chr(0) || ".join("'" + part.replace("'", "''") + "'" for part in parts)
