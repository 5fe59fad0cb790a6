"""The table of PostgreSQL's types: how each is stored, as the code has it. Written by `docs/generate.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from truecut.model.table import Column
from truecut.sinks.postgres.types import target
from truecut.sources.postgres.relation import RelationColumn
from truecut.sources.postgres.session import TEXT_FORM
from truecut.sources.postgres.types import ValueType, native_spelling, value_type


@dataclass(frozen=True, slots=True)
class Row:
    """A type as SQL spells it, and what the catalog says of a column of it."""

    spelling: str
    base: str  # pg_type.typname
    typmod: int = -1
    dims: int = 0
    kind: str = "b"
    note: str = ""

    @property
    def column(self) -> RelationColumn:
        """Such a column; oids do not matter here, only that the type is built in."""
        name = "[]".join([self.spelling.replace("[]", ""), ""]) if self.dims else self.spelling
        return RelationColumn(
            1, "c", 1, self.typmod, self.dims, name, 1, self.typmod, self.kind, self.base, False, False, True
        )

    @property
    def value_type(self) -> ValueType:
        """How its values travel."""
        return value_type(self.column)

    @property
    def at_postgres(self) -> str:
        """What a sink that is PostgreSQL makes of it."""
        column = Column(1, "c", self.value_type.spelling, native=native_spelling(self.column))
        return target("main.t", column).type

    @property
    def kept_at_postgres(self) -> str:
        """In words: the type, and whether a value there is the source's own."""
        bare, there = self.spelling.replace("[][]", "[]"), self.at_postgres
        if there == bare:
            return f"`{there}`, bit for bit"
        return f"`{there}`" + (": its text" if there.startswith("text") else ", bit for bit")


def _typmod(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


_TEXT = "its text, which PostgreSQL reads back as the same value"
_INFINITY = "infinity, -infinity and BC are kept"
_OUTSIDE = "outside of what DECIMAL holds: its digits as text, also NaN"

ROWS = (
    Row("boolean", "bool"),
    Row("smallint", "int2"),
    Row("integer", "int4"),
    Row("bigint", "int8"),
    Row("numeric(10,2)", "numeric", _typmod(10, 2), note="precision up to 38, scale from 0 to the precision"),
    Row("numeric", "numeric", note="its digits as text, as many as there are; also NaN and infinity"),
    Row("numeric(39,1)", "numeric", _typmod(39, 1), note=_OUTSIDE),
    Row("numeric(3,-2)", "numeric", _typmod(3, -2), note=_OUTSIDE),
    Row("real", "float4", note="bit for bit; NaN, infinity and -0 are kept"),
    Row("double precision", "float8", note="bit for bit; NaN, infinity and -0 are kept"),
    Row("money", "money", note=f"{_TEXT}; in the locale C, as in $1,234.50"),
    Row("text", "text"),
    Row("character varying(9)", "varchar", 13),
    Row("character(5)", "bpchar", 9, note="with the blanks that fill it"),
    Row('"char"', "char"),
    Row("name", "name"),
    Row("bytea", "bytea"),
    Row("date", "date", note=_INFINITY),
    Row("time without time zone", "time", note="24:00:00 is kept"),
    Row("time with time zone", "timetz", note=_TEXT),
    Row("time(3) with time zone", "timetz", 3, note=_TEXT),
    Row("timestamp without time zone", "timestamp", note=_INFINITY),
    Row("timestamp(3) without time zone", "timestamp", 3, note=_INFINITY),
    Row("timestamp with time zone", "timestamptz", note=f"{_INFINITY}; an instant, in UTC"),
    Row(
        "interval",
        "interval",
        note="months, days and microseconds apart, as PostgreSQL keeps them; infinity is the largest of each,"
        " -infinity the smallest; before PostgreSQL 17, where those are finite values, they stop the table",
    ),
    Row("uuid", "uuid"),
    Row("json", "json", note="as it was written"),
    Row("jsonb", "jsonb", note="as PostgreSQL shows it"),
    Row("jsonpath", "jsonpath", note=_TEXT),
    Row("xml", "xml", note=_TEXT),
    Row("bit(5)", "bit", 5, note=_TEXT),
    Row("bit varying", "varbit", note=_TEXT),
    Row("inet", "inet", note=_TEXT),
    Row("cidr", "cidr", note=_TEXT),
    Row("macaddr", "macaddr", note=_TEXT),
    Row("macaddr8", "macaddr8", note=_TEXT),
    *(Row(name, name, note=_TEXT) for name in ("point", "line", "lseg", "box", "path", "polygon", "circle")),
    *(Row(name, name, note=_TEXT) for name in ("tsvector", "tsquery", "pg_lsn", "txid_snapshot")),
    *(Row(name, name, note=_TEXT) for name in ("pg_snapshot", "tid", "int2vector", "oidvector", "refcursor")),
    Row(
        "regclass",
        "regclass",
        note="the name, as it was when it was told: a copy keeps it when what it names is renamed; so "
        "regtype, regproc and their like. Elsewhere it may name nothing",
    ),
    Row("oid", "oid"),
    Row("xid", "xid"),
    Row("xid8", "xid8"),
    Row("int4range", "int4range", kind="r", note=f"{_TEXT}; so every range"),
    Row("int4multirange", "int4multirange", kind="m", note=f"{_TEXT}; so every multirange"),
    Row("integer[]", "int4", dims=1, note="so every array, by its element"),
    Row("text[][]", "text", dims=2, note="as deep as it is declared"),
    Row("interval[]", "interval", dims=1),
)
# What users and extensions make; there may be no such type at a sink, or another one of that name.
OTHERS = (
    ("an enum", "VARCHAR", "`text`: its label", "its label"),
    ("a domain", "as the type below it", "", "also arrays of it, and domains over arrays"),
    ("a composite", "VARCHAR", "`text`: its text", _TEXT),
    ("hstore, citext, vector and every other type of an extension", "VARCHAR", "`text`: its text", _TEXT),
)
_DOMAINS = (("numeric", _typmod(12, 3)), ("int4", -1), ("date", -1), ("text", -1), ("inet", -1))


def _domain(base: str, typmod: int) -> str:
    """What a sink that is PostgreSQL makes of a domain over a type."""
    return Row("price", base, typmod).at_postgres


def document() -> str:
    """docs/postgres-types.md"""
    return "\n".join([_INTRODUCTION, *_table(), "", _SETTINGS, *_settings(), ""])


def _table() -> Iterator[str]:
    yield "| type | in a lake | in a sink that is PostgreSQL | what is kept |"
    yield "|---|---|---|---|"
    for row in ROWS:
        kept = "; ".join(filter(None, ["lossless", row.note, _limits(row.value_type)]))
        yield f"| `{row.spelling}` | `{row.value_type.spelling}` | {row.kept_at_postgres} | {kept} |"
    for name, spelling, there, note in OTHERS:
        stored = spelling if " " in spelling else f"`{spelling}`"
        yield f"| {name} | {stored} | {there or _domains()} | lossless; {note} |"


def _domains() -> str:
    found = ", ".join(f"`{base}` → `{_domain(base, typmod)}`" for base, typmod in _DOMAINS)
    return f"as the type below it where that has a form of its own in a lake, else its text: {found}"


def _limits(kind: ValueType) -> str:
    return f"**but** {kind.limits}" if kind.limits else ""


def _settings() -> Iterator[str]:
    yield "| setting | value |"
    yield "|---|---|"
    for name, value in TEXT_FORM.items():
        yield f"| `{name}` | `{value}` |"


_INTRODUCTION = """\
# PostgreSQL's types

Generated from the code by `docs/generate.py`. The types in a lake are DuckDB's. Lossless means that
PostgreSQL, given what the lake holds, has the same value again, to the last digit of its text. A sink that is
PostgreSQL has the source's own type where both servers have the same: then the value there is the source's
bit for bit. What users and extensions have made is text there: a type of that name may be another one.

A value that its column cannot hold is never bent. It stops its table (TC3050) at the end of the transaction
before it, and the other tables go on.
"""

_SETTINGS = """\
## What the text of a value depends on

Values come out of PostgreSQL as text. Truecut sets these in every session that reads, whatever the server or
the user has set:
"""
