"""Laws that every sink, source and journal keeps, whoever wrote it: for pytest, in anybody's repository.

A test file takes the laws over by their names and says what they are about, by one fixture:

    from truecut.testing.sinks import *      # the laws
    @pytest.fixture(params=["mine"])
    def bench(request, tmp_path): ...        # a `SinkBench`: a new destination, and a look at it from outside

Which of them ran for which back end is noted (`Ran`): a file ends with a test that nothing was left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType

import pytest

pytest.register_assert_rewrite(
    "truecut.testing.sinks",
    "truecut.testing.events",
    "truecut.testing.repairs",
    "truecut.testing.staging",
    "truecut.testing.bench",
    "truecut.testing.sources",
    "truecut.testing.journals",
)


def laws_of(module: ModuleType) -> frozenset[str]:
    """The names of its laws."""
    return frozenset(name for name in vars(module) if name.startswith("test_"))


@dataclass
class Ran:
    """Pairs of back end and law."""

    pairs: set[tuple[str, str]] = field(default_factory=set)

    def note(self, back_end: str, law: str) -> None:
        """One law is about to be tried."""
        self.pairs.add((back_end, law))

    def left_out(self, module: ModuleType, back_ends: frozenset[str]) -> set[tuple[str, str]]:
        """What was not tried, and what was tried and is not known."""
        return {(back_end, law) for back_end in back_ends for law in laws_of(module)} ^ self.pairs
