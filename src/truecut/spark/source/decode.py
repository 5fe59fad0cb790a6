"""From records of the journal to changes, a run of records at a time.

A run is a few records that follow each other and are written in the same codec: enough to make small records
cheap, and never more than a bound, unless a single record is larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from truecut.journal import faults
from truecut.journal.codecs import CODECS
from truecut.journal.contract import Entry
from truecut.journal.decoding import Changes, Undecodable, table_hash
from truecut.journal.record import Kind
from truecut.model.position import Position

RUN_BYTES_MAX = 4 << 20
RUN_ROWS_MAX = 10_000
RUN_RECORDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Run:
    """Changes, and the positions of the records that they number."""

    codec: str
    positions: Sequence[Position]
    changes: Sequence[Changes]


def decode(entries: Iterable[Entry], *, table: str | None = None) -> Iterator[Run]:
    """The changes of these records; those of one table, if it is named."""
    for run in _runs(one for one in entries if _wanted(one, table)):
        changes = _decoded(run)
        if table is not None:
            changes = [one for one in changes if one.table == table]
        yield Run(run[0].record.codec, [one.position for one in run], changes)


def _wanted(entry: Entry, table: str | None) -> bool:
    record = entry.record
    if record.kind is Kind.UNIT:
        raise faults.unreadable_kind("unit of a backfill", entry.position)
    if record.kind is not Kind.CHANGES:
        return False  # markers and schemas are no changes
    if table is None or not record.schemas or record.codec not in CODECS:
        return True
    return table_hash(table) in (id >> 32 for id in record.schemas)


def _runs(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    run: list[Entry] = []
    size = rows = 0
    for entry in entries:
        record = entry.record
        size += len(record.payload)
        rows += record.rows
        full = size > RUN_BYTES_MAX or rows > RUN_ROWS_MAX or len(run) >= RUN_RECORDS_MAX
        if run and (full or run[-1].record.codec != record.codec):
            yield run
            run, size, rows = [], len(record.payload), record.rows
        run.append(entry)
    if run:
        yield run


def _decoded(run: Sequence[Entry]) -> Sequence[Changes]:
    codec = run[0].record.codec
    decoder = CODECS.get(codec)
    if decoder is None:
        raise faults.unknown_codec(codec, run[0].position)
    try:
        return decoder([entry.record.payload for entry in run])
    except Undecodable as error:
        raise faults.undecodable(codec, run[error.index].position, error.reason) from None
