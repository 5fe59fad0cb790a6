"""Whether folders of this machine can be written to, asked of the file system without writing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from truecut.errors import Fault

# What it means when one cannot: code, words, remedy.
NO_PERMISSION = ("TC4003", "no permission to write", "Make the folder writable for this user.")
NO_FOLDER = (
    "TC4007",
    "a folder is missing or cannot be created",
    "Check the paths of catalog and data, and that their parents are folders.",
)


def not_writable(folder: Path) -> OSError | None:
    """Why nothing can be written into a folder, or why it cannot be made."""
    place = nearest(folder)
    if not place.is_dir():
        return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return None if os.access(place, os.W_OK | os.X_OK) else denied()


def fault_of(trouble: OSError, *, what: str) -> Fault:
    """The same as data."""
    code, meaning, fix = NO_PERMISSION if isinstance(trouble, PermissionError) else NO_FOLDER
    return Fault(code, f"{what}: {meaning}", fix)


def denied() -> OSError:
    """As the system itself would say it."""
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def nearest(path: Path) -> Path:
    """The path itself, or the nearest of its parents that exists."""
    return next((place for place in (path, *path.parents) if os.path.lexists(place)), Path("/"))
