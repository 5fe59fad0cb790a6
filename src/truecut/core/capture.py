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
    """What the source keeps for us at a moment. `safe_bytes`: until it lets go of our slot, by a limit of its
    own; None without one. Nobody tells us how full its disk is."""

    at_s: float
    bytes: int
    safe_bytes: int | None = None


def judge(retained: Retained, budget: WalBudget | None) -> Verdict:
    """Within the budget is fine; at its bound, too."""
    if budget is None or retained.bytes <= budget.bytes_max:
        return Verdict.FINE
    return Verdict.GIVE_UP if budget.give_up else Verdict.WARN


def pace(samples: Sequence[Retained]) -> float | None:
    """Bytes per second by which what is kept grew or shrank in the samples, oldest first; None: not known."""
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    passed = last.at_s - first.at_s
    return (last.bytes - first.bytes) / passed if passed > 0 else None


def seconds_until_lost(samples: Sequence[Retained]) -> float | None:
    """Until the source lets go of our slot, at that pace; None where it does not grow, or has no limit."""
    grows = pace(samples)
    if grows is None or grows <= 0 or samples[-1].safe_bytes is None:
        return None
    return max(0, samples[-1].safe_bytes) / grows
