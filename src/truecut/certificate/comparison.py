"""Two sides of a copy, as sums by bucket: where they differ, and what the difference is made of.

Pure. Sides are compared by sums alone, bucket by bucket; only the rows of buckets that differ are looked at
by key. A key that is on one side twice is a row too many on that side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from truecut.certificate.digest import Buckets

AtSink = Literal["missing", "extra", "differs"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How one side (the sink) differs from the other (what it should hold)."""

    missing: int = 0
    extra: int = 0
    differs: int = 0

    @property
    def rows(self) -> int:
        """How many rows a repair touches."""
        return self.missing + self.extra + self.differs


NONE = Difference()


@dataclass(frozen=True, slots=True)
class Odd:
    """One key whose row is not the same on both sides, by its digest."""

    key: bytes
    at_sink: AtSink


def buckets_apart(expected: Buckets, found: Buckets) -> tuple[int, ...]:
    """Those in which something differs: a sum, or a number of rows."""
    apart = (expected.sums != found.sums).any(axis=1) | (expected.counts != found.counts)
    return tuple(int(number) for number in np.flatnonzero(apart))
