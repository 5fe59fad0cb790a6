"""What capture is doing, and how much its source keeps for it: for `status`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from truecut.core.capture import Mode, Retained, Verdict, WalBudget, judge, pace, seconds_until_lost
from truecut.sources.postgres.messages import lsn_text

SAMPLES = 30


@dataclass(slots=True)
class Progress:
    """For `status`: what capture is doing."""

    mode: Mode = Mode.BACKLOG
    durable: int = 0
    released: int = 0  # the server keeps nothing before it for us
    bytes_behind: int = 0
    retained_bytes: int = 0
    retained_bytes_per_s: float | None = None
    seconds_until_lost: float | None = None
    verdict: Verdict = Verdict.FINE
    gap: str | None = None
    _samples: deque[Retained] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def weighed(self, sample: Retained, budget: WalBudget | None, *, released: int) -> None:
        """What the source keeps for us, against the budget."""
        self._samples.append(sample)
        self.retained_bytes = sample.bytes
        self.released = released
        self.retained_bytes_per_s = pace(self._samples)
        self.seconds_until_lost = seconds_until_lost(self._samples)
        self.verdict = judge(sample, budget)

    @property
    def kept_bytes(self) -> int | None:
        """What the source keeps for us; None: it was not asked yet."""
        return self.retained_bytes if self._samples else None

    def document(self) -> dict[str, Any]:
        """As JSON documents show it."""
        return {
            "mode": self.mode.value,
            "position": lsn_text(self.durable),
            "released": lsn_text(self.released),
            "bytes_behind": self.bytes_behind,
            "wal_retained_bytes": self.retained_bytes,
            "wal_retained_bytes_per_s": self.retained_bytes_per_s,
            "slot_lost_in_s": self.seconds_until_lost,
            "wal_budget": self.verdict.value,
            "gap": self.gap,
        }
