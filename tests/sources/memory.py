"""A source in memory that keeps the contract, and faults that break it: what the laws are tried on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from truecut.errors import Fault, TruecutError
from truecut.model.change import COMMITTED_AT, CONTROL_FIELDS, DELETE, INSERT, OP, PLACE, READ, SEQ, UPDATE
from truecut.model.position import Position
from truecut.model.table import Column, Mode, TableName, TableSchema
from truecut.sources.contract import Observation, Rows, TableRead, Window, WindowLimits
from truecut.testing.sources import BEFORE, TABLES

Writes = Mapping[str, Mapping[int, str | None]]
Change = dict[str, Any]
SCHEMA = pa.schema([*CONTROL_FIELDS, pa.field("id", pa.int32()), pa.field("v", pa.string())])
BACKWARDS = pa.schema(list(SCHEMA)[::-1])
COLUMNS = TableSchema("1", (Column(1, "id", "INTEGER"), Column(2, "v", "VARCHAR")))
_readings = itertools.count(1)


@dataclass(frozen=True)
class Piece:
    """Rows of both tables, as they are to be given."""

    changes: tuple[tuple[TableName, Change], ...]
    fault: str = ""

    @property
    def tables(self) -> tuple[TableName, ...]:
        return tuple(sorted({name for name, _ in self.changes}))

    def read(self) -> Iterator[Rows]:
        more = next(_readings) if self.fault == "another seq each time" else 0
        schema = BACKWARDS if self.fault == "control columns last" else SCHEMA
        for name, change in self.changes:
            told = {**change, SEQ: change[SEQ] + more}
            yield Rows(name, pa.RecordBatch.from_pylist([told], schema=schema))


@dataclass(frozen=True)
class MemorySource:
    """Transactions, and what each left. Place 1 is the beginning."""

    transactions: list[Writes]
    fault: str = ""  # what is wrong with it

    def observe(self) -> Observation:
        late = self.fault == "the head comes late" and len(self.transactions) > 1
        return Observation("memory", Position(1, 1), Position(1, 1 + len(self.transactions) - late), 0)

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        if table.name.table not in TABLES:
            raise TruecutError.of(_missing(table.name))
        return COLUMNS

    def plan_window(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: Position,
        limits: WindowLimits,
        parallelism: int,
    ) -> Window:
        after = min(place.place for _, place, _ in tables.values())
        upto = upto_max.place if limits.rows_max > 1 else after + 1
        if self.fault == "limits ignored":
            upto = upto_max.place
        first, last = after + (self.fault != "after inclusive"), upto - (self.fault == "upto exclusive")
        changes = [one for place in range(max(2, first), last + 1) for one in self._changes(place)]
        return self._window(list(tables), Position(1, upto), changes)

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        place = len(self.transactions) + 1 if self.fault == "a seed of now" else at.place
        content = self._content(place - (self.fault == "a seed of the place before"))
        rows = [(table, key, value) for table in TABLES for key, value in content[table].items()]
        changes = [(name, _change(READ, at.place, seq, key, v)) for seq, (name, key, v) in enumerate(rows)]
        return self._window([table.name for table in tables], at, changes)

    def _window(
        self, tables: Sequence[TableName], upto: Position, changes: Sequence[tuple[str, Change]]
    ) -> Window:
        there = {name.table: name for name in tables if name.table in TABLES}
        given = tuple((there[name], change) for name, change in changes if name in there)
        missing = () if self.fault == "nobody is missed" else tables
        faults = {name: _missing(name) for name in missing if name.table not in TABLES}
        schemas = dict.fromkeys(there.values(), COLUMNS)
        return Window(upto, 0, [Piece(given, self.fault)] if given else [], schemas, len(given), faults)

    def _content(self, place: int) -> dict[str, dict[int, str]]:
        content = {table: dict(BEFORE[table]) for table in TABLES}
        for writes in self.transactions[: max(0, place - 1)]:
            for table, values in writes.items():
                for key, value in values.items():
                    content[table].pop(key, None)
                    content[table] |= {} if value is None else {key: value}
        return content

    def _changes(self, place: int) -> Iterator[tuple[str, Change]]:
        before, after = self._content(place - 1), self._content(place)
        seq = 0
        for table, values in sorted(self.transactions[place - 2].items()):
            seq = 0 if self.fault == "seq of each table" else seq
            for key in values:
                old, new = before[table].get(key), after[table].get(key)
                op = DELETE if new is None else INSERT if old is None else UPDATE
                if old == new or (op == DELETE and self.fault == "a delete is dropped"):
                    continue
                yield table, _change(op, place, seq, key, old if new is None else new)
                seq += 1


@dataclass(frozen=True)
class MemoryBench:
    """A source of its own."""

    name: str = "memory"
    transactions: list[Writes] = field(default_factory=list)
    fault: str = ""

    def source(self) -> MemorySource:
        return MemorySource(self.transactions, self.fault)

    def read(self, table: str) -> TableRead:
        return TableRead(TableName("main", table), ("id",), None)

    def commit(self, writes: Writes) -> int:
        self.transactions.append(writes)
        return 1 + len(self.transactions)


def _change(op: int, place: int, seq: int, key: int, value: str | None) -> Change:
    return {OP: op, PLACE: place, SEQ: seq, COMMITTED_AT: None, "id": key, "v": value}


def _missing(name: TableName) -> Fault:
    return Fault("TC2002", f"{name} does not exist", "Create it.")
