"""Rows by number, on disk: many are put in as they come, some are taken out in any order.

Batches stand one after another in a temporary file that is read through a memory map, so what is held in
memory is what was just taken. Owns the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from types import TracebackType

import numpy as np
import pyarrow as pa


class RowStore:
    """Rows of one schema. First everything is put in, then it is read."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = 0
        self._starts: list[int] = []
        self._file = tempfile.NamedTemporaryFile(prefix="truecut-rows-", suffix=".arrow")  # noqa: SIM115
        self._writer: pa.ipc.RecordBatchFileWriter | None = pa.ipc.new_file(self._file.name, schema)
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def __enter__(self) -> RowStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seal()
        self._reader = None
        self._file.close()

    def put(self, batch: pa.RecordBatch) -> int:
        """The number of its first row."""
        assert self._writer is not None, "what is read is not added to"
        first = self.rows
        if batch.num_rows:
            self._starts.append(first)
            self._writer.write_batch(batch)
            self.rows += batch.num_rows
        return first

    def column(self, number: int, rows: Sequence[int]) -> pa.Array:
        """The values of one column in these rows."""
        self._seal()
        if self._reader is None:
            self._reader = pa.ipc.open_file(pa.memory_map(self._file.name))
        wanted = np.asarray(rows, np.int64)
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        batches = np.searchsorted(self._starts, ordered, "right") - 1
        pieces = [
            self._reader.get_batch(batch).column(number).take(pa.array(ordered[at] - self._starts[batch]))
            for batch in np.unique(batches).tolist()
            for at in [batches == batch]
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        empty = pa.array([], self.schema.field(number).type)
        return pa.concat_arrays([empty, *pieces]).take(pa.array(back))

    def take(self, rows: Sequence[int]) -> list[pa.Array]:
        """All columns of these rows."""
        return [self.column(number, rows) for number in range(len(self.schema))]

    def _seal(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
