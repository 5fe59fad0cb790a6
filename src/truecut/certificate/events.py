"""Rows of a packet as events of a segment: digests in place of values, a column at a time.

Owns the form of a segment's rows (docs/certificate-format.md), for mirrors and for append tables. No loop
here goes over rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truecut.certificate.digest import Keyed, Rows, as_blocks, digest_rows
from truecut.model.change import (
    DELETE,
    INSERT,
    OP,
    OP_NAMES,
    PLACE,
    POSITION,
    READ,
    SEQ,
    TRUNCATE,
    UNCHANGED,
)
from truecut.model.table import Mode, TableSchema

OP_COLUMN, UNCHANGED_COLUMN = (1 << 32) - 1, (1 << 32) - 2  # numbers of what an append table has beside
DIGEST = pa.binary(16)
CELL = pa.struct([pa.field("column", pa.uint32()), pa.field("digest", DIGEST)])
SCHEMA = pa.schema(
    [
        pa.field("place", pa.uint64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("op", pa.uint8(), nullable=False),
        pa.field("key", DIGEST),
        pa.field("row", DIGEST),
        pa.field("absent", pa.list_(pa.uint32())),
        pa.field("cells", pa.list_(CELL)),
    ]
)
_LARGE = frozenset({"VARCHAR", "JSON", "BLOB"})
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Events:
    """How one copy's rows become events."""

    keyed: Keyed
    scope: str
    mode: Mode
    key: tuple[str, ...]
    schema: TableSchema
    generation: int
    leaves_out: bool = False  # the source may send a row without some of its large values

    def of(self, rows: pa.Table) -> pa.Table:
        """Events in the order of the rows."""
        return self._changes(rows) if self.mode == "append" else self._mirrored(rows)

    def _mirrored(self, rows: pa.Table) -> pa.Table:
        ops = rows.column(OP).to_numpy()
        columns = {column.name: (column.id, column.type) for column in self.schema.columns}
        keep = self._kept()
        key = sorted(self.key)  # the order in which the pipeline file names them shapes nothing
        found = digest_rows(self.keyed, rows, scope=self.scope, key=key, columns=columns, keep=keep)
        gone = (ops == DELETE) | (ops == TRUNCATE)
        cells = _cells(found, gone) if keep else pa.nulls(len(ops), pa.list_(CELL))
        absent = self._absent(rows, gone)
        return _events(rows, ops, found, keyless=ops == TRUNCATE, rowless=gone, absent=absent, cells=cells)

    def _changes(self, rows: pa.Table) -> pa.Table:
        """Every change is a row of the append table, with what that has beside the source's columns."""
        ops = rows.column(OP).to_numpy()
        table, columns = _as_kept(rows, self.schema, self.generation)
        found = digest_rows(self.keyed, table, scope=self.scope, key=(POSITION, SEQ), columns=columns)
        none = np.zeros(len(ops), np.bool_)
        as_rows = np.where(ops == READ, READ, INSERT).astype(np.uint8)
        lists = (pa.nulls(len(ops), pa.list_(pa.uint32())), pa.nulls(len(ops), pa.list_(CELL)))
        return _events(rows, as_rows, found, keyless=none, rowless=none, absent=lists[0], cells=lists[1])

    def _kept(self) -> Collection[str]:
        if not self.leaves_out:
            return ()
        large = (c for c in self.schema.columns if c.kind != "scalar" or c.parsed.name in _LARGE)
        return [column.name for column in large if column.name not in self.key]

    def _absent(self, rows: pa.Table, gone: Mask) -> pa.Array:
        """The numbers of the columns that were not sent."""
        if UNCHANGED not in rows.column_names:
            return pa.nulls(rows.num_rows, pa.list_(pa.uint32()))
        named = rows.column(UNCHANGED).combine_chunks()
        named = named if isinstance(named, pa.ListArray) else named.chunk(0)
        none = gone | (pc.fill_null(pc.list_value_length(named), 0).to_numpy(zero_copy_only=False) == 0)
        names = pa.array(self.schema.names, pa.string())
        numbers = pa.array([column.id for column in self.schema.columns], pa.uint32())
        return _lists(named, numbers.take(pc.index_in(named.flatten(), names)), none)


def _events(
    rows: pa.Table,
    ops: npt.NDArray[np.uint8],
    found: Rows,
    *,
    keyless: Mask,
    rowless: Mask,
    absent: pa.Array,
    cells: pa.Array,
) -> pa.Table:
    columns = [
        rows.column(PLACE).combine_chunks(),
        rows.column(SEQ).combine_chunks(),
        pa.array(ops, pa.uint8()),
        blocks_array(found.keys, keyless),
        blocks_array(as_blocks(found.sums), rowless),
        absent,
        cells,
    ]
    return pa.table(columns, schema=SCHEMA)


def blocks_array(blocks: npt.NDArray[np.uint8], none: Mask) -> pa.Array:
    """Digests as a column; NULL where there is none."""
    valid = None if not none.any() else pa.array(~none).buffers()[1]
    data = pa.py_buffer(np.ascontiguousarray(blocks))
    return pa.Array.from_buffers(DIGEST, len(blocks), [valid, data])


def _lists(like: pa.ListArray, values: pa.Array, none: Mask) -> pa.Array:
    """The lists of `like` with other values; NULL where there are none."""
    lengths = pc.fill_null(pc.list_value_length(like), 0).to_numpy(zero_copy_only=False)
    # What is NULL afterwards keeps its values in between, which nobody sees.
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(none))


def _cells(found: Rows, gone: Mask) -> pa.Array:
    """The kept cells of each row, as a list; NULL for a row that is gone."""
    numbers = [np.full(len(cells.rows), column, np.uint32) for column, cells in found.cells.items()]
    owners = np.concatenate([cells.rows for cells in found.cells.values()] or [np.zeros(0, np.int64)])
    digests = np.concatenate(
        [cells.digests for cells in found.cells.values()] or [np.zeros((0, 16), np.uint8)]
    )
    order = np.argsort(owners, kind="stable")
    order = order[~gone[owners[order]]]
    column = pa.array(np.concatenate(numbers or [np.zeros(0, np.uint32)])[order], pa.uint32())
    digest = blocks_array(digests[order], np.zeros(len(order), np.bool_))
    values = pa.StructArray.from_arrays([column, digest], fields=list(CELL))
    counts = np.bincount(owners[order], minlength=len(gone))
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(gone))


# --- append tables --------------------------------------------------------------------------------------


def append_columns(schema: TableSchema) -> dict[str, tuple[int, str]]:
    """The columns of an append table that count, those of its key included."""
    beside = {
        POSITION: (0, "VARCHAR"),
        SEQ: (0, "VARCHAR"),
        OP: (OP_COLUMN, "VARCHAR"),
        UNCHANGED: (UNCHANGED_COLUMN, "VARCHAR[]"),
    }
    return beside | {column.name: (column.id, column.type) for column in schema.columns}


def _as_kept(
    rows: pa.Table, schema: TableSchema, generation: int
) -> tuple[pa.Table, dict[str, tuple[int, str]]]:
    """The rows as an append table holds them."""
    count = rows.num_rows
    places = _hexadecimal(rows.column(PLACE).to_numpy())
    prefix = np.frombuffer(f"{generation:08X}-".encode(), np.uint8)
    positions = np.hstack([np.broadcast_to(prefix, (count, 9)), places])
    names = pa.array([OP_NAMES.get(op, "") for op in range(max(OP_NAMES) + 1)])
    if UNCHANGED in rows.column_names:
        named = rows.column(UNCHANGED)
        some = pc.greater(pc.fill_null(pc.list_value_length(named), 0), 0)
        unchanged = pc.if_else(some, named, pa.scalar(None, named.type))
    else:
        unchanged = pa.nulls(count, pa.list_(pa.string()))
    kept = {
        POSITION: _texts(positions),
        SEQ: _texts(_hexadecimal(rows.column(SEQ).to_numpy().view(np.uint64))),
        OP: names.take(rows.column(OP).combine_chunks()),
        UNCHANGED: unchanged,
    }
    table = pa.table(kept | {column.name: rows.column(column.name) for column in schema.columns})
    return table, append_columns(schema)


def _hexadecimal(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Sixteen digits each."""
    raw = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    found: npt.NDArray[np.uint8] = _DIGITS[np.stack([raw >> 4, raw & 15], axis=2).reshape(-1, 16)]
    return found


def _texts(letters: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = letters.shape
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.StringArray.from_buffers(count, offsets, pa.py_buffer(np.ascontiguousarray(letters)))
