"""The proofs, checked once for each file of tests, in a folder of their own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.proofs.vernacular import PROOFS


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every file was accepted by Coq, and the extracted checker was compiled."""
    assert shutil.which("coqc"), "Coq is not installed: `make coq` does it on Debian as root"
    folder = tmp_path_factory.mktemp("proofs")
    for file in (*PROOFS.glob("*.v"), PROOFS / "verdicts.ml", PROOFS / "Makefile"):
        shutil.copy(file, folder)
    made = subprocess.run(
        ["make", "--silent", "all", "verdicts"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return folder
