"""PostgreSQL's types: the neutral type of each, its Arrow form, and how its texts are read.

The neutral type is in DuckDB's spelling and holds every value of the column, or says which it does not;
beside it stands the native spelling, for sinks that are PostgreSQL. A type that is not known here travels
as its text, which PostgreSQL reads back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from truecut.model.table import Column, TableSchema
from truecut.sources.postgres import values
from truecut.sources.postgres.arrays import list_reader
from truecut.sources.postgres.relation import Relation, RelationColumn
from truecut.sources.postgres.values import Reader, caster

DIGITS_MAX = 38


@dataclass(frozen=True, slots=True)
class ValueType:
    """How values of one type travel. `limits` are the values that stop a table; empty for none."""

    spelling: str  # DuckDB's
    arrow: pa.DataType
    read: Reader
    limits: str = ""


_TEXT = ValueType("VARCHAR", pa.string(), values.text)
_YEARS = "years from 294247 on stop the table"
_JSON = "a lone surrogate (\\ud800) stops the table"
_INTERVAL_TYPE = "STRUCT(months INTEGER, days INTEGER, micros BIGINT)"

# By pg_type.typname of the built-in type; everything else is text.
_TYPES = {
    "bool": ValueType("BOOLEAN", pa.bool_(), values.boolean),
    "int2": ValueType("SMALLINT", pa.int16(), caster(pa.int16(), "it is no smallint")),
    "int4": ValueType("INTEGER", pa.int32(), caster(pa.int32(), "it is no integer")),
    "int8": ValueType("BIGINT", pa.int64(), caster(pa.int64(), "it is no bigint")),
    "oid": ValueType("UINTEGER", pa.uint32(), caster(pa.uint32(), "it is no oid")),
    "xid": ValueType("UINTEGER", pa.uint32(), caster(pa.uint32(), "it is no xid")),
    "cid": ValueType("UINTEGER", pa.uint32(), caster(pa.uint32(), "it is no cid")),
    "xid8": ValueType("UBIGINT", pa.uint64(), caster(pa.uint64(), "it is no xid8")),
    "float4": ValueType("FLOAT", pa.float32(), caster(pa.float32(), "it is no real")),
    "float8": ValueType("DOUBLE", pa.float64(), caster(pa.float64(), "it is no double precision")),
    "bytea": ValueType("BLOB", pa.binary(), values.bytea),
    "date": ValueType("DATE", pa.date32(), values.date),
    "time": ValueType("TIME", pa.time64("us"), values.time),
    "timestamp": ValueType("TIMESTAMP", pa.timestamp("us"), values.timestamp, _YEARS),
    "timestamptz": ValueType(
        "TIMESTAMP WITH TIME ZONE", pa.timestamp("us", tz="UTC"), values.timestamptz, _YEARS
    ),
    "interval": ValueType(_INTERVAL_TYPE, values.INTERVAL, values.interval),
    "uuid": ValueType("UUID", pa.string(), values.uuid),
    "json": ValueType("JSON", pa.string(), values.json_text, _JSON),
    "jsonb": ValueType("JSON", pa.string(), values.text),
}
# Types whose texts mean the same value to every sink.
_LITERALS = re.compile(
    r"BOOLEAN|SMALLINT|INTEGER|BIGINT|UINTEGER|UBIGINT|FLOAT|DOUBLE|VARCHAR|DATE|TIMESTAMP( WITH TIME ZONE)?"
    r"|UUID|JSON|DECIMAL\(\d+,\d+\)"
)
_BUILT_IN_MAX = 16383  # oids of what initdb made; extensions and users come after


def value_type(column: RelationColumn) -> ValueType:
    """How the values of a column travel."""
    base = _base_type(column)
    if not column.dims:
        return base
    delimiter = column.delimiter or (";" if column.base_name == "box" else ",")
    arrow = base.arrow
    for _ in range(column.dims):
        arrow = pa.list_(arrow)
    read = list_reader(base.read, dims=column.dims, delimiter=delimiter)
    limits = "; ".join(filter(None, ["another depth or lower bound stops the table", base.limits]))
    return ValueType(base.spelling + "[]" * column.dims, arrow, read, limits)


def _base_type(column: RelationColumn) -> ValueType:
    if column.base_oid > _BUILT_IN_MAX or column.base_kind != "b":
        return _TEXT
    if column.base_name == "numeric":
        return _numeric(column.base_typmod)
    return _TYPES.get(column.base_name, _TEXT)


def _numeric(typmod: int) -> ValueType:
    """DECIMAL where it is declared within DuckDB's digits. NaN is then the only value that it does not hold:
    PostgreSQL has no infinity in such a column."""
    if typmod < 0:
        return _TEXT
    precision, scale = (typmod - 4) >> 16 & 0xFFFF, ((typmod - 4 & 0x7FF) ^ 0x400) - 0x400
    if precision > DIGITS_MAX or not 0 <= scale <= precision:
        return _TEXT
    arrow = pa.decimal128(precision, scale)
    reason = f"it is NaN, which a column of numeric keeps and one of numeric({precision},{scale}) does not"
    limits = "NaN stops the table (TC3050), for every sink; `numeric` without a precision keeps it"
    return ValueType(f"DECIMAL({precision},{scale})", arrow, caster(arrow, reason), limits)


def native_spelling(column: RelationColumn) -> str:
    """postgres:numeric(10,2)[][]"""
    array = column.type_name.endswith("[]")
    return f"postgres:{column.type_name}{'[]' * (column.dims - 1) if array else ''}"


def table_schema(relation: Relation) -> TableSchema:
    """The table's columns in neutral types."""
    return TableSchema(str(relation.oid), tuple(map(_column, relation.columns)))


def _column(column: RelationColumn) -> Column:
    spelling = value_type(column).spelling
    initial = None if column.initial is None else "'" + column.initial.replace("'", "''") + "'"
    told = initial is None or _LITERALS.fullmatch(spelling) is not None
    return Column(
        column.number,
        column.name,
        spelling,
        initial if told else None,
        _parts(spelling),
        native_spelling(column),
        untold=column.filled or not told,
    )


def _parts(spelling: str) -> tuple[Column, ...]:
    """Of a list its element, of an interval its fields: ids of their own, which never change."""
    if spelling.endswith("[]"):
        inner = spelling.removesuffix("[]")
        return (Column(1, "element", inner, parts=_parts(inner)),)
    if spelling == _INTERVAL_TYPE:
        fields = (("months", "INTEGER"), ("days", "INTEGER"), ("micros", "BIGINT"))
        return tuple(Column(n, name, kind) for n, (name, kind) in enumerate(fields, 1))
    return ()


def row_type(relation: Relation) -> pa.StructType:
    """The Arrow form of a row."""
    return pa.struct([pa.field(column.name, value_type(column).arrow) for column in relation.columns])
