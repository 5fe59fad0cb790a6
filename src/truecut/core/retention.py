"""What of a journal has to be kept, and which sink holds back too much.

A record is kept until every sink that is attached has acknowledged it and no certificate needs it. A sink
that holds back more than its share is detached: the others go on, and it is copied anew when it returns.
Nothing is dropped for want of space: a journal that is full all the same takes no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from truecut.model.position import Position


@dataclass(frozen=True, slots=True)
class Held:
    """What one sink holds back."""

    acknowledged: Position | None  # durable in the sink; None: nothing yet
    bytes_behind: int  # that the journal keeps of what it has not acknowledged
    bytes_max: int  # that it may hold back


@dataclass(frozen=True, slots=True)
class Retention:
    """The sinks to let go, and the position up to which nothing is needed any more."""

    detached: frozenset[str]
    released: Position | None


def decide(sinks: Mapping[str, Held], *, certified: Position | None, head: Position | None) -> Retention:
    """`certified`: what certificates no longer need. Without any sink left that alone counts."""
    detached = frozenset(name for name, held in sinks.items() if held.bytes_behind > held.bytes_max)
    needed = [held.acknowledged for name, held in sinks.items() if name not in detached]
    bounds = [*needed, certified, head]
    if any(bound is None for bound in bounds):
        return Retention(detached, released=None)
    return Retention(detached, released=min(bound for bound in bounds if bound is not None))
