"""Packets: what moves through a wave instead of rows.

A packet is many changes of one table for one sink. Between tasks it is one row of a Spark DataFrame, its
rows as Arrow IPC bytes: the JVM shuffles packets and never looks inside.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from truecut.certificate.unit_evidence import Pieces
from truecut.errors import Fault
from truecut.sinks.parts import Part

# Order within a sink and table: what forbids or replaces rows comes before them.
ABORT, MARKER, FAULT, ROWS, NOTE, PART, COUNTS, UNITS = 0, 1, 2, 3, 4, 5, 6, 7
EVERYBODYS = (COUNTS, UNITS)

DDL = "slot int, sink int, table int, kind int, part long, payload binary"
SCHEMA = pa.schema(
    [
        pa.field("slot", pa.int32()),
        pa.field("sink", pa.int32()),
        pa.field("table", pa.int32()),
        pa.field("kind", pa.int32()),
        pa.field("part", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
ORDER = ("sink", "table", "kind", "part")
BATCH_BYTES_MAX = 4 << 20
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")

Routed: TypeAlias = dict[tuple[int, int], int]  # (sink, table) → rows
Content: TypeAlias = pa.Table | Fault | Part | Routed | Pieces | int | None


@dataclass(frozen=True, slots=True)
class Parcel:
    """A packet and where it goes: indexes of the wave's orders and tables, -1 where there is none. An ABORT
    comes before all else of its sink: the table that could not be read is its `part`.

    `content`: the rows (ROWS), what went wrong (ABORT, FAULT), a number of rows that nobody wanted (NOTE),
    what the task that read has left at the sink instead of rows (PART; its piece is its `part`).
    COUNTS are nobody's and everybody's: how many rows a piece (`part`) had for whom, told to every task that
    applies, before anything else. So are UNITS: what a piece has left as evidence of how tables were read.
    """

    sink: int
    table: int
    kind: int
    part: int
    content: Content = None

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Packets are applied in this order."""
        return self.sink, self.table, self.kind, self.part


def to_batches(packets: Iterable[Parcel], slots: int) -> Iterator[pa.RecordBatch]:
    """Small packets travel together, large ones alone. Sinks take the slots in turn: an even spread."""
    gathered: list[dict[str, object]] = []
    size = 0
    for one, payload in _encoded(packets):
        if gathered and size + len(payload) > BATCH_BYTES_MAX:
            yield pa.RecordBatch.from_pylist(gathered, schema=SCHEMA)
            gathered, size = [], 0
        addressed = dict(zip(ORDER, one.place, strict=True))
        to = range(slots) if one.kind in EVERYBODYS else (max(0, one.sink) % slots,)
        gathered += [{"slot": slot, **addressed, "payload": payload} for slot in to]
        size += len(payload) * len(to)
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, schema=SCHEMA)


def from_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """The packets of a task's input, one at a time."""
    for batch in batches:
        columns = [batch.column(name) for name in (*ORDER, "payload")]
        for i in range(batch.num_rows):
            sink, table, kind, part, payload = (column[i].as_py() for column in columns)
            yield Parcel(sink, table, kind, part, _decode(kind, payload))


def _encoded(packets: Iterable[Parcel]) -> Iterator[tuple[Parcel, bytes]]:
    """Sinks that get the very same rows, one after another, share one encoding."""
    last: tuple[Content, bytes] = None, _encode(None)
    for one in packets:
        if one.content is not last[0]:
            last = one.content, _encode(one.content)
        yield one, last[1]


def _encode(content: Content) -> bytes:
    """Rows as Arrow IPC with zstd inside: a third of the bytes, and faster through the shuffle."""
    if not isinstance(content, pa.Table):
        return pickle.dumps(content)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, content.schema, options=_OPTIONS) as writer:
        writer.write_table(content)
    data: bytes = out.getvalue().to_pybytes()
    return data


def _decode(kind: int, payload: bytes) -> Content:
    if kind != ROWS:
        content: Content = pickle.loads(payload)
        return content
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_all()
