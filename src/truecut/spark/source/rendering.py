"""Changes as rows of the data source: in the order of the log, in the columns and types that were asked for.

Promises: rows of a record come in the order of `seq`, over all its tables; no batch is much larger than its
bound, unless a single row is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecut.journal.decoding import RECORD, Changes
from truecut.model.change import (
    AFTER,
    BEFORE,
    COMMITTED_AT,
    EVENT_NAMES,
    FULL_IMAGE,
    IMAGE,
    OP,
    SEQ,
    TRANSACTION,
    UNCHANGED,
)
from truecut.spark.source.json_text import json_objects, json_text
from truecut.spark.source.typed import conform

BATCH_BYTES_MAX = 4 << 20
BATCH_ROWS_MAX = 10_000

_OPS = pa.array([EVENT_NAMES.get(number) for number in range(max(EVENT_NAMES) + 1)])


class UnchangedUnseen(ValueError):
    """A column is absent, and the reader would take it for NULL."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Some changes of one table, in order."""

    table: str | None
    key: tuple[str, ...]
    rows: pa.RecordBatch
    positions: pa.Array  # of the records, as text

    @property
    def columns(self) -> list[str]:
        kind = self.rows.schema.field(AFTER).type
        return [field.name for field in kind] if pa.types.is_struct(kind) else []


def render(found: Sequence[Changes], positions: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The changes of a run of records as batches with this schema."""
    texts = pa.array(positions, pa.string())
    parts = [_Part(table, key, _ordered(rows), texts) for table, key, rows in _merged(found)]
    order = _order(parts)
    taken = [0] * len(parts)
    step = _rows_at_once(parts)
    for low in range(0, len(order), step):
        window = order[low : low + step]
        pieces = []
        for number, part in enumerate(parts):
            count = int(np.count_nonzero(window == number))
            if count:
                rows = part.rows.slice(taken[number], count)
                pieces.append(_render_part(_Part(part.table, part.key, rows, part.positions), schema))
                taken[number] += count
        # The pieces hold the rows by table; each goes to the place that the window gives it.
        places = np.argsort(np.argsort(window, kind="stable"), kind="stable")
        batch = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
        yield batch if len(pieces) == 1 else batch.take(pa.array(places))


def _merged(found: Sequence[Changes]) -> Iterator[tuple[str | None, tuple[str, ...], pa.RecordBatch]]:
    """Changes of one table and the same columns together, so that columns are handled few times."""
    groups: dict[tuple[str | None, tuple[str, ...], str], list[pa.RecordBatch]] = {}
    for one in found:
        if one.rows.num_rows:
            groups.setdefault((one.table, one.key, str(one.rows.schema)), []).append(one.rows)
    for (table, key, _), batches in groups.items():
        yield table, key, pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _ordered(rows: pa.RecordBatch) -> pa.RecordBatch:
    indices = pc.sort_indices(rows, sort_keys=[(RECORD, "ascending"), (SEQ, "ascending")])
    return rows if indices.equals(pa.array(range(rows.num_rows), indices.type)) else rows.take(indices)


def _order(parts: Sequence[_Part]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each row of all parts, in the order of the log: the number of its part."""
    if not parts:
        return np.zeros(0, np.int64)
    which = np.concatenate([np.full(part.rows.num_rows, n, np.int64) for n, part in enumerate(parts)])
    seqs = np.concatenate([part.rows.column(SEQ).to_numpy() for part in parts])
    records = np.concatenate([part.rows.column(RECORD).to_numpy() for part in parts])
    order: np.ndarray[tuple[int], np.dtype[np.int64]] = which[np.lexsort((seqs, records))]
    return order


def _rows_at_once(parts: Sequence[_Part]) -> int:
    rows: int = sum(part.rows.num_rows for part in parts)
    size: int = sum(part.rows.nbytes for part in parts)
    return max(1, min(BATCH_ROWS_MAX, rows * BATCH_BYTES_MAX // max(1, size)))


def _render_part(part: _Part, schema: pa.Schema) -> pa.RecordBatch:
    if "unchanged" not in schema.names and _hides_unchanged(part, schema):
        raise UnchangedUnseen
    columns = [_COLUMNS[field.name](part, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _hides_unchanged(part: _Part, schema: pa.Schema) -> bool:
    after = schema.field("after").type if "after" in schema.names else pa.string()
    return bool(pa.types.is_struct(after)) and bool(_absent(part))


# --- the columns ----------------------------------------------------------------------------------------


def _image(values: pa.Array, kind: pa.DataType, absent: Mapping[int, pa.Array] | None = None) -> pa.Array:
    """A row as JSON, or typed."""
    if pa.types.is_struct(kind):
        return conform(values, kind)
    if pa.types.is_struct(values.type):
        return json_objects(values, absent or {})
    return pc.if_else(values.is_valid(), json_text(values), pa.scalar(None, pa.string()))


def _after(part: _Part, kind: pa.DataType) -> pa.Array:
    return _image(part.rows.column(AFTER), kind, _absent(part))


def _before(part: _Part, kind: pa.DataType) -> pa.Array:
    """Whole or not at all: what a source sends of a key only is the key."""
    whole = pc.equal(part.rows.column(IMAGE), FULL_IMAGE)
    values = part.rows.column(BEFORE)
    rows = pc.if_else(whole, pa.array(range(len(values)), pa.int64()), pa.scalar(None, pa.int64()))
    return _image(values.take(rows), kind)


def _key(part: _Part, kind: pa.DataType) -> pa.Array:
    """Of the row after, or of the row before where there is no other: an update keeps its key."""
    if not part.key:
        return pa.nulls(part.rows.num_rows, kind)
    before, after = part.rows.column(BEFORE), part.rows.column(AFTER)
    columns = [
        pc.if_else(after.is_valid(), pc.struct_field(after, name), pc.struct_field(before, name))
        for name in part.key
    ]
    missing = pc.and_(before.is_null(), after.is_null())
    return _image(pa.StructArray.from_arrays(columns, names=list(part.key), mask=missing), kind)


def _unchanged(part: _Part, kind: pa.DataType) -> pa.Array:
    numbers = pc.coalesce(part.rows.column(UNCHANGED), pa.scalar([], pa.list_(pa.int32())))
    lengths = pc.cumulative_sum(pc.list_value_length(numbers))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), lengths])
    names = pa.array(part.columns, pa.string()).take(numbers.flatten())
    return pa.ListArray.from_arrays(offsets, names, type=kind)


def _absent(part: _Part) -> dict[int, pa.Array]:
    """For each column that is absent anywhere: in which rows."""
    unchanged = part.rows.column(UNCHANGED)
    if unchanged.null_count == len(unchanged):
        return {}
    parents, numbers = pc.list_parent_indices(unchanged), unchanged.flatten()
    rows = pa.array(range(len(unchanged)), parents.type)
    return {
        number: pc.is_in(rows, pc.filter(parents, pc.equal(numbers, number)))
        for number in pc.unique(numbers).to_pylist()
    }


_COLUMNS: Mapping[str, Callable[[_Part, pa.DataType], pa.Array]] = {
    "position": lambda part, _: part.positions.take(part.rows.column(RECORD)),
    "seq": lambda part, _: part.rows.column(SEQ),
    "transaction": lambda part, _: part.rows.column(TRANSACTION),
    "committed_at": lambda part, _: part.rows.column(COMMITTED_AT),
    "table": lambda part, _: pa.repeat(pa.scalar(part.table, pa.string()), part.rows.num_rows),
    "op": lambda part, _: _OPS.take(part.rows.column(OP)),
    "key": _key,
    "before": _before,
    "after": _after,
    "unchanged": _unchanged,
}
