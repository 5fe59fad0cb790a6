"""specs/AUDIT.md stands for the spec and the code as they are."""

from __future__ import annotations

import subprocess
import sys

from specs import tlc


def test_every_action_and_law_has_its_function_and_its_test() -> None:
    """A missing pair, a function or test that is gone, or a stale file fails the build."""
    done = subprocess.run(
        [sys.executable, str(tlc.SPECS / "audit.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0
