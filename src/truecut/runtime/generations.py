"""The source as it is now: another identity at the same address is another generation of positions.

Promises: positions of a later source are above all earlier ones, also when the control store was lost:
then the sinks know better, and their generation counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from truecut.model.order import Receipt
from truecut.runtime.control import ControlStore
from truecut.sources.contract import Source


class Generations:
    """The source, opened for the generation that its positions have."""

    def __init__(self, open_source: Callable[[int], Source], control: ControlStore) -> None:
        self._open = open_source
        self._control = control
        self._generation = 1
        self.source = open_source(self._generation)

    def renew(self, identity: str, *, at_least: int = 1) -> bool:
        """Another source has taken the old one's place, or the sinks know a later generation than we do.
        True: what was seen has to be looked at again."""
        generation = self._control.generation(identity, at_least=at_least)
        if generation == self._generation:
            return False
        self._generation = generation
        self.source = self._open(generation)
        return True


def known_generation(identity: str, receipts: Iterable[Receipt]) -> int:
    """The latest generation of this very source that a sink has seen."""
    cursors = [receipt.cursor for receipt in receipts if receipt.cursor is not None]
    known = [
        cursor.position.generation
        for cursor in cursors
        if cursor.position is not None and cursor.source_identity == identity
    ]
    return max(known, default=1)
