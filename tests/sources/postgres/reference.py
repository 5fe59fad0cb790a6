"""A second reader of pgoutput, slow and plain, from the protocol's documentation. It shares nothing with the
decoder but the values that describe relations, and knows only text columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truecut.sources.postgres.relation import Relation

Row = dict[str, str | None]


class Broken(Exception):
    """Not a stream of messages."""


class NotText(Exception):
    """A value that is not UTF-8."""


@dataclass(frozen=True)
class Event:
    """A change, with everything that is known of it."""

    op: str
    record: int
    seq: int
    xid: int | None
    place: int
    committed_at_us: int | None
    image: str
    unchanged: tuple[int, ...]
    before: Row | None
    after: Row | None


@dataclass
class Reading:
    """What was read: events of each table (by name and columns), stops, messages."""

    tables: dict[str, list[Event]] = field(default_factory=dict)
    stops: dict[str, int] = field(default_factory=dict)
    messages: list[tuple[int, int, str, bytes]] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    transactions: list[tuple[int, int, int, int]] = field(default_factory=list)


class _Cursor:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.raw):
            raise Broken("short")
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, count: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(count), "big", signed=signed)

    def text(self) -> str:
        end = self.raw.find(b"\0", self.at)
        if end < 0:
            raise Broken("text")
        try:
            found = self.take(end - self.at).decode()
        except UnicodeDecodeError:
            raise Broken("text") from None
        self.at += 1
        return found

    def tuple(self, count: int) -> list[bytes | str]:
        if self.number(2) != count:
            raise Broken("columns")
        return [self._cell() for _ in range(count)]

    def _cell(self) -> bytes | str:
        kind = self.take(1)
        if kind == b"t":
            return self.take(self.number(4))
        if kind in (b"n", b"u"):
            return kind.decode()
        raise Broken("kind")

    def end(self) -> None:
        if self.at != len(self.raw):
            raise Broken("long")


class Reader:
    """Reads records one after another."""

    def __init__(self, relations: Mapping[int, Sequence[Relation]]) -> None:
        self.versions = relations
        self.current: dict[int, Relation | None] = {oid: versions[0] for oid, versions in relations.items()}
        self.found = Reading()
        self.begun: tuple[int, int, int] | None = None  # commit LSN, time, xid
        self.seq = 0
        self.record = 0

    def read(self, records: Sequence[Sequence[bytes]]) -> Reading:
        """All of them."""
        for number, messages in enumerate(records):
            self.record = number
            for raw in messages:
                self._message(raw)
        return self.found

    def _message(self, raw: bytes) -> None:
        cursor = _Cursor(raw)
        kind = cursor.take(1)
        if kind in (b"I", b"U", b"D", b"T", b"C", b"O") and self.begun is None:
            raise Broken("outside")
        handlers = {
            b"B": self._begin,
            b"C": self._commit,
            b"R": self._relation,
            b"M": self._logical,
            b"T": self._truncate,
            b"I": self._insert,
            b"U": self._update,
            b"D": self._delete,
        }
        if kind in handlers:
            handlers[kind](cursor)
        elif kind not in (b"Y", b"O") or len(raw) < (7 if kind == b"Y" else 10):
            raise Broken("kind")

    def _begin(self, cursor: _Cursor) -> None:
        if self.begun is not None:
            raise Broken("begin")
        self.begun = cursor.number(8), cursor.number(8, signed=True), cursor.number(4)
        self.seq = 0
        cursor.end()

    def _commit(self, cursor: _Cursor) -> None:
        cursor.take(1)
        lsn, end, at = cursor.number(8), cursor.number(8), cursor.number(8, signed=True)
        cursor.end()
        assert self.begun is not None
        if (lsn, at) != self.begun[:2]:
            raise Broken("commit")
        self.found.transactions.append((self.begun[2], lsn, end, at + 946_684_800_000_000))
        self.begun = None

    def _relation(self, cursor: _Cursor) -> None:
        oid, schema, table = cursor.number(4), cursor.text(), cursor.text()
        identity = cursor.take(1).decode("latin-1")
        columns = []
        for _ in range(cursor.number(2)):
            cursor.take(1)
            columns.append((cursor.text(), cursor.number(4), cursor.number(4, signed=True)))
        cursor.end()
        if identity not in "dnif":
            raise Broken("identity")
        shape = (schema or "pg_catalog", table, identity, columns)
        for version in self.versions.get(oid, ()):
            known = [(column.name, column.type_oid, column.typmod) for column in version.columns]
            if shape == (version.name.schema, version.name.table, version.replica_identity, known):
                self.current[oid] = version
                return
        if oid in self.current:
            self.current[oid] = None

    def _logical(self, cursor: _Cursor) -> None:
        flags, lsn, prefix = cursor.number(1), cursor.number(8), cursor.text()
        content = cursor.take(cursor.number(4))
        cursor.end()
        if flags > 1 or (flags and self.begun is None):
            raise Broken("message")
        place, seq = (self.begun[0], self.seq) if flags and self.begun else (lsn, 0)
        self.found.messages.append((place, seq, prefix, content))
        self.seq += self.begun is not None

    def _truncate(self, cursor: _Cursor) -> None:
        count = cursor.number(4)
        cursor.take(1)
        if len(cursor.raw) != 6 + 4 * count:
            raise Broken("truncate")
        for _ in range(count):
            self._emit(cursor.number(4), [("truncate", "none", None, None, ())])
            self.seq += 1

    def _insert(self, cursor: _Cursor) -> None:
        self._change(cursor, "insert")

    def _update(self, cursor: _Cursor) -> None:
        self._change(cursor, "update")

    def _delete(self, cursor: _Cursor) -> None:
        self._change(cursor, "delete")

    def _change(self, cursor: _Cursor, op: str) -> None:
        if len(cursor.raw) < 8:
            raise Broken("short")
        oid = cursor.number(4)
        relation = self.current.get(oid)
        if relation is not None and str(relation.name) not in self.found.stops:
            self._row(cursor, op, oid, relation)
        elif oid in self.current:
            self._emit(oid, [])
        else:
            self.found.unknown.add(oid)
        self.seq += 2

    def _row(self, cursor: _Cursor, op: str, oid: int, relation: Relation) -> None:
        count = len(relation.columns)
        mark = cursor.take(1)
        old: list[bytes | str] | None = None
        new: list[bytes | str] | None = None
        image = {b"K": "key", b"O": "full"}.get(mark, "none")
        if mark in (b"K", b"O") and op != "insert":
            old = cursor.tuple(count)
            if "u" in old:
                raise Broken("old")
            mark = cursor.take(1) if op == "update" else b""
        if op != "delete":
            if mark != b"N":
                raise Broken("mark")
            new = cursor.tuple(count)
        elif old is None:
            raise Broken("mark")
        cursor.end()
        if op == "insert" and new is not None and "u" in new:
            raise Broken("insert")
        self._emit_row(op, oid, relation, image, old, new)

    def _emit_row(
        self,
        op: str,
        oid: int,
        relation: Relation,
        image: str,
        old: list[bytes | str] | None,
        new: list[bytes | str] | None,
    ) -> None:
        if old is not None and new is not None:
            new = [b if a == "u" and isinstance(b, bytes) else a for a, b in zip(new, old, strict=True)]
        keys = [n for n, column in enumerate(relation.columns) if column.name in relation.key]
        unchanged = tuple(n for n, cell in enumerate(new or ()) if cell == "u")
        try:
            before, after = _texts(relation, old), _texts(relation, new)
        except NotText:
            self._stop(relation)
            return
        moved = old is not None and new is not None and any(_differ(old[n], new[n]) for n in keys)
        if moved:
            events: list[Any] = [
                ("delete", image, before, None, ()),
                ("insert", "none", None, after, unchanged),
            ]
        else:
            events = [(op, image, before, after, unchanged)]
        self._emit(oid, events)

    def _emit(
        self, oid: int, events: Sequence[tuple[str, str, Row | None, Row | None, tuple[int, ...]]]
    ) -> None:
        assert self.begun is not None
        if oid not in self.current:
            self.found.unknown.add(oid)
            return
        relation = self.current[oid]
        if relation is None:
            self._stop(self.versions[oid][0])
            return
        if str(relation.name) in self.found.stops:
            return
        lsn, at, xid = self.begun
        for n, (op, image, before, after, unchanged) in enumerate(events):
            event = Event(
                op,
                self.record,
                self.seq + n,
                xid,
                lsn,
                at + 946_684_800_000_000,
                image,
                unchanged,
                before,
                after,
            )
            self.found.tables.setdefault(str(relation.name), []).append(event)

    def _stop(self, relation: Relation) -> None:
        """Nothing of this transaction, nor of any that follow."""
        assert self.begun is not None
        name, place = str(relation.name), self.begun[0]
        if name not in self.found.stops:
            self.found.stops[name] = place


def _differ(old: bytes | str, new: bytes | str) -> bool:
    return isinstance(old, bytes) and isinstance(new, bytes) and old != new


def _texts(relation: Relation, cells: list[bytes | str] | None) -> Row | None:
    if cells is None:
        return None
    try:
        return {
            column.name: cell.decode() if isinstance(cell, bytes) else None
            for column, cell in zip(relation.columns, cells, strict=True)
        }
    except UnicodeDecodeError:
        raise NotText from None
