"""The source as it is now: another identity at the same address is another generation of positions.

Promises: positions of a later source are above all earlier ones, also when the control store was lost:
then the sinks know better, and so does a runner that has seen more; one generation is one source. The store
is asked in the background, once for each identity, and again from time to time: another runner may have
learnt of a later generation. A look that was taken under another number than holds now is not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from truecut.errors import Fault
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.runtime.background import Background
from truecut.runtime.control import ControlStore
from truecut.runtime.timetable import Timetable
from truecut.sources.contract import Observation, Source

RETRY_MS = 1_000


class Generations:
    """The source, opened for the generation that its positions have."""

    def __init__(
        self,
        open_source: Callable[[int], Source],
        control: ControlStore,
        background: Background,
        times: Timetable,
        *,
        refresh_ms: int,
        on_store: Callable[[Fault | None], None],
    ) -> None:
        self._open = open_source
        self._control = control
        self._background = background
        self._times = times
        self._refresh_ms = refresh_ms
        self._on_store = on_store
        self._asking = False
        self._identity: str | None = None  # of which the generation is known
        self._generation = 1
        self._shown: dict[str, int] = {}  # identity → the latest generation of it that anybody has shown us
        self._outdated = False  # something was shown since the last look began
        self.source = open_source(self._generation)

    def new_look(self) -> Callable[[], Observation]:
        """To be taken in the background; what is shown from now on is newer than it."""
        self._outdated = False
        return self.source.observe

    def believes(self, seen: Observation) -> bool:
        """Whether this look has the generation that it must have.

        If not, the store is being asked, and the source is to be looked at again. Whoever looked before a
        sink showed a later source may have seen an earlier one: nobody is asked for its number.
        """
        if self._outdated:
            return False
        lowest = least(seen.identity, self._shown)
        known = seen.identity == self._identity and self._generation >= lowest
        if not self._asking and self._times.is_due("generation", self._refresh_ms if known else RETRY_MS):
            self._ask(seen.identity, lowest)
        return known and seen.head.generation == self._generation

    def heard(self, receipts: Iterable[Receipt]) -> None:
        """Sinks have told their cursors: generations of this source, or of those before it."""
        before = dict(self._shown)
        _learn(self._shown, shown_by(receipt.cursor for receipt in receipts if receipt.cursor is not None))
        if self._shown != before:
            self._outdated = True
            self._times.at_once("generation")
            self._times.at_once("observe")

    def _ask(self, identity: str, at_least: int) -> None:
        self._asking = True

        def failed(fault: Fault) -> None:
            self._asking = False
            self._on_store(fault)

        self._background.submit(
            lambda: self._control.generation(identity, at_least=at_least),
            lambda generation: self._answered(identity, generation),
            failed,
        )

    def _answered(self, identity: str, generation: int) -> None:
        self._asking = False
        changed = (identity, generation) != (self._identity, self._generation)
        if generation != self._generation:
            self.source = self._open(generation)
        self._identity, self._generation = identity, generation
        _learn(self._shown, {identity: generation})
        if changed:
            self._times.at_once("observe")


def least(identity: str, shown: Mapping[str, int]) -> int:
    """The generation that this source has at least: what was shown of it, and above all others."""
    others = (generation for other, generation in shown.items() if other != identity)
    return max(shown.get(identity, 1), 1 + max(others, default=0))


def shown_by(cursors: Iterable[Cursor]) -> dict[str, int]:
    """The latest generation of each source that these cursors have a place of."""
    shown: dict[str, int] = {}
    for cursor in cursors:
        for copy in cursor.copies.values():
            _learn(shown, {copy.source_identity: copy.at.generation})
    return shown


def _learn(shown: dict[str, int], more: Mapping[str, int]) -> None:
    for identity, generation in more.items():
        shown[identity] = max(generation, shown.get(identity, 0))
