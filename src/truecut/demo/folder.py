"""The folder that a demo is made in: its own, and whatever else is there is left alone."""

from __future__ import annotations

import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from truecut.errors import ExitCode, TruecutError

_MARK = "made-by-truecut-demo"
# All that either demo leaves there: what it writes, what its pipelines and its databases do.
_MADE = (
    _MARK,
    ".truecut",
    "certificate.html",
    "certificates",
    "lake",
    "lakes",
    "pipeline.yaml",
    "run.log",
    "source-data",
    "tenants.csv",
    *(f"{lake}.ducklake{beside}" for lake in ("lake", "source") for beside in ("", ".wal", "-*")),
)


def fresh(folder: Path) -> None:
    """Empty, and marked as a demo's. Refused, and untouched, where anything is there that no demo made."""
    found = sorted(folder.iterdir()) if folder.exists() else []
    marked = folder / _MARK in found
    for path in found:
        if not marked or not any(fnmatchcase(path.name, made) for made in _MADE):
            raise TruecutError(
                "TC5020",
                f"{folder} is not a demo's alone: no demo made {path.name}",
                fix="Move it away, or choose another folder with --folder.",
                exit_code=ExitCode.WRONG_INPUT,
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()  # before anything goes: a demo that is interrupted here can be made again
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _MARK:
            path.unlink()
