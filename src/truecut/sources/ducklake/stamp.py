"""Whether a catalog that is a file may have changed, at the price of a look at its folder entry.

A stamp that is young proves nothing: the clock of a file system ticks every few milliseconds, and a second
commit within one tick may leave the file's time and size as they were.
"""

from __future__ import annotations

import os
import time

from truecut.lake import LakeAddress

SETTLED_NS = 100_000_000  # older than any tick
_LOGS = {"duckdb": ".wal", "sqlite": "-wal"}

Stamp = tuple[tuple[int, int, int] | None, ...]


def stamp_of(address: LakeAddress) -> Stamp | None:
    """What changes with every commit; None where it cannot be told, or not yet."""
    log = _LOGS.get(address.kind)
    if log is None:
        return None
    path = address.target.reveal()
    stamp = (_file(path), _file(path + log))
    newest = max((found[0] for found in stamp if found is not None), default=None)
    settled = newest is not None and abs(time.time_ns() - newest) > SETTLED_NS
    return stamp if settled and stamp[0] is not None else None


def _file(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
