"""What the certificates' files alone can show, as the independent verifier says it (V0 to V2).

It is a distribution of its own, which shares no code with this one; where it is not installed nobody can say.
"""

from __future__ import annotations

from pathlib import Path

from truecut.model.position import Position
from truecut.runtime.verification import Checked


def examined(folder: Path) -> list[Checked]:
    """Every copy, level by level."""
    try:
        from truecut_verify.files import examine
        from truecut_verify.folder import WrongUsage, opened
        from truecut_verify.verdict import Finding
    except ImportError:
        return [_unknown("the package truecut-verify is not installed")]
    try:
        with opened([folder]) as folders:
            checks = [check for one in folders for check in examine(one, None).checks]
    except (WrongUsage, OSError):
        return [_unknown("there is no certificate yet")]
    except Finding as finding:
        return [Checked("", "", finding.verdict, finding.detail, level="V0")]
    return [
        Checked(
            check.table,
            check.sink,
            check.verdict,
            check.detail,
            Position.parse(check.frontier) if check.frontier else None,
            level=check.level,
        )
        for check in checks
    ]


def _unknown(why: str) -> Checked:
    return Checked("", "", "unknown", why, level="V0")
