"""What a check comes to: pass, fail or unknown, of a level and a copy, with the smallest witness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "fail", "unknown"]
LEVELS = ("V0", "V1", "V2", "V3", "V4", "V5")
EXIT_CODES = {"pass": 0, "fail": 4, "unknown": 5}
WRONG_USAGE = 2


class Finding(Exception):
    """Why a check does not pass. `witness` names the smallest thing that shows it."""

    verdict: Verdict = "fail"

    def __init__(self, detail: str, **witness: Any) -> None:
        super().__init__(detail)
        self.detail, self.witness = detail, witness


class Fail(Finding):
    """Something is not as the certificate says."""


class Unknown(Finding):
    """What would be needed to tell is not there. Never shown as pass."""

    verdict = "unknown"


class NotACertificate(Fail):
    """What was given cannot be read as what it should be: damaged, cut short, or something else."""

    def __init__(self, name: str, why: str, **witness: Any) -> None:
        super().__init__(f"not a certificate: {name}: {why}", file=name, **witness)


@dataclass(frozen=True, slots=True)
class Check:
    """One level of one copy. Without a table it is about the certificates as a whole."""

    level: str
    verdict: Verdict
    detail: str
    table: str = ""
    sink: str = ""
    frontier: str = ""
    missing: int = 0
    extra: int = 0
    differs: int = 0
    witness: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, level: str, finding: Finding, *, table: str = "", sink: str = "", frontier: str = ""
    ) -> Check:
        """A check that does not pass."""
        return cls(level, finding.verdict, finding.detail, table, sink, frontier, witness=finding.witness)


def overall(checks: Sequence[Check]) -> Verdict:
    """One failure fails all; what is not known is not passed; nothing checked is nothing known."""
    found = {check.verdict for check in checks}
    if "fail" in found:
        return "fail"
    return "unknown" if "unknown" in found or not found else "pass"


def document(checks: Sequence[Check]) -> dict[str, Any]:
    """For `--json`, in the form of `truecut verify`."""
    told = [{**asdict(check), "witness": dict(check.witness) or None} for check in checks]
    return {"schema": "truecut.verify/v1", "verdict": overall(checks), "checks": told}


def sentences(checks: Sequence[Check]) -> list[str]:
    """One line for each check: the worst of a copy is what its reader must see."""
    marks = {"pass": "✓", "fail": "✗", "unknown": "?"}
    lines = []
    for check in checks:
        what = f"{check.table} at {check.sink}" if check.table else "certificates"
        told = ", ".join(f"{name} {value}" for name, value in check.witness.items())
        lines.append(
            f"{marks[check.verdict]} {check.level} {check.verdict:7} {what}: {check.detail}"
            + (f" [{told}]" if told else "")
        )
    return lines


_CLAIMS = {
    "V0": "The certificates are one unbroken, signed chain.",
    "V1": "The evidence that is here is the evidence that was signed.",
    "V2": "Replayed, the evidence gives the content that the certificate claims, row for row.",
    "V3": "The source's log, read by this program, tells what the evidence tells, change by change.",
    "V4": "The source, read by this program, has the content that the certificate claims.",
    "V5": "The copy, read by this program, has the content that is certified, or extended as its check says.",
}
_LIMITS = (
    "That the evidence tells all that happened at the source is taken for granted; the certificate lists "
    "what it assumes. Nothing is said of tables and rows outside its scope, or of what came later."
)


def claims(checks: Sequence[Check]) -> list[str]:
    """What may be said now, in plain words. A sentence only where every copy has passed the level."""
    said = []
    read = {(check.table, check.sink) for check in checks if check.level == "V5"}
    unread = sorted({f"{c.table} at {c.sink}" for c in checks if c.table and (c.table, c.sink) not in read})
    for level in LEVELS:
        mine = [check.verdict for check in checks if check.level == level]
        if mine and set(mine) == {"pass"} and not (level == "V5" and unread):
            said.append(_CLAIMS[level])
    frontiers = [
        {(c.table, c.sink, c.frontier) for c in checks if c.level == level and c.verdict == "pass"}
        for level in ("V4", "V5")
    ]
    equal = sorted(frontiers[0] & frontiers[1])
    said += [f"{table} at {sink} equals the source at {at}." for table, sink, at in equal]
    if not equal:
        said.append("Whether a copy equals the source is not said: that needs V4 and V5 at one frontier.")
    if not any(check.level == "V5" for check in checks):
        said.append(
            "Whether a copy still holds what was delivered is not said: that needs the sink (--sink)."
        )
    elif unread:
        said.append(f"Not read, and nothing is said of what they hold: {', '.join(unread)}.")
    return [*said, _LIMITS]
