"""A sink without Spark, and what a runner would do for it: tables are copied when the source says that they
are ready, followed window by window, and copied anew where the source says that it cannot tell all.

Rows are kept by the lasting numbers of their columns, so a renamed column goes on. What was said on the way
is kept, too: whatever is not the source must have been said before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.sources.postgres.piped import MIRROR, WIDE, Piped
from truecut.errors import Retry, TruecutError
from truecut.journal.opening import journal_of
from truecut.model import change
from truecut.model.position import Position
from truecut.model.table import TableName, TableSchema
from truecut.sources.contract import Stopped, TableRead, Window, WindowLimits
from truecut.sources.postgres import source as source_module
from truecut.sources.postgres import unit_work
from truecut.sources.postgres.address import server_address, units_of

Content = Counter[tuple[Any, ...]]
SMALL = 24 << 10


@dataclass
class Held:
    """One table as it was copied and followed."""

    at: Position | None = None  # None: it is to be copied
    schema: TableSchema | None = None
    rows: dict[tuple[Any, ...], dict[int, Any]] = field(default_factory=dict)
    moved: dict[int, Any] = field(default_factory=dict)

    def content(self) -> tuple[tuple[str, ...], Content]:
        """The names of its columns, and its rows."""
        assert self.schema is not None
        ids = [column.id for column in self.schema.columns]
        found = Counter(tuple(row.get(id) for id in ids) for row in self.rows.values())
        return tuple(column.name for column in self.schema.columns), found


class Follower:
    """Of one pipeline, captured by `capture` when it has to be."""

    def __init__(self, piped: Piped, capture: Callable[[], None] | None = None) -> None:
        self.piped = piped
        self.capture = capture or piped.capture
        self.settings = piped.pipeline().source
        self.source = piped.source()
        self.identity = ""
        self.tables: dict[TableName, Held] = {table.name: Held() for table in self.settings.tables}
        self.said: list[str] = []

    def restart(self) -> None:
        """As a new process: only what is durable is known."""
        self.source = self.piped.source()

    # --- steps ---

    def look(self) -> Any:
        """An observation; behind a gap everything is copied anew."""
        seen = self.source.observe()
        if seen.identity != self.identity:
            if self.identity:
                self.said.append("gap")
            self.identity = seen.identity
            for held in self.tables.values():
                held.at = None
        return seen

    def units(self, table: TableName) -> Iterator[Callable[[], object]]:
        """What is left to read of a table's newest edition: the caller reads when it likes."""
        address, journal, ledger = (
            server_address(self.settings),
            journal_of(self.settings),
            units_of(self.settings),
        )
        edition = ledger.current(table)
        if edition is None or edition.void is not None or edition.settled.log != self.identity:
            edition = unit_work.begin(address, journal, table, ledger=ledger, unit_bytes=SMALL)
        for unit, record in enumerate(edition.records()):
            if record is None:
                yield unit_work.ReadUnit(address, journal, edition, unit).run

    def copy(self, table: TableName, at: Position) -> None:
        """As a seed at a place."""
        window = self.source.plan_seed([self.reading(table)], at=at, parallelism=2)
        if table in window.faults:
            self.said.append(window.faults[table].code)
            return
        held = self.tables[table]
        held.rows, held.schema = {}, window.schemas[table]
        for task in window.tasks:
            for name, batch in task.read():
                assert name == table
                for event in batch.to_pylist():
                    key, row = self._row(table, event)
                    assert key not in held.rows, "a seed has each key once"
                    held.rows[key] = row
        held.at = at

    def follow(self, limits: WindowLimits, upto: Position) -> bool:
        """One window of all tables that stream. Returns whether there may be more."""
        places = {
            name: (self.reading(name), held.at, MIRROR)
            for name, held in self.tables.items()
            if held.at is not None and held.at < upto
        }
        if not places:
            return False
        window = self.source.plan_window(places, upto_max=upto, limits=limits, parallelism=2)
        assert min(place for _, place, _ in places.values()) < window.upto <= upto or window.lost
        for name, fault in window.faults.items():
            self.said.append(fault.code)
            self.tables[name].at = None
        if not window.lost:
            for name in self._apply(window):
                self.tables[name].at = None
            for name in places:
                held = self.tables[name]
                if held.at is not None:
                    held.at = max(held.at, window.upto)
        return True

    def catch_up(self) -> Position:
        """Until every table is where the journal is; what has to be copied is copied."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, (self.said, self.tables)
            self.capture()
            end = self.stream_to(None, WIDE)
            waiting = [name for name, held in self.tables.items() if held.at is None]
            if not waiting:
                return end
            for name in waiting:
                self.bring(name)

    def stream_to(self, upto: Position | None, limits: WindowLimits) -> Position:
        """What streams, as far as the journal is, or to a place that it has."""
        seen = self.look()
        end = upto or seen.head
        assert end <= seen.head
        while self.follow(limits, end):
            pass
        return end

    def bring(self, name: TableName, units: int | None = None) -> None:
        """One step on the way to a copy: units are read, so many at most, or it is there."""
        seen = self.look()
        try:
            if name in seen.unready:
                for read in islice(self.units(name), units):
                    read()
            else:
                self.copy(name, seen.head)
        except TruecutError as error:
            if error.fault.retry is not Retry.RETRYABLE:
                raise

    def reading(self, table: TableName) -> TableRead:
        one = next(one for one in self.settings.tables if one.name == table)
        return TableRead(table, one.key, one.route_by)

    # --- rows ---

    def _row(self, table: TableName, event: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[int, Any]]:
        held = self.tables[table]
        assert held.schema is not None
        row = {column.id: event[column.name] for column in held.schema.columns}
        return tuple(event[name] for name in self.reading(table).key), row

    def _apply(self, window: Window) -> set[TableName]:
        """Returns the tables that stopped."""
        for name, schema in window.schemas.items():
            self._evolve(self.tables[name], schema)
        events: dict[TableName, list[dict[str, Any]]] = {}
        stopped: set[TableName] = set()
        for task in window.tasks:
            try:
                for name, batch in task.read():
                    events.setdefault(name, []).extend(batch.to_pylist())
            except Stopped as error:
                self.said += [fault.code for fault in error.faults.values()]
                stopped |= error.faults.keys()
        for name, found in events.items():
            if name not in stopped:
                for event in sorted(found, key=lambda one: (one[change.PLACE], one[change.SEQ])):
                    self._event(name, event)
        return stopped

    def _evolve(self, held: Held, schema: TableSchema) -> None:
        """Older rows have the value that a column began with."""
        known = {column.id for column in held.schema.columns} if held.schema is not None else set()
        for column in schema.columns:
            if column.id not in known and column.initial is not None:
                text = column.initial.strip("'")
                for row in held.rows.values():
                    row[column.id] = int(text) if column.type.endswith(("INTEGER", "BIGINT")) else text
        held.schema = schema

    def _event(self, table: TableName, event: Mapping[str, Any]) -> None:
        held, op = self.tables[table], event[change.OP]
        if op == change.TRUNCATE:
            held.rows.clear()
            return
        key, row = self._row(table, event)
        if op == change.DELETE:
            held.moved = held.rows.pop(key, {})
            return
        assert held.schema is not None
        assert (key in held.rows) == (op == change.UPDATE)
        before = held.rows.get(key) or held.moved
        absent = set(event.get(change.UNCHANGED) or ())
        for column in held.schema.columns:
            if column.name in absent:
                row[column.id] = before[column.id]
        held.rows[key] = row


@pytest.fixture
def looking_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the catalog, whenever somebody looks at all."""
    monkeypatch.setattr(source_module, "CATALOG_S", 0.0)
