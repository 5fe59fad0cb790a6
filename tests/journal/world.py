"""What the journal tests say in few words."""

from __future__ import annotations

from collections.abc import Sequence

from truecut.journal.contract import JournalReader
from truecut.journal.record import Record
from truecut.model.position import Position


def at(number: int, generation: int = 1) -> Position:
    return Position(generation, number)


def lines(*texts: str) -> list[Record]:
    return [Record(text.encode()) for text in texts]


def numbered(first: int, last: int) -> list[Record]:
    """Records that say their own number, of various lengths."""
    return [Record(f"{n}:".encode() + b"x" * (n * 37 % 400)) for n in range(first, last + 1)]


def content(
    reader: JournalReader, *, after: Position | None = None, upto: Position | None = None
) -> list[Record]:
    """The records in a range; their positions are checked to be the numbers that follow `after`."""
    entries = list(reader.read(after=after, upto=upto))
    first = 1 if after is None else after.place + 1
    assert [entry.position.place for entry in entries] == list(range(first, first + len(entries)))
    assert [entry.position.generation for entry in entries] == [entry.record.generation for entry in entries]
    return [entry.record for entry in entries]


def texts(records: Sequence[Record]) -> list[str]:
    return [record.payload.decode() for record in records]
