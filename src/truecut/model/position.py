"""A place in one change log.

Total order, fixed-width text that sorts as the positions do. The generation grows when the source's
identity changes; the place is the connector's own number (of a snapshot, of a record in a journal).

Beside it, where there is more to say, stands the source's own: a log sequence number, a set of transaction
ids, the resume token of a stream. It is text that nobody but its connector reads, compares or makes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

SourcePosition = NewType("SourcePosition", str)
UNTOLD = SourcePosition("")  # ours says all, or nobody has told

_TEXT = re.compile(r"([0-9A-F]{8})-([0-9A-F]{16})")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """`after` bounds are exclusive and `upto` bounds inclusive wherever positions make a range."""

    generation: int
    place: int

    def __post_init__(self) -> None:
        if not 0 <= self.generation < 1 << 32 or not 0 <= self.place < 1 << 64:
            raise ValueError(f"position out of range: {self.generation}-{self.place}")

    def __str__(self) -> str:
        return f"{self.generation:08X}-{self.place:016X}"

    def __bytes__(self) -> bytes:
        """Order-preserving: bytes compare as the positions do."""
        return self.generation.to_bytes(4, "big") + self.place.to_bytes(8, "big")

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read what `str` wrote; ValueError when it is anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a position: {text!r}; expected e.g. 00000001-0000000001A2B3C0")
        return cls(int(match[1], 16), int(match[2], 16))


def text_of(position: Position | None) -> str | None:
    """Its text, where there may be none."""
    return None if position is None else str(position)
