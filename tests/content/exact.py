"""Rows as bit patterns: two tables are the same when no bit of any value differs.

Floating point numbers become the integers that have their bits, so that -0.0 is not 0.0 and one NaN is not
another; everything else becomes what Arrow stores for it. Whoever compares reads with plain DuckDB.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

_VIEWS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}

Row = tuple[Any, ...]


def rows_of(connection: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    """The rows of a query as bit patterns, in an order that depends on nothing but them."""
    table = connection.execute(query).to_arrow_table()
    columns = [patterns(column.combine_chunks()) for column in table.columns]
    return sorted(zip(*columns, strict=True), key=repr)


def patterns(values: pa.Array) -> list[Any]:
    """What Arrow holds for each value, without interpretation."""
    kind = values.type
    if pa.types.is_null(kind):
        return [None] * len(values)
    if pa.types.is_struct(kind):
        fields = [patterns(child) for child in values.flatten()]
        names = [field.name for field in kind]
        found: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        found = _elements(values)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_boolean(kind):
        found = values.to_pylist()
    elif pa.types.is_decimal(kind):
        found = [None if value is None else str(value) for value in values.to_pylist()]
    else:
        found = values.view(_VIEWS[kind.bit_width // 8]).to_pylist()
    return [
        value if there else None for value, there in zip(found, values.is_valid().to_pylist(), strict=True)
    ]


def _elements(values: pa.Array) -> list[Any]:
    if pa.types.is_map(values.type):
        inner = list(zip(patterns(values.keys), patterns(values.items), strict=True))
    else:
        inner = patterns(values.values)
    offsets = values.offsets.to_pylist()
    return [inner[start:end] for start, end in pairwise(offsets)]
