"""What Truecut keeps in a pipeline's state folder, by name: the one list of it.

Whoever writes there takes the name from here, and `drop` removes these names and nothing else: a folder
that users named may hold what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from truecut.errors import ExitCode, TruecutError

CONTROL = "control.db"
SPARK_LOG = "spark.log"
WAREHOUSE = "spark-warehouse"  # empty: Spark insists on it
PAUSE = "pause"
RESUME = "resume"
BACKFILL = "backfill"  # tables that somebody wants read again
LAST_REQUEST = "requests.last"  # its number
JOURNAL = "journal"  # of a source that is captured
UNITS = "units"  # its tables as they were read: files, and what is known of them
CERTIFICATES = "certificates"  # and their evidence
WITNESS = "witness.json"  # up to where the source's log has been compared once more
SPOOL = "spool"  # its large transactions, until they commit

_CONTROL_FILES = (CONTROL, f"{CONTROL}-wal", f"{CONTROL}-shm")
_REQUESTS = {
    PAUSE: ("all", "sink=*", "table=*"),
    RESUME: ("table=*",),
    BACKFILL: ("table=*", "sink=*/table=*"),
}


@contextmanager
def writing_to(state: Path) -> Iterator[None]:
    """What the system refuses in this block is told in our words."""
    try:
        yield
    except OSError as error:
        raise TruecutError(
            "TC5012",
            f"the state folder {state} cannot be made or written to ({error.strerror})",
            fix="Make it, or its parent, writable for this user; or choose another with `spec.state`.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        ) from error


def remove(state: Path, *, control: bool) -> list[Path]:
    """Take away what Truecut made; returns what stays, because somebody else did. `control`: the store, too.

    Links are not followed: what they lead to is somebody's own.
    """
    if not state.is_dir():
        return []
    for path in _made(state, control=control):
        path.unlink(missing_ok=True)
    of_sinks = [] if (state / BACKFILL).is_symlink() else sorted((state / BACKFILL).glob("sink=*"))
    for folder in (
        *of_sinks,
        *(state / name for name in (PAUSE, RESUME, BACKFILL, WAREHOUSE)),
        state,
    ):
        with suppress(OSError):  # not there, not empty, or a link
            folder.rmdir()
    return sorted(state.iterdir()) if state.is_dir() else []


def _made(state: Path, *, control: bool) -> Iterator[Path]:
    for name in (SPARK_LOG, LAST_REQUEST, WITNESS, *(_CONTROL_FILES if control else ())):
        if (state / name).is_file() and not (state / name).is_symlink():
            yield state / name
    for name, patterns in _REQUESTS.items():
        if not (state / name).is_symlink():
            found = (path for pattern in patterns for path in (state / name).glob(pattern))
            yield from (path for path in found if path.is_symlink() or path.is_file())
