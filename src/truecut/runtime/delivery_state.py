"""The delivery machine's state in this process. Every step passes here, so that none is missed."""

from __future__ import annotations

from truecut.config.kinds import SourceWords
from truecut.core.delivery import Delivery
from truecut.runtime import announce
from truecut.runtime.trace import Trace


class Machine:
    """The current state; only the runner's loop changes it."""

    def __init__(self, state: Delivery, trace: Trace, words: SourceWords | None = None) -> None:
        self._state = state
        self._trace = trace
        self.words = words or SourceWords()

    @property
    def state(self) -> Delivery:
        """A frozen value: it does not change under whoever holds it."""
        return self._state

    def become(self, state: Delivery) -> None:
        """Adopt what one call of the machine returned."""
        self._trace.step(self._state, state)
        announce.step(self._state, state, self.words)
        self._state = state
