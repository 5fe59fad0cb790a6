"""What the journal tests say in few words."""

from __future__ import annotations

from pathlib import Path

from tests.journal import plain_reader
from truecut.journal.record import Kind, Record
from truecut.model.position import SourcePosition
from truecut.testing.journals import at, content, lines, numbered, texts

__all__ = ["at", "content", "lines", "numbered", "plain_content", "plain_texts", "texts"]


def plain_content(folder: Path) -> list[Record]:
    """All that a log in a folder holds, from its first record on, by a reader of its own kind."""
    found = plain_reader.read(folder)
    assert list(found) == list(range(1, len(found) + 1))
    return [Record(row[0], Kind(row[1]), *row[2:8], SourcePosition(row[8])) for row in found.values()]


def plain_texts(folder: Path) -> list[str]:
    return texts(plain_content(folder))
