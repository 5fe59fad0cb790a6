"""Changes for tests, in plain Python values, and as rows/1 records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from truecut.journal.decoding import Changes
from truecut.journal.record import Record
from truecut.journal.rows import record_of, rows_schema
from truecut.model.change import (
    AFTER,
    BEFORE,
    COMMITTED_AT,
    DELETE,
    FULL_IMAGE,
    IMAGE,
    INSERT,
    NO_IMAGE,
    OP,
    SEQ,
    TRANSACTION,
    UNCHANGED,
    UPDATE,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    op: int
    seq: int
    before: Row | None = None
    after: Row | None = None
    image: int = NO_IMAGE
    unchanged: Sequence[str] = ()
    transaction: str | None = "t"
    committed_at: datetime | None = NOON


def insert(seq: int, row: Row, transaction: str = "t") -> Change:
    return Change(INSERT, seq, after=row, transaction=transaction)


def update(seq: int, before: Row | None, after: Row, unchanged: Sequence[str] = ()) -> Change:
    return Change(UPDATE, seq, before, after, FULL_IMAGE if before else NO_IMAGE, unchanged)


def delete(seq: int, before: Row, image: int = FULL_IMAGE) -> Change:
    return Change(DELETE, seq, before, image=image)


@dataclass(frozen=True)
class Table:
    name: str
    columns: pa.Schema
    key: tuple[str, ...] = ("id",)

    def changes(self, *changes: Change) -> Changes:
        names = self.columns.names
        rows = [
            {
                OP: one.op,
                SEQ: one.seq,
                TRANSACTION: one.transaction,
                COMMITTED_AT: one.committed_at,
                IMAGE: one.image,
                UNCHANGED: [names.index(name) for name in one.unchanged] or None,
                BEFORE: one.before,
                AFTER: one.after,
            }
            for one in changes
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=rows_schema(self.columns))
        return Changes(self.name, self.key, batch)

    def record(self, *changes: Change, **head: Any) -> Record:
        return record_of([self.changes(*changes)], **head)


PEOPLE = Table("main.people", pa.schema([("id", pa.int64()), ("name", pa.string())]))
ORDERS = Table("main.orders", pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))]))
