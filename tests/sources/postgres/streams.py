"""Random streams of pgoutput: tables of text columns, every kind of message, two versions of a table."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from truecut.model.table import TableName
from truecut.sources.postgres.relation import Relation, RelationColumn

_TEXTS = ["", "a", "b", "NULL", "t", "ä🦆", "x" * 13, "n\0".strip("\0"), "long " * 40]


def relation(oid: int, table: str, columns: int, *, key: int, identity: str = "d") -> Relation:
    """A table of text columns, the first ones of them its key."""
    made = tuple(
        RelationColumn(
            n + 1,
            f"c{n}",
            25,
            -1,
            0,
            "text",
            25,
            -1,
            "b",
            "text",
            n < key or identity == "f",
            False,
            n >= key,
        )
        for n in range(columns)
    )
    return Relation(oid, TableName("public", table), identity, tuple(c.name for c in made[:key]), made)


RELATIONS = {
    1: [relation(1, "a", 3, key=1), relation(1, "a", 4, key=1)],
    2: [relation(2, "b", 2, key=2)],
    3: [relation(3, "full", 3, key=1, identity="f")],
    4: [relation(4, "keyless", 2, key=0, identity="f")],
}
STRANGER = relation(9, "stranger", 2, key=1)


@dataclass
class Writer:
    """Writes what PostgreSQL would."""

    random: Random
    lsn: int = 1000

    def stream(self, transactions: int) -> list[bytes]:
        """Whole transactions, perhaps with messages between them."""
        shapes = {oid: versions[0] for oid, versions in (RELATIONS | {9: [STRANGER]}).items()}
        found: list[bytes] = []
        for _ in range(transactions):
            if self.random.random() < 0.1:
                found.append(self._logical(0))
            found += self._transaction(shapes)
        return found

    def _transaction(self, shapes: dict[int, Relation]) -> Iterator[bytes]:
        self.lsn += self.random.randint(1, 1 << 30)
        at = self.random.randint(-(10**15), 10**15)
        yield struct.pack(">cQqI", b"B", self.lsn, at, self.random.randrange(1 << 32))
        if self.random.random() < 0.1:
            yield b"O" + struct.pack(">Q", 7) + b"origin\0"
        for _ in range(self.random.choice([0, 1, 1, 5, 12])):
            yield from self._change(shapes)
        yield struct.pack(">cBQQq", b"C", 0, self.lsn, self.lsn + 8, at)

    def _change(self, shapes: dict[int, Relation]) -> Iterator[bytes]:
        oid = self.random.choice(list(shapes))
        chance = self.random.random()
        if chance < 0.05:
            shapes[oid] = self.random.choice(RELATIONS.get(oid, [STRANGER]))
            yield b"Y" + struct.pack(">I", 99) + b"public\0mood\0"
            yield announce(shapes[oid])
        elif chance < 0.1:
            yield self._logical(1)
        elif chance < 0.15:
            oids = self.random.sample(list(shapes), self.random.randint(1, 3))
            yield b"T" + struct.pack(f">IB{len(oids)}I", len(oids), self.random.randrange(4), *oids)
        else:
            yield self._row(shapes[oid])

    def _row(self, shape: Relation) -> bytes:
        head = struct.pack(">I", shape.oid)
        mark, old = self._old(shape)
        match self.random.choice("IUUD"):
            case "I":
                return b"I" + head + b"N" + self._tuple(shape)
            case "U" if self.random.random() < 0.5:
                return b"U" + head + b"N" + self._tuple(shape, absent=True)
            case "U":
                return b"U" + head + mark + old + b"N" + self._tuple(shape, absent=True)
            case _:
                return b"D" + head + mark + old

    def _old(self, shape: Relation) -> tuple[bytes, bytes]:
        if shape.replica_identity == "f":
            return b"O", self._tuple(shape)
        nulls = b"n" * (len(shape.columns) - len(shape.key))
        keys = b"".join(self._text() for _ in shape.key)
        return b"K", struct.pack(">H", len(shape.columns)) + keys + nulls

    def _tuple(self, shape: Relation, *, absent: bool = False) -> bytes:
        cells = [
            self._text() if n < len(shape.key) else self._cell(absent) for n in range(len(shape.columns))
        ]
        return struct.pack(">H", len(cells)) + b"".join(cells)

    def _cell(self, absent: bool) -> bytes:
        chance = self.random.random()
        return b"n" if chance < 0.2 else b"u" if absent and chance < 0.4 else self._text()

    def _text(self) -> bytes:
        text = self.random.choice(_TEXTS).encode()
        return b"t" + struct.pack(">I", len(text)) + text

    def _logical(self, flags: int) -> bytes:
        content = self.random.randbytes(self.random.randrange(5))
        return (
            b"M"
            + struct.pack(">BQ", flags, self.lsn)
            + b"prefix\0"
            + struct.pack(">I", len(content))
            + content
        )


def announce(shape: Relation) -> bytes:
    """Its Relation message."""
    name = shape.name
    columns = b"".join(
        struct.pack(">B", column.identity)
        + column.name.encode()
        + b"\0"
        + struct.pack(">Ii", column.type_oid, column.typmod)
        for column in shape.columns
    )
    head = b"R" + struct.pack(">I", shape.oid) + name.schema.encode() + b"\0" + name.table.encode() + b"\0"
    return head + shape.replica_identity.encode() + struct.pack(">H", len(shape.columns)) + columns
