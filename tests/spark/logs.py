"""Logs for the tests of the data source: random transactions, and the rows that Spark has to show."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import Row

from tests.journal.changes import ORDERS, PEOPLE, Change, Table, delete, insert, update
from truecut.journal.local import LocalJournal
from truecut.journal.record import Record
from truecut.journal.rows import record_of
from truecut.model.change import EVENT_NAMES, FULL_IMAGE, KEY_IMAGE
from truecut.model.position import Position

Shown = tuple[Any, ...]


@dataclass
class Log:
    """A log in a folder, its writer, and what is in it as plain values."""

    folder: Path
    seed: int = 1
    segment_bytes_max: int = 20_000
    shown: list[Shown] = field(default_factory=list)
    transactions: list[list[Shown]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = LocalJournal(self.folder, segment_bytes_max=self.segment_bytes_max)
        self._random = random.Random(self.seed)
        self._count = 0

    def append_transactions(self, count: int) -> None:
        """Random ones, of one to three records each; a line now and then."""
        for _ in range(count):
            self._count += 1
            if self._random.random() < 0.2:
                self.append_line(f'line {self._count}: "é"')
            else:
                self.append_transaction(self._random.randint(1, 3))

    def append_line(self, text: str) -> None:
        position = self.journal.append([Record(text.encode())])
        shown = (str(position), 0, None, None, "message", None, None, text)
        self._show([shown])

    def append_transaction(self, parts: int, rows_max: int = 4) -> None:
        """Of two tables; each record has changes of both, one after another."""
        name = f"x{self._count}"
        records, changes = [], []
        for part in range(parts):
            mixed = [
                (self._random.choice([PEOPLE, ORDERS]), seq)
                for seq in range(self._random.randint(1, rows_max))
            ]
            made = [(table, self._change(table, seq, name)) for table, seq in mixed]
            tables = [
                table.changes(*(one for other, one in made if other is table)) for table in (PEOPLE, ORDERS)
            ]
            records.append(record_of(tables, part=part, last=part == parts - 1))
            changes.append(made)
        last = self.journal.append(records)
        shown = []
        for number, made in enumerate(changes, start=last.place - parts + 1):
            position = str(Position(last.generation, number))
            shown += [show(position, table, one) for table, one in made]
        self._show(shown)

    def _change(self, table: Table, seq: int, name: str) -> Change:
        chance = self._random
        row = self._row(table, chance.randint(1, 50))
        kind = chance.randrange(5)
        made = [
            insert(seq, row),
            update(seq, self._row(table, row["id"]), row),
            update(seq, None, {"id": row["id"]}, unchanged=[table.columns.names[1]]),
            delete(seq, row),
            delete(seq, {"id": row["id"]}, image=KEY_IMAGE),
        ][kind]
        return Change(
            made.op, made.seq, made.before, made.after, made.image, made.unchanged, transaction=name
        )

    def _row(self, table: Table, key: int) -> dict[str, Any]:
        chance = self._random
        if table is PEOPLE:
            return {"id": key, "name": chance.choice([None, "Ann", '\\ "Bób"\n', ""])}
        return {"id": key, "price": chance.choice([None, Decimal("0.10"), Decimal("-99999999.99")])}

    def _show(self, shown: list[Shown]) -> None:
        self.shown += shown
        self.transactions.append(shown)


def show(position: str, table: Table, one: Change) -> Shown:
    """What the data source shows for a change, by the words of its documentation."""
    key = {name: (one.after or one.before or {})[name] for name in table.key}
    before = one.before if one.image == FULL_IMAGE else None
    after = None if one.after is None else {k: v for k, v in one.after.items() if k not in one.unchanged}
    return position, one.seq, one.transaction, table.name, EVENT_NAMES[one.op], key, before, after


def plain(rows: Iterable[Row]) -> list[Shown]:
    """The rows that Spark gave, with their JSON read by somebody else's parser."""
    return [
        (r.position, r.seq, r.transaction, r.table, r.op, _read(r.key), _read(r.before), _read(r.after))
        for r in rows
    ]


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_float=Decimal)
