"""The folder that a demo is made in: its own, whatever else is there is left alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from truecut.errors import ExitCode, TruecutError

_MARK = "made-by-truecut-demo"


def fresh(folder: Path) -> None:
    """Empty, and marked as a demo's; one that no demo made is refused."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARK).exists():
            raise TruecutError(
                "TC5020",
                f"{folder} is not empty and no demo made it",
                fix="Choose another folder with --folder.",
                exit_code=ExitCode.WRONG_INPUT,
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
