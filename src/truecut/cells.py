"""Rows of a COPY in binary form, as one Arrow array of raw bytes for each column.

    number of columns (u16) | for each: length (i32), -1 for NULL, and the bytes

The server sends one message for each row, the first behind the file's head, and a last one that says so. What
the bytes mean is for whoever asked for the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecut.errors import require

_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # the signature, no flags, no extension
_END = b"\xff\xff"
_ROWS_MAX, _BYTES_MAX = 16_384, 8 << 20  # of a batch

Ints = npt.NDArray[np.int64]


def batches(messages: Iterable[bytes | bytearray | memoryview], *, columns: int) -> Iterator[list[pa.Array]]:
    """The columns of so many rows at a time that memory is bounded. Takes the messages to their end: the
    session is free afterwards."""
    rows: list[bytes] = []
    size = 0
    ended = False
    for number, message in enumerate(messages):
        row = bytes(message)
        if number == 0:
            require(row.startswith(_HEAD), "a copy begins with its head")
            row = row[len(_HEAD) :]
        if row == _END:
            ended = True
            continue
        rows.append(row)
        size += len(row)
        if len(rows) >= _ROWS_MAX or size >= _BYTES_MAX:
            yield _columns(rows, columns)
            rows, size = [], 0
    require(ended, "a copy ends with its end")
    if rows:
        yield _columns(rows, columns)


def _columns(rows: Sequence[bytes], count: int) -> list[pa.Array]:
    whole = b"".join(rows)
    data = np.frombuffer(whole, np.uint8)
    limits = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
    at = np.concatenate([[0], limits[:-1]]).astype(np.int64)
    require(bool((_number(data, at, 2) == count).all()), "a row has the columns that were asked for")
    at = at + 2
    found = []
    for _ in range(count):
        texts, at = _column(whole, data, at)
        found.append(texts)
    require(bool((at == limits).all()), "a row ends where its message does")
    return found


def _column(whole: bytes, data: npt.NDArray[np.uint8], at: Ints) -> tuple[pa.Array, Ints]:
    """Cells and the gaps between them, one after the other, are an Arrow array over the very bytes."""
    lengths = _number(data, at, 4).astype(np.uint32).astype(np.int32)
    starts = at + 4
    ends = starts + np.maximum(lengths, 0)
    bounds = np.empty(2 * len(at) + 1, np.int32)
    bounds[0:-1:2], bounds[1::2] = starts, ends
    bounds[-1] = ends[-1]
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(whole)]
    cells = pa.Array.from_buffers(pa.binary(), 2 * len(at), buffers)
    numbers = np.arange(0, 2 * len(at), 2, dtype=np.int32)
    return cells.take(pa.array(numbers, mask=lengths < 0)), ends


def _number(data: npt.NDArray[np.uint8], at: Ints, width: int) -> Ints:
    """Big-endian unsigned integers of so many bytes."""
    require(bool((at + width <= len(data)).all()), "a row is whole")
    view: npt.NDArray[np.void] = np.ndarray((max(0, len(data) - width + 1),), f"V{width}", data, strides=(1,))
    return view[at].view(f">u{width}").astype(np.int64)
