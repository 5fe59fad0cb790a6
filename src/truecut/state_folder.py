"""What Truecut keeps in a pipeline's state folder, by name: the one list of it.

Whoever writes there takes the name from here, and `drop` removes these names and nothing else: a folder
that users named may hold what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CONTROL = "control.db"
SPARK_LOG = "spark.log"
WAREHOUSE = "spark-warehouse"  # empty: Spark insists on it
PAUSE = "pause"
RESUME = "resume"
JOURNAL = "journal"  # of a source that is captured
UNITS = "units"  # its tables as they were read: files, and what is known of them
CERTIFICATES = "certificates"  # and their evidence
SPOOL = "spool"  # its large transactions, until they commit

_CONTROL_FILES = (CONTROL, f"{CONTROL}-wal", f"{CONTROL}-shm")
_REQUESTS = {PAUSE: ("all", "sink=*", "table=*"), RESUME: ("table=*",)}


def remove(state: Path, *, control: bool) -> list[Path]:
    """Take away what Truecut made; returns what stays, because somebody else did. `control`: the store, too.

    Links are not followed: what they lead to is somebody's own.
    """
    if not state.is_dir():
        return []
    for path in _made(state, control=control):
        path.unlink(missing_ok=True)
    for folder in (state / PAUSE, state / RESUME, state / WAREHOUSE, state):
        with suppress(OSError):  # not there, not empty, or a link
            folder.rmdir()
    return sorted(state.iterdir()) if state.is_dir() else []


def _made(state: Path, *, control: bool) -> Iterator[Path]:
    for name in (SPARK_LOG, *(_CONTROL_FILES if control else ())):
        if (state / name).is_file() and not (state / name).is_symlink():
            yield state / name
    for name, patterns in _REQUESTS.items():
        if not (state / name).is_symlink():
            yield from (path for pattern in patterns for path in (state / name).glob(pattern))
