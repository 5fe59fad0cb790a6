"""Random lives of one copy: changes of a source, the segments that tell them, and the state they make, kept
in a plain dict and digested row by row by the verifier's own code."""

from __future__ import annotations

import hashlib
import random
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from truecut.certificate.base_pieces import EventPiece, PieceEvidence, told
from truecut.certificate.chain import chained
from truecut.certificate.segment import SegmentWriter, Wanted
from truecut.model.change import DELETE, INSERT, READ, TRUNCATE, UPDATE
from truecut.model.cursor import Version
from truecut.model.order import Order
from truecut.testing.orders import ABSENT, NOTED, changes, order, position, rows, seed
from truecut_verify import digest as plain

SECRET = bytes(range(16))
SCOPE = "source-1\nmain.t"
TABLE = plain.Table(SCOPE, [("id", "int")], [("value", 2, "text"), ("note", 3, "text")])
LARGE = "something of more than sixteen bytes, "


@dataclass
class Life:
    """One mirror at the sink `acme`, seeded at 4."""

    folder: Path
    chance: random.Random
    state: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    place: int = 4
    at: int = 0  # where its last order ended
    head: str = ""
    edition: int = 0

    def __post_init__(self) -> None:
        (self.folder / "secret").write_bytes(SECRET)
        self.wanted = Wanted(str(self.folder), leaves_out=True)

    def seed(self) -> Order:
        self.place += 1
        self.state = {key: self._row() for key in range(self.chance.randrange(12))}
        read = [(READ, self.place, key, *row) for key, row in self.state.items()]
        return self._write(seed(schema=NOTED), read)

    def window(self) -> Order:
        events: list[tuple[Any, ...]] = []
        self.place += 1
        for _ in range(self.chance.randrange(1, 9)):
            self.place += self.chance.randrange(2)
            events.append(self._event())
        return self._write(changes(schema=NOTED), events)

    def root(self) -> bytes:
        """As the verifier's code computes it from the rows."""
        return plain_root(self.state)

    def _row(self) -> tuple[str | None, str | None]:
        value = self.chance.choice([None, "", "a", LARGE + str(self.chance.random())])
        return value, self.chance.choice([None, "short", LARGE + str(self.chance.random())])

    def _event(self) -> tuple[Any, ...]:
        key = self.chance.randrange(12)
        if self.chance.random() < 0.03:
            self.state = {}
            return (TRUNCATE, self.place, None)
        if key not in self.state:
            self.state[key] = self._row()
            return (INSERT, self.place, key, *self.state[key])
        if self.chance.random() < 0.3:
            del self.state[key]
            return (DELETE, self.place, key)
        before, row = self.state[key], list(self._row())
        told: list[Any] = list(row)
        for n in range(2):
            if (before[n] or "").startswith(LARGE) and self.chance.random() < 0.5:
                row[n], told[n] = before[n], ABSENT
        self.state[key] = (row[0], row[1])
        return (UPDATE, self.place, key, *told)

    def _write(self, wish: Any, events: list[tuple[Any, ...]]) -> Order:
        before = Version(self.edition, position(self.at), evidence=self.head)
        wish = replace(wish, before=before if self.edition else None)
        wanted = order(None, self.place, t=wish)
        parts = self._parts(rows(events, NOTED))
        by_tasks = wish.kind == "replace" and self.chance.random() < 0.5
        header = written_by_tasks(self.wanted, wanted, parts) if by_tasks else self._written(wanted, parts)
        self.head = chained("" if wish.kind == "replace" else self.head, header)
        self.at = self.place
        self.edition = wanted.tables["main.t"].leaves.edition
        return wanted

    def _written(self, wanted: Order, parts: list[pa.Table]) -> str:
        writer = SegmentWriter(self.wanted, wanted)
        for part in parts:
            writer.add("main.t", part)
        (header,) = writer.close().values()
        return header

    def _parts(self, table: pa.Table) -> list[pa.Table]:
        """In packets, which come in any order."""
        cut = self.chance.randrange(table.num_rows + 1)
        parts = [part for part in (table.slice(0, cut), table.slice(cut)) if part.num_rows]
        self.chance.shuffle(parts)
        return parts


def pieces_of(wanted: Wanted, order: Order, parts: list[pa.Table]) -> list[EventPiece]:
    """Each part of the rows has a task of its own."""
    found: list[EventPiece] = []
    for part in parts:
        with closing(PieceEvidence(wanted, order)) as evidence:
            evidence.add("main.t", part)
            found += evidence.finish().values()
    return found


def written_by_tasks(wanted: Wanted, order: Order, parts: list[pa.Table]) -> str:
    """A base whose rows never meet in one process: its header."""
    (header,) = told(wanted, order, {"main.t": pieces_of(wanted, order, parts)}).values()
    return header


def plain_root(state: dict[int, tuple[str | None, str | None]]) -> bytes:
    sums, counts = [0] * 4096, [0] * 4096
    for key, (value, note) in state.items():
        row = {"id": pa.scalar(key, pa.int64()), "value": pa.scalar(value, pa.string())}
        found, total = plain.row_digest(SECRET, TABLE, row | {"note": pa.scalar(note, pa.string())})
        bucket = plain.bucket(found)
        sums[bucket], counts[bucket] = (sums[bucket] + total) % plain.MODULUS, counts[bucket] + 1
    return root(sums, counts)


def root(sums: list[int], counts: list[int]) -> bytes:
    """Of the buckets, as docs/certificate-format.md has it."""
    words = b"".join((one >> 32 * n & 0xFFFF_FFFF).to_bytes(4, "big") for one in sums for n in range(4))
    return hashlib.sha256(words + b"".join(n.to_bytes(8, "big") for n in counts)).digest()
