"""Who keeps others out of a SQLite file: the process that writes to it, as far as the machine tells.

A process that is stopped inside a write keeps its lock for as long as it is stopped, and nobody can take it.
So whoever waits for it should at least be told whom to wake up. Only looks: opening the locked file here
would, by POSIX' rules, drop the locks of this very process on it when it is closed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LOCKS = Path("/proc/locks")  # Linux; elsewhere nobody is named
_WRITER_BYTE = 120  # SQLite's lock of the one who writes to a write-ahead log, in the file beside it


def writer_of(path: Path) -> int | None:
    """The process that is inside a write to this file; None: nobody, or it cannot be told."""
    with suppress(OSError, ValueError):
        inode = os.stat(f"{path}-shm").st_ino
        return next((pid for pid, of, span in _write_locks() if of == inode and _WRITER_BYTE in span), None)
    return None


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped this process (SIGSTOP, Ctrl-Z)."""
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in ("T", "t")
    return False


def _write_locks() -> list[tuple[int, int, range]]:
    """(process, inode, bytes) of each lock that excludes others."""
    found = []
    for line in _LOCKS.read_text().splitlines():
        words = line.split()
        if "WRITE" in words and "->" not in words:  # an arrow: it only waits
            pid, file, first, last = words[-4:]
            end = 1 << 62 if last == "EOF" else int(last)
            found.append((int(pid), int(file.rpartition(":")[2]), range(int(first), end + 1)))
    return found
