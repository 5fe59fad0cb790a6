"""What capture decides: how to read, and how much of the source's log may be held back.

Pure: sizes and times are arguments. What a place in a source's log is, its connector knows
(sources/postgres/lineage.py decides whether a log goes on where the journal ends).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Mode(Enum):
    """How changes are read."""

    BACKLOG = "backlog"  # in big gulps: cheap for each change, slow to answer
    TAIL = "tail"  # as they come: prompt, dear for each change


TAIL_BEHIND_MAX = 64 << 20  # bytes of the source's log; behind by more, gulps are cheaper


def next_mode(mode: Mode, *, drained: bool, bytes_behind: int, behind_max: int = TAIL_BEHIND_MAX) -> Mode:
    """Gulps until one has drained the source; the tail until it falls behind. The two bounds are apart, so
    that it does not go to and fro."""
    if mode is Mode.BACKLOG:
        return Mode.TAIL if drained else Mode.BACKLOG
    return Mode.BACKLOG if bytes_behind > behind_max else Mode.TAIL


class Verdict(Enum):
    """What to do about the log that the source keeps for us."""

    FINE = "fine"
    WARN = "warn"
    GIVE_UP = "give_up"  # let go of the slot and copy the tables later


@dataclass(frozen=True, slots=True)
class WalBudget:
    """`source.wal_budget`: how much of the source's log we may hold back, and what then."""

    bytes_max: int
    give_up: bool = False  # otherwise it is only said


@dataclass(frozen=True, slots=True)
class Retained:
    """What the source keeps for us at a moment. `free_bytes`: until its disk or its own limit is reached."""

    at_s: float
    bytes: int
    free_bytes: int | None = None


def judge(retained: Retained, budget: WalBudget | None) -> Verdict:
    """Within the budget is fine; at its bound, too."""
    if budget is None or retained.bytes <= budget.bytes_max:
        return Verdict.FINE
    return Verdict.GIVE_UP if budget.give_up else Verdict.WARN


def seconds_until_full(samples: Sequence[Retained]) -> float | None:
    """At the pace of the samples, oldest first; None where it does not grow, or nobody knows the room."""
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    grown, passed = last.bytes - first.bytes, last.at_s - first.at_s
    if last.free_bytes is None or grown <= 0 or passed <= 0:
        return None
    return last.free_bytes / (grown / passed)
