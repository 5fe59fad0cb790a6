"""A disk that is soon full: a small file system in memory. Only root may mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TinyDisk:
    """Mounted at `path`."""

    path: Path

    def grow(self, *, mib: int) -> None:
        """Somebody has made room."""
        subprocess.run(["mount", "-o", f"remount,size={mib}m", str(self.path)], check=True)


@contextmanager
def tiny_disk(path: Path, *, mib: int) -> Iterator[TinyDisk]:
    """Mounted for this block."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(path)], check=True)
    try:
        yield TinyDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
