"""Which changes of a column's type leave every copy with the source's values, wherever they lie.

A source keeps old rows as they were written and converts them when they are read: an INTEGER of an old file
that became a FLOAT and then a DOUBLE is read as if it had never been a FLOAT. A copy that took the row in
between has the FLOAT. So a copy follows by itself only where every way to the new type gives the same value:
among integers and decimals, none of which loses anything, and from one type of floating point or to it, if
that is the column's first change and no default is in play. Everything else is a gap: the rows are read anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truecut.errors import Fault, Retry
from truecut.model.table import Column, TableSchema
from truecut.model.types import Type
from truecut.sources.contract import TableRead
from truecut.sources.ducklake.catalog import ColumnVersion

ROWS_REVALUED = "TC3033"


def revalued(
    table: TableRead, columns: Sequence[ColumnVersion], before: TableSchema, now: TableSchema, *, after: str
) -> Fault | None:
    """Why rows that nobody touched may have other values than their copies, if so."""
    known = {column.id: column for column in before.columns}
    for column in now.columns:
        old = known.get(column.id)
        if old is None or all(_follows(*pair, columns) for pair in _changed(old, column)):
            continue
        return Fault(
            ROWS_REVALUED,
            f"{table.name}: the type of column {column.name} was changed after {after}, and the source may"
            " read its old rows otherwise than they were copied",
            "None needed for a mirror: it is seeded anew. Resume an append table: it gets the whole table"
            " again as `read` rows.",
            Retry.GAP,
        )
    return None


def _changed(old: Column, new: Column) -> Iterator[tuple[Column, Column]]:
    """The scalars that both have, at any depth, and that have another type now."""
    if old.kind != new.kind:
        return  # no such change is followed by any sink
    if not new.parts:
        if old.type != new.type:
            yield old, new
        return
    known = {part.id: part for part in old.parts}
    if new.kind != "struct":  # the one element; key and value
        known = {part.id: was for was, part in zip(old.parts, new.parts, strict=True)}
    for part in new.parts:
        if part.id in known:
            yield from _changed(known[part.id], part)


def _follows(old: Column, new: Column, columns: Sequence[ColumnVersion]) -> bool:
    was, now = old.parsed, new.parsed
    if was.name == "BOOLEAN" or (_is_exact(was) and _is_exact(now)):
        return True  # what was a BOOLEAN is refused by every sink
    numbers = now.is_float and (_is_exact(was) or was.is_float)
    return numbers and new.initial is None and _is_first(old, new, columns)


def _is_first(old: Column, new: Column, columns: Sequence[ColumnVersion]) -> bool:
    """Whether the column was of these two types alone, ever. Parts of lists and maps get new ids: nobody
    knows."""
    types = {column.type for column in columns if column.id == new.id}
    top = any(column.id == new.id and column.parent is None for column in columns)
    return top and old.id == new.id and len(types) == 2


def _is_exact(kind: Type) -> bool:
    """Parquet has no whole numbers of 128 bits: a file holds them as DOUBLE."""
    return kind.name == "DECIMAL" or (kind.is_integer and not kind.name.endswith("HUGEINT"))
