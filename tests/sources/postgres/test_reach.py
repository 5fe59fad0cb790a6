"""How far a snapshot sees the log: every bound, on both of its sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest

from truecut.core.visibility import Snapshot
from truecut.model.position import Position
from truecut.sources.postgres.history import Commits, Log, Reach, reach

SNAPSHOT = Snapshot.parse("10:20:12,15")  # 12, 15, and all from 20 on are not seen
FIRST, SECOND, WHOLE = (Position(1, record) for record in (3, 6, 9))


class Told:
    """A log of two records: commits with their places and transactions."""

    whole = WHOLE

    def __init__(self, *records: dict[int, int]) -> None:
        self._records = records

    def commits(self) -> Iterator[Commits]:
        for after, record in zip((FIRST, SECOND), self._records, strict=True):
            places, xids = list(record), list(record.values())
            yield Commits(after, np.array(places, np.uint64), np.array(xids, np.uint64))


@pytest.mark.parametrize(
    ("first", "second", "upto", "found"),
    [
        ({100: 5, 200: 11}, {300: 13}, None, Reach(300, WHOLE, None)),
        ({}, {}, None, Reach(50, WHOLE, None)),
        ({100: 12}, {200: 5}, None, Reach(99, FIRST, 100)),
        ({100: 5, 200: 15}, {300: 5}, None, Reach(199, FIRST, 200)),
        ({100: 5}, {200: 19, 300: 20}, None, Reach(299, SECOND, 300)),
        ({100: 5}, {200: 19, 300: 20}, 300, Reach(299, SECOND, 300)),
        ({100: 5}, {200: 19, 300: 20}, 299, Reach(200, SECOND, None)),
        ({100: 12}, {200: 5}, 99, Reach(50, FIRST, None)),
    ],
)
def test_up_to_the_last_place_before_what_is_not_seen(
    first: dict[int, int], second: dict[int, int], upto: int | None, found: Reach
) -> None:
    """C2: a commit that the snapshot does not see is behind it, and so is whatever follows, seen or not."""
    log = cast(Log, Told(first, second))
    assert reach(log, SNAPSHOT, lo=50, upto=upto) == found
