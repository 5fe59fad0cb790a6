"""Carries out what `core/retention.py` decides: measures what each sink holds back, and trims."""

from __future__ import annotations

from collections.abc import Mapping

from truecut.core.retention import Held, Retention, decide
from truecut.journal.contract import Journal
from truecut.model.position import Position


def retain(
    journal: Journal,
    acknowledged: Mapping[str, Position | None],
    *,
    bytes_max: Mapping[str, int],
    certified: Position | None,
    resumes_at: Position | None,
) -> Retention:
    """Trim what nobody needs; the answer says which sinks are no longer waited for.

    `resumes_at`: the record from which the log's own writer finds out where to go on (of capture, the last
    marker), or None where it needs none. It stays with all behind it, whoever has acknowledged it.
    """
    held = {
        sink: Held(position, journal.size(after=position), bytes_max[sink])
        for sink, position in acknowledged.items()
    }
    decision = decide(held, certified=certified, head=journal.head())
    if decision.released is not None:
        released = decision.released
        first_needed = Position(released.generation, released.place + 1)
        if resumes_at is not None and resumes_at.place < first_needed.place:
            first_needed = resumes_at
        journal.trim(before=first_needed)
    return decision
