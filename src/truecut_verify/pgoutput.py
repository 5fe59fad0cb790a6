"""A PostgreSQL's log as its plugin pgoutput tells it (protocol 1, values as texts), a message at a time.

Written from PostgreSQL's manual ("Logical Replication Message Formats"), for the eye and not for speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from truecut_verify.verdict import Unknown

ABSENT = object()  # the value of a column that did not change, and was not sent
Values = dict[str, object]  # by column: a text as bytes, None for NULL, or ABSENT
INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the log announces it: its columns, each with its type's oid."""

    table: str
    columns: tuple[tuple[str, int], ...]
    identity: frozenset[str]  # the columns that tell its rows apart


@dataclass(frozen=True, slots=True)
class Change:
    """One message about one table. `place` is where its transaction committed."""

    place: int
    kind: str
    relation: Relation
    old: Values | None = None
    old_is_key: bool = False
    new: Values | None = None


def changes(messages: Iterable[bytes]) -> Iterator[Change]:
    """In the order of the log: whole transactions, as they committed."""
    try:
        yield from _changes(messages)
    except (LookupError, ValueError) as error:
        raise Unknown("the log holds a message that cannot be read") from error


def _changes(messages: Iterable[bytes]) -> Iterator[Change]:
    place, relations = 0, dict[int, Relation]()
    for message in messages:
        reading = _Reading(message)
        match reading.take(1):
            case b"B":
                place = reading.number(8)
            case b"R":
                oid = reading.number(4)
                relations[oid] = _relation(reading)
            case b"I" | b"U" | b"D" as kind:
                relation = relations[reading.number(4)]
                yield _row_change(place, kind, relation, reading)
            case b"T":
                count = reading.number(4)
                reading.take(1)
                for _ in range(count):
                    yield Change(place, TRUNCATE, relations[reading.number(4)])
            case b"C" | b"O" | b"Y" | b"M":
                pass
            case _:
                raise Unknown("the log holds a message of a kind that is not known here")


class _Reading:
    """A message, from its first byte on."""

    def __init__(self, message: bytes) -> None:
        self._message, self._at = message, 0

    def take(self, size: int) -> bytes:
        """So many bytes."""
        found = self._message[self._at : self._at + size]
        if len(found) != size:
            raise Unknown("the log holds a message that ends too early")
        self._at += size
        return found

    def number(self, size: int) -> int:
        """Big-endian, without a sign."""
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        """Up to a zero."""
        end = self._message.index(0, self._at)
        return self.take(end + 1 - self._at)[:-1].decode()


def _relation(reading: _Reading) -> Relation:
    schema, name = reading.text(), reading.text()
    reading.take(1)  # its replica identity: each change says itself what it sends
    columns, identity = list[tuple[str, int]](), set[str]()
    for _ in range(reading.number(2)):
        flags, column = reading.number(1), reading.text()
        columns.append((column, reading.number(4)))
        reading.take(4)
        if flags & 1:
            identity.add(column)
    return Relation(f"{schema or 'pg_catalog'}.{name}", tuple(columns), frozenset(identity))


def _row_change(place: int, kind: bytes, relation: Relation, reading: _Reading) -> Change:
    mark, old, old_is_key = reading.take(1), None, False
    if mark in (b"K", b"O"):
        old, old_is_key = _row(relation, reading), mark == b"K"
        mark = b"" if kind == b"D" else reading.take(1)
    new = _row(relation, reading) if mark == b"N" else None
    named = {b"I": INSERT, b"U": UPDATE, b"D": DELETE}[kind]
    return Change(place, named, relation, old, old_is_key, new)


def _row(relation: Relation, reading: _Reading) -> Values:
    if reading.number(2) != len(relation.columns):
        raise Unknown("the log holds a row that has not the columns of its table")
    return {name: _value(reading) for name, _ in relation.columns}


def _value(reading: _Reading) -> object:
    match reading.take(1):
        case b"n":
            return None
        case b"u":
            return ABSENT
        case b"t":
            return reading.take(reading.number(4))
    raise Unknown("the log holds a value of a kind that is not known here")
