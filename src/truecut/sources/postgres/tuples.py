"""Rows as pgoutput sends them, read column by column for many messages at once.

    number of columns (u16) | for each: n (NULL), u (unchanged and not sent), or t, length (u32), text

All numbers are big-endian. A walk goes through as many rows as there are, one column at a time; nothing is
copied: a cell is a place in the stream's data. Promises: no cell reaches beyond its message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from truecut.sources.postgres.stream import Bytes, Flags, Ints, Stream

NULL, ABSENT, TEXT = b"nut"


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of some rows, in the order of the stream."""

    kinds: Bytes
    starts: Ints
    ends: Ints
    all_texts: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """All columns of some rows, and where the rows end."""

    columns: tuple[Cells, ...]
    ends: Ints


def walk(stream: Stream, messages: Ints, at: Ints, *, columns: int) -> Walk:
    """The rows that begin at these places of these messages."""
    limits = stream.ends[messages]
    _check(stream, messages, at + 2 > limits, "it ends before its row")
    wrong = stream.number(at, 2) != columns
    _check(stream, messages, wrong, f"its row has not the {columns} columns of its relation")
    at = at + 2
    found = []
    for _ in range(columns):
        cells, at = _column(stream, messages, at, limits)
        found.append(cells)
    return Walk(tuple(found), at)


def _column(stream: Stream, messages: Ints, at: Ints, limits: Ints) -> tuple[Cells, Ints]:
    _check(stream, messages, at >= limits, "it ends in the middle of its row")
    kinds = stream.data[at]
    texts = kinds == TEXT
    if texts.all():
        starts, ends = _texts(stream, messages, at, limits)
        return Cells(kinds, starts, ends, all_texts=len(kinds) > 0), ends
    _check(stream, messages, ~texts & (kinds != NULL) & (kinds != ABSENT), "a value is of an unknown kind")
    starts = at + 1
    ends = starts.copy()
    which = np.flatnonzero(texts)
    starts[which], ends[which] = _texts(stream, messages[which], at[which], limits[which])
    return Cells(kinds, starts, ends), ends


def _texts(stream: Stream, messages: Ints, at: Ints, limits: Ints) -> tuple[Ints, Ints]:
    starts = at + 5
    _check(stream, messages, starts > limits, "it ends in the middle of a value's length")
    ends = starts + stream.number(at + 1, 4)
    _check(stream, messages, ends > limits, "a value ends after its message")
    return starts, ends


def _check(stream: Stream, messages: Ints, wrong: Flags, reason: str) -> None:
    if wrong.any():
        raise stream.broken(int(messages[np.argmax(wrong)]), reason)


class Selection:
    """Rows by their numbers among those that were walked, -1 for none: the same for all columns."""

    def __init__(self, rows: Ints) -> None:
        missing = rows < 0
        self.rows = rows
        self.missing = missing if missing.any() else None
        self._slices = (rows * 2).astype(np.int32)
        self._indices = pa.array(self._slices, mask=self.missing)

    def indices(self, cells: Cells) -> pa.Array:
        """Of the slices that are texts of these rows, among slices and the gaps between them."""
        if cells.all_texts:
            return self._indices
        missing = cells.kinds[self.rows] != TEXT if len(cells.kinds) else np.ones(len(self.rows), np.bool_)
        return pa.array(self._slices, mask=missing if self.missing is None else missing | self.missing)


def gather(stream: Stream, cells: Cells, rows: Selection) -> pa.Array:
    """The texts of these rows as one binary array; NULL where there is no text.

    Cells and the gaps between them, one after the other, are already an Arrow array over the stream's own
    bytes; taking every second of it is one copy, by Arrow.
    """
    count = len(cells.starts)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2], bounds[1::2] = cells.starts, cells.ends
    bounds[-1] = cells.ends[-1] if count else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(stream.data)]
    return pa.Array.from_buffers(pa.binary(), 2 * count, buffers).take(rows.indices(cells))
