"""`make test` as a whole: what fails in it fails it, and nothing in it waits without need."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("python", "ruff", "lint-imports", "mypy")
MEETS = "touch {own}; while [ ! -e {other} ]; do sleep 0.05; done"


def made(folder: Path, tools: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """In a checkout whose tools do no more than this; nothing is set up or installed."""
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.lock", "pyproject.toml", "scripts/setup.sh", ".ready"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "bin").mkdir()
    programs = {f"bin/{name}": tools.get(name, "true") for name in TOOLS}
    for name, does in {**programs, "scripts/coq.sh": "true"}.items():
        (folder / name).write_text(f"#!/bin/sh\necho {Path(name).name} was here\n{does}\n")
        (folder / name).chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ("make", "test", "VENV=.")
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.parametrize("fails", [None, *TOOLS])
def test_lint_counts_as_the_tests_do(tmp_path: Path, fails: str | None) -> None:
    """Whichever of them fails, `make test` fails; what it had to say is there to be read."""
    done = made(tmp_path, {} if fails is None else {fails: "exit 1"})
    assert (done.returncode != 0) == (fails is not None)
    assert f"{fails or 'python'} was here" in done.stdout


def test_lint_runs_beside_the_tests(tmp_path: Path) -> None:
    """Neither waits for the other's end: each goes on once the other has begun."""
    tests, lint = MEETS.format(own="tests", other="lint"), MEETS.format(own="lint", other="tests")
    assert made(tmp_path, {"python": tests, "ruff": lint}).returncode == 0
