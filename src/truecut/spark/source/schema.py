"""The data source's columns: always the same with JSON rows, and with typed rows of one table.

A table's columns are those of the newest record that holds it. They are found from the heads of the newest
records, backwards and not for ever, and by reading that one record.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from truecut.journal.contract import JournalReader
from truecut.journal.decoding import Changes, table_hash
from truecut.journal.extent import before
from truecut.model.change import AFTER
from truecut.model.position import Position
from truecut.spark.source import faults
from truecut.spark.source.decode import decode
from truecut.spark.source.typed import spark_arrow_type

SEARCH_RECORDS_MAX = 100_000
_WINDOW_RECORDS = 1_000

ROWS = ("key", "before", "after")
UNTYPED = StructType(
    [
        StructField("position", StringType()),
        StructField("seq", LongType()),
        StructField("transaction", StringType()),
        StructField("committed_at", TimestampType()),
        StructField("table", StringType()),
        StructField("op", StringType()),
        *(StructField(name, StringType()) for name in ROWS),
    ]
)
_UNCHANGED = StructField("unchanged", ArrayType(StringType()))


def discovered(reader: JournalReader, *, table: str, upto: Position | None) -> StructType:
    """With the columns that the table has in the newest record of it."""
    found = _newest(reader, table, upto)
    if found is None:
        raise faults.no_columns(table, records=SEARCH_RECORDS_MAX)
    row = spark_arrow_type(found.rows.schema.field(AFTER).type)
    key = pa.struct([row.field(name) for name in found.key])
    types = {"key": key if found.key else pa.string(), "before": row, "after": row}
    typed = [
        StructField(one.name, from_arrow_type(types[one.name]) if one.name in types else one.dataType)
        for one in UNTYPED
    ]
    return StructType([*typed, _UNCHANGED])


def checked(schema: StructType, *, table: str | None) -> pa.Schema:
    """A schema that somebody has given, as Arrow sees it: any of our columns, with our types; rows of a table
    may be typed."""
    known = {field.name: field.dataType for field in UNTYPED} | {_UNCHANGED.name: _UNCHANGED.dataType}
    for field in schema:
        if field.name not in known:
            raise faults.unfit_schema(f"{field.name} is none of its columns", columns=list(known))
        typed = table is not None and field.name in ROWS and isinstance(field.dataType, StructType)
        if not typed and field.dataType != known[field.name]:
            wanted = known[field.name].simpleString()
            struct = " (or a struct, with the option `table`)" if field.name in ROWS else ""
            raise faults.unfit_schema(f"{field.name} has to be {wanted}{struct}", columns=list(known))
        if not field.nullable or _requires(field.dataType):
            raise faults.unfit_schema(f"{field.name} has a part that is NOT NULL", columns=list(known))
    return to_arrow_schema(schema, timezone="UTC")


def _requires(kind: DataType) -> bool:
    """Whether it says NOT NULL inside: an image of a key, or an older row, lacks columns."""
    if isinstance(kind, StructType):
        return any(not field.nullable or _requires(field.dataType) for field in kind)
    return isinstance(kind, ArrayType) and (not kind.containsNull or _requires(kind.elementType))


def _newest(reader: JournalReader, table: str, upto: Position | None) -> Changes | None:
    for position in _candidates(reader, table, upto):
        for run in decode(reader.read(after=before(position), upto=position), table=table):
            for one in run.changes:
                if one.table == table:
                    return one
    return None


def _candidates(reader: JournalReader, table: str, upto: Position | None) -> Iterator[Position]:
    """The records whose heads name the table, newest first."""
    head, oldest = reader.head(), reader.oldest()
    if head is None or oldest is None:
        return
    last = head if upto is None else min(head, upto)
    high = last.place
    low_min = max(oldest.place - 1, high - SEARCH_RECORDS_MAX)
    hashed = table_hash(table)
    while high > low_min:
        low = max(low_min, high - _WINDOW_RECORDS)
        outlines = reader.heads(after=Position(last.generation, low), upto=Position(last.generation, high))
        named = [one.position for one in outlines if hashed in (id >> 32 for id in one.head.record.schemas)]
        yield from reversed(named)
        high = low
