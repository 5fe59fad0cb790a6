"""What a verification has found, check by check, and what that comes to: as `truecut.verify/v1` says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from truecut.certificate.comparison import NONE, Difference, Odd
from truecut.config.settings import Level
from truecut.model.position import Position

Verdict = Literal["pass", "fail", "unknown"]
TOLD_MAX = 10  # copies that are told of one by one
ODD_MAX = 100_000  # keys that are named to whoever repairs


@dataclass(frozen=True, slots=True)
class Checked:
    """One copy: what was found, in the words of `truecut.verify/v1`."""

    table: str
    sink: str
    verdict: Verdict
    detail: str
    frontier: Position | None = None
    difference: Difference = NONE
    witnesses: tuple[Mapping[str, Any], ...] = ()  # some of the keys that differ, the least first
    odd: tuple[Odd, ...] = ()  # all of them, unless they are too many
    level: str = "V5"

    @property
    def all_odd(self) -> bool:
        """Whether every key that differs is named: some of them count for more than one row."""
        return 0 < len(self.odd) < ODD_MAX

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "table": self.table,
            "sink": self.sink,
            "level": self.level,
            "verdict": self.verdict,
            "frontier": None if self.frontier is None else str(self.frontier),
            "missing": self.difference.missing,
            "extra": self.difference.extra,
            "differs": self.difference.differs,
            "witness": self.witnesses[0] if self.witnesses else None,
            "detail": self.detail,
        }


def verdict_of(checks: Iterable[Checked]) -> Verdict:
    """Of all of them: one that fails is a failure, one that nobody knows of leaves all unknown."""
    verdicts = {check.verdict for check in checks}
    if "fail" in verdicts:
        return "fail"
    return "unknown" if "unknown" in verdicts or not verdicts else "pass"


def asked_by(level: Level, live: Sequence[Checked]) -> list[Checked]:
    """`source` leaves out what V5 says beside a V4. A copy without one was compared with its source, or could
    not be: that is kept, or its trouble would pass."""
    told = {(check.table, check.sink) for check in live if check.level == "V4"}
    return [
        check
        for check in live
        if level == "sink" or check.level == "V4" or (check.table, check.sink) not in told
    ]


def document(checks: Sequence[Checked]) -> dict[str, Any]:
    """`truecut.verify/v1`."""
    return {
        "schema": "truecut.verify/v1",
        "verdict": verdict_of(checks),
        "checks": [check.document() for check in checks],
    }


def said(checks: Sequence[Checked]) -> list[str]:
    """What may be said now, in plain words. That a copy equals its source needs both to have been read at one
    place: V4 and V5 there, or, where no certificate claims it, the two compared with each other."""
    by_copy: dict[tuple[str, str], dict[str, Checked]] = {}
    for check in checks:
        if check.table and check.level in ("V4", "V5"):
            by_copy.setdefault((check.table, check.sink), {})[check.level] = check
    equal, apart = [], []
    for (table, sink), levels in by_copy.items():
        passed = all(check.verdict == "pass" for check in levels.values())
        places = {str(check.frontier) for check in levels.values()}
        if passed and "V5" in levels and len(places) == 1:
            equal.append(f"{table} at {sink} equals the source at {places.pop()}.")
        elif passed and "V5" in levels:
            apart.append(
                f"{table} at {sink} is what is certified at {levels['V5'].frontier}, and the source was at "
                f"{levels['V4'].frontier}; that they are equal at one place is not said."
            )
    told = [*_some(equal, "equal their source"), *_some(apart, "are what is certified")]
    if not told:
        told = ["That a copy equals its source is not said: both have to pass, read at one place (V4, V5)."]
    return told


def _some(sentences: Sequence[str], what: str) -> list[str]:
    more = len(sentences) - TOLD_MAX
    return [*sentences[:TOLD_MAX], *([f"{more:,} more copies {what}."] if more > 0 else [])]
