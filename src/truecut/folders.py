"""Whether folders of this machine can be written to: by trying, for permissions are not all that decides.

What is made for that has a name of its own and is gone at once.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from truecut.errors import Fault

# What it means when one cannot: code, words, remedy.
NO_PERMISSION = ("TC4003", "no permission to write", "Make the folder writable for this user.")
NO_FOLDER = (
    "TC4007",
    "a folder is missing or cannot be created",
    "Check the paths of catalog and data, and that their parents are folders.",
)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def not_writable(folder: Path) -> OSError | None:
    """Why nothing can be written into a folder, or why it cannot be made. A full disk is another question."""
    place = nearest(folder)
    if not place.is_dir():
        return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    try:
        _try(place, folder_too=place != folder)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EPERM, errno.EACCES):
            return denied()
        return None if error.errno in _FULL else error
    return None


def _try(place: Path, *, folder_too: bool) -> None:
    if not folder_too:
        tempfile.TemporaryFile(dir=place).close()
        return
    with tempfile.TemporaryDirectory(dir=place, prefix=".truecut-") as made:
        tempfile.TemporaryFile(dir=made).close()


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
