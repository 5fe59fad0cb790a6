"""Files that are there whole or not at all: written under another name, synced, then given their own.

Used on the driver and on executors, which share the certificates' folder.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

UNFINISHED = ".unfinished"


def unfinished(folder: Path) -> Path:
    """A name in that folder that nobody else has."""
    return folder / f"{secrets.token_hex(8)}{UNFINISHED}"


def keep(made: Path, final: Path) -> None:
    """Give a file that was written and synced its own name, whatever stands there."""
    os.replace(made, final)
    sync_folder(final.parent)


def keep_first(made: Path, final: Path) -> bool:
    """The same, but whoever comes first wins; False: somebody else has."""
    try:
        os.link(made, final)
    except FileExistsError:
        return False
    finally:
        made.unlink(missing_ok=True)
    sync_folder(final.parent)
    return True


def write(folder: Path, data: bytes, *, mode: int = 0o644) -> Path:
    """An unfinished file with these bytes, synced."""
    made = unfinished(folder)
    descriptor = os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return made


def sync_folder(folder: Path) -> None:
    """Names last, too."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
