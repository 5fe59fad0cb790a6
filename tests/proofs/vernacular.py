"""What is said in a file of Coq: its theorems, and whatever would be believed without a proof."""

from __future__ import annotations

import re
from pathlib import Path

PROOFS = Path(__file__).parents[2] / "proofs"

_COMMENT = re.compile(r"\(\*(?:(?!\(\*|\*\)).)*\*\)", re.DOTALL)
_UNPROVED = re.compile(
    r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|Admit\s+Obligations|Unset\s+\w+\s+Checking|bypass_check)\b"
)
_ASSUMED = re.compile(r"^\s*(?:Local\s+|Global\s+)?(Hypothes[ie]s|Variables?|Context)\b")
_THEOREM = re.compile(r"^Theorem (\w+)", re.MULTILINE)


def theorems(text: str) -> list[str]:
    """Their names, in order."""
    return _THEOREM.findall(code(text))


def code(text: str) -> str:
    """Without comments, also those within others."""
    while (shorter := _COMMENT.sub(" ", text)) != text:
        text = shorter
    return text


def unproved(text: str) -> list[str]:
    """Words by which something is believed: an axiom, a proof left out, an assumption outside a section."""
    return _UNPROVED.findall(code(text)) + _assumed_by_all(code(text))


def _assumed_by_all(text: str) -> list[str]:
    """What is assumed within a section is a premise of its theorems; outside it is an axiom."""
    found, inside = [], 0
    for line in text.splitlines():
        inside += len(re.findall(r"^Section \w+\.", line)) - len(re.findall(r"^End \w+\.", line))
        assumed = _ASSUMED.match(line)
        if assumed and inside == 0:
            found.append(assumed[1])
    return found
