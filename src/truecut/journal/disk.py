"""Files that are either there, whole, or not there."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Atomic and durable: whoever reads the path finds the old content or the new one."""
    aside = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(descriptor, [data])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names that were created or removed durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, parts: list[bytes]) -> None:
    """All of it, however often the system stops half-way."""
    for low in range(0, len(parts), os.sysconf("SC_IOV_MAX")):
        pending = [memoryview(part) for part in parts[low : low + os.sysconf("SC_IOV_MAX")] if part]
        while pending:
            written = os.writev(descriptor, pending)
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if pending:
                pending[0] = pending[0][written:]
