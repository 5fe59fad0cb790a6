"""The command as users call it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S


def truecut(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `truecut` and return what it printed and its exit code."""
    return subprocess.run(
        [sys.executable, "-c", "from truecut.cli.main import main; main()", *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
