"""A sink in memory that keeps the contract: one step that checks token and cursor, writes data and cursor.

It is strict where a lake would hold the table: an insert of a live key, an update of a missing one means that
somebody delivered what was not lacking. It remembers who took it over, for the law of the fence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.runtime.simulation.clockwork import Broken
from tests.runtime.simulation.source import Event
from truecut.errors import Fault, Retry
from truecut.model.cursor import CopyState, Cursor, Hold, Version
from truecut.model.order import Counts, Order, Receipt, TableOrder
from truecut.model.position import Position
from truecut.model.table import Mode

ELSEWHERE = Fault("TC4012", "it stands elsewhere", "None needed.", Retry.RETRYABLE)
FENCED = Fault("TC4010", "owned by another token", "None needed.", Retry.FATAL)


@dataclass
class Content:
    """What one table holds. `log` is an append table's rows since it was last seeded, at `base`."""

    mode: Mode
    rows: dict[int, int] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    base: int = 0  # of `identity`
    identity: str = ""

    def seed(self, events: Sequence[Event], at: int, identity: str) -> None:
        """A mirror is replaced, an append table gets read rows."""
        self.rows = {event.key: event.value for event in events}
        self.log = list(events)
        self.base, self.identity = at, identity

    def apply(self, table: str, events: Sequence[Event]) -> None:
        """In the order of the source's commits."""
        self.log += events
        for event in events if self.mode == "mirror" else ():
            if (event.kind == "insert") == (event.key in self.rows):
                raise Broken(f"Content: {table} gets {event.kind} of a key that is not so at {event.place}")
            if event.kind == "delete":
                del self.rows[event.key]
            else:
                self.rows[event.key] = event.value


@dataclass
class Sink:
    """One destination."""

    name: str
    route: str | None
    cursor: Cursor = field(default_factory=lambda: Cursor(None, 0))
    contents: dict[str, Content] = field(default_factory=dict)
    owner: str = ""

    def recover(self, runner: str, *, epoch: int, token: int) -> Receipt:
        """Raise the fence, tell the cursor."""
        if token < self.cursor.token:
            newer = self.cursor.token
            return Receipt(self.name, epoch, "failed", fault=FENCED, fenced_by=newer)
        if token == self.cursor.token and self.owner != runner:
            raise Broken(f"TokenIsOnes: {runner} and {self.owner} both own {self.name}")
        self.owner = runner
        self.cursor = replace(self.cursor, token=token)
        return Receipt(self.name, epoch, "applied", cursor=self.cursor)

    def apply(
        self, order: Order, packets: Mapping[str, Sequence[Event]], stops: Mapping[str, Hold]
    ) -> Receipt:
        """One order, all or nothing. `stops`: tables that turn out not to fit."""
        cursor = self.cursor
        if order.token != cursor.token:
            return Receipt(self.name, order.epoch, "failed", fault=FENCED, fenced_by=cursor.token)
        versions = {table: self._version(table) for table in order.tables}
        if any(version != order.tables[table].expected for table, version in versions.items()):
            if all(wanted.is_done(versions[table]) for table, wanted in order.tables.items()):
                return Receipt(self.name, order.epoch, "already", cursor=cursor)
            return Receipt(self.name, order.epoch, "failed", fault=ELSEWHERE)
        copies = dict(cursor.copies)
        for table, wanted in order.tables.items():
            copies[table] = self._table(order, table, wanted, packets.get(table, ()), stops.get(table))
        self.cursor = Cursor(_position(cursor, order), cursor.token, copies)
        counts = {table: Counts(len(rows)) for table, rows in packets.items()}
        return Receipt(self.name, order.epoch, "applied", self.cursor, counts)

    def _table(
        self, order: Order, table: str, wanted: TableOrder, events: Sequence[Event], stop: Hold | None
    ) -> CopyState:
        identity = order.source_identity
        copy = self.cursor.copies.get(table) or CopyState(wanted.mode, "", (), source_identity=identity)
        if wanted.kind in ("hold", "persist"):
            return _at(replace(copy, hold=wanted.hold), wanted.leaves)
        copy = replace(copy, fingerprint=wanted.fingerprint)
        if stop is not None:
            return _at(replace(copy, hold=stop), wanted.stopped(stop.code))
        content = self.contents.setdefault(table, Content(wanted.mode))
        if wanted.kind == "replace":
            content.seed(events, wanted.leaves.at.place, identity)
        else:
            content.apply(table, events)
        assert wanted.schema is not None
        columns = wanted.schema.columns
        return _at(replace(copy, hold=None, columns=columns, source_identity=identity), wanted.leaves)

    def _version(self, table: str) -> Version | None:
        copy = self.cursor.copies.get(table)
        return None if copy is None else copy.version

    def place(self, table: str) -> Position | None:
        """Where the cursor says that the copy stands; None: nothing was ever written."""
        copy = self.cursor.copies.get(table)
        return None if copy is None or not copy.columns else copy.at

    def holds(self) -> dict[str, Hold]:
        """Which tables say that they are stopped."""
        return {table: copy.hold for table, copy in self.cursor.copies.items() if copy.hold is not None}


def _at(copy: CopyState, version: Version) -> CopyState:
    return replace(copy, at=version.at, edition=version.edition, resumed=version.resumed)


def _position(before: Cursor, order: Order) -> Position | None:
    """It follows what streams; a seed's place counts while nothing else was ever seeded."""
    alone = not any(copy.edition for table, copy in before.copies.items() if table not in order.tables)
    places = [wanted.leaves.at for wanted in order.tables.values() if alone or wanted.kind != "replace"]
    return max([place for place in (before.position, *places) if place is not None], default=None)
