"""What the certificates' files alone can show, as the independent verifier says it (V0 to V2).

It is a distribution of its own, which shares no code with this one; where it is not installed nobody can say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from truecut.certificate.sign import own_public_key
from truecut.model.position import Position
from truecut.runtime.checked import Checked

if TYPE_CHECKING:
    from truecut_verify.files import Examined
    from truecut_verify.verdict import Check

    More = Callable[[Examined], Sequence[Check]]


def examined(folder: Path, more: More = lambda _: []) -> list[Checked]:
    """Every copy, level by level, under the key that signs here; `more`: what else is asked of what was
    found."""
    try:
        from truecut_verify.files import examine
        from truecut_verify.folder import WrongUsage, opened
        from truecut_verify.verdict import Finding
    except ImportError:
        return [_unknown("the package truecut-verify is not installed")]
    try:
        with opened([folder]) as folders:
            every = [examine(one, own_public_key(folder)) for one in folders]
            checks = [check for one in every for check in (*one.checks, *more(one))]
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
