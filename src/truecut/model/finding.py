"""What a check found: nothing, something to know, or something that a run cannot do without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from truecut.errors import Fault

Outcome = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing at one object. An error means that a run cannot serve it as things are."""

    object: str
    fault: Fault
    severity: Literal["warning", "error"] = "error"


@dataclass(frozen=True, slots=True)
class Check:
    """One question, answered. `detail` is the answer in a few words."""

    name: str
    detail: str
    findings: Sequence[Finding] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst of what was found."""
        severities = {finding.severity for finding in self.findings}
        return "error" if "error" in severities else "warning" if severities else "ok"
