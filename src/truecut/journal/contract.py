"""The journal as capture and delivery see it, whatever it is made of.

Records are numbered 1, 2, 3, … for the life of the log; a position is the source's generation and that
number. What `append` has returned is durable. What is read is committed, in order, and stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from truecut.errors import Fault
from truecut.journal.record import Head, Record
from truecut.model.position import Position


class Entry(NamedTuple):
    """A record with its place."""

    position: Position
    record: Record


class Outline(NamedTuple):
    """A record without its payload, and its place."""

    position: Position
    head: Head


class JournalReader(Protocol):
    """A log, for any number of readers in any process."""

    def head(self) -> Position | None:
        """The last committed position; None while there is none."""

    def oldest(self) -> Position | None:
        """The position of the first record that is still there; None where there is none."""

    def read(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Entry]:
        """The committed records in `(after, upto]`, up to the head of now by default. A place that has been
        trimmed is an error, not a gap. Bounds count by their places, which alone are in order: a bound's
        generation need not be that of the record there."""

    def heads(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Outline]:
        """As `read`, without the payloads: for whoever has to know how much there is, and of what."""

    def size(self, *, after: Position | None = None) -> int:
        """How many bytes are kept of the records behind a position, in whole segments; of each copy."""

    def wait(self, *, after: Position | None, timeout_s: float) -> Position | None:
        """The head, as soon as it is behind `after`; what it is when the time is over."""

    def close(self) -> None:
        """Let files and connections go."""


class Journal(JournalReader, Protocol):
    """A log, for its one writer."""

    def submit(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Future[Position]:
        """Append; the answer is the last record's position, once all are durable. In order of submission.

        `expected_last`: what the caller believes to be the last position appended; an error if it is not.
        Blocks while too much is under way.
        """

    def append(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Position:
        """Submit, and wait for the answer."""

    def trim(self, *, before: Position) -> None:
        """Records before this one are no longer needed; whole segments of them are removed."""

    def hindrance(self) -> Fault | None:
        """Why appends wait, while they do."""
