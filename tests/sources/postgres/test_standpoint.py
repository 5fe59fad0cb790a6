"""What is kept from look to look, so that what is back is known for what it was. Pure."""

from __future__ import annotations

import json

from truecut.sources.postgres.footing import Footing
from truecut.sources.postgres.standpoint import Standpoint, after_look

LOG = "log"


def told_by(*footings: Footing) -> list[int]:
    """From which look on rows are told, after each look; what is known is durable between two."""
    known: Standpoint | None = None
    found = []
    for number, footing in enumerate(footings):
        known, _ = after_look(known, footing, log=LOG, lsn=10 * (number + 1))
        known = Standpoint.of(json.loads(json.dumps(known.document())))
        assert known.rows == known.events
        found.append((known.rows + 1) // 10 - 1)
    return found


def table(oid: int, **columns: int) -> Footing:
    return Footing(oid, file=1, toast=1, schema=None, listed=True, columns=columns)


def test_a_table_that_gets_its_name_back_is_told_from_there_on() -> None:
    """However many others had it meanwhile; one that takes it for the first time is told by its oid alone."""
    assert told_by(table(1), table(1), table(2), table(3), table(1), table(1), table(2)) == [
        0,
        0,
        0,
        0,
        4,
        4,
        6,
    ]


def test_a_column_that_is_made_anew_is_known_although_it_was_away() -> None:
    """By its number; a renamed one goes on, and comes back to its own name as itself."""
    first, other, both = table(1, a=1, b=2), table(1, a=1), table(1, a=1, b=3)
    assert told_by(first, other, both, both) == [0, 0, 2, 2]
    assert told_by(table(1, a=1), table(1, b=1), table(1, a=1)) == [0, 0, 0]
    assert told_by(table(1, a=1), table(2, a=3), table(2, a=3)) == [0, 0, 0]
