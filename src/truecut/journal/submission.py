"""What somebody wants to append, until it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from truecut.errors import require
from truecut.journal.record import Record
from truecut.model.position import Position


@dataclass(slots=True)
class Submission:
    """Records that stay together, and the answer: the position of the last one. It cannot be cancelled: what
    was submitted is on its way."""

    records: Sequence[Record]
    size: int
    answer: Future[Position]

    def __post_init__(self) -> None:
        self.answer.set_running_or_notify_cancel()


def position_after(last: Position | None, records: Sequence[Record]) -> Position:
    """Where the log will end with these records behind it."""
    generations = [last.generation if last else 0, *(record.generation for record in records)]
    require(generations == sorted(generations), "the source's generation never falls along the log")
    return Position(generations[-1], (last.place if last else 0) + len(records))
