"""Named places where a test can kill, hang or break the process, at every durable step.

Off unless the environment variable TRUECUT_FAILPOINT is set: `name` or `name:3` exits with status 137 (as
after kill -9) at the first or third hit in this process, `name:hang` blocks for good, `name:stop` stops the
process until it is sent SIGCONT, `name:error` raises OSError. TRUECUT_FAILPOINT_HITS names a folder in which
a point that fires leaves a file of its own name that holds the process id; with it a point fires once, in
whichever process comes first. `@FOLDER` stands for whatever is armed while the process runs: a point for
which there is a file of its name takes it away and exits, once. If `hold` is written in it, the point waits
instead for as long as the file, called `name.held` by then, is there.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from truecut.errors import require

DELIVERY = frozenset(
    {
        "before_sink_transaction",
        "after_sink_data",
        "before_sink_commit",
        "after_sink_commit",
        "after_takeover",
        "after_claim",
        "before_wave",
        "after_wave",
    }
)
STAGING = frozenset(
    {"after_piece_staged", "before_pieces_gathered", "base_pieces_kept"}
)  # of a seed, by many tasks
JOURNAL = frozenset(
    {
        "journal_epoch_raised",
        "journal_segment_made",
        "journal_written",
        "journal_synced",
        "journal_published",
        "node_written",
        "node_synced",
        "node_fenced",
        "node_ended",
        "node_copied",
        "coordinator_saving",
        "coordinator_saved",
    }
)
CAPTURE = frozenset(
    {
        "capture_publication_made",
        "capture_slot_made",
        "capture_begun",
        "capture_read",
        "capture_part_appended",
        "capture_appended",
        "capture_released",
    }
)
BACKFILL = frozenset({"units_awaited", "units_planned", "unit_opened", "unit_written", "unit_recorded"})
EVIDENCE = frozenset(
    {
        "segment_written",
        "segment_kept",
        "ledger_folded",
        "copies_kept",
        "certificate_written",
        "certificate_kept",
    }
)
TRIMMING = frozenset({"evidence_trimmed", "certificate_trimmed"})
HANDING_OVER = frozenset({"key_prepared", "key_handed_over"})  # of the key that signs
NAMES = DELIVERY | STAGING | JOURNAL | CAPTURE | BACKFILL | EVIDENCE | TRIMMING | HANDING_OVER

KILLED = 137
_hits: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Do what the environment asks for at this point: nothing, unless it names it."""
    asked = os.environ.get("TRUECUT_FAILPOINT", "")
    require(name in NAMES, f"{name} is a registered failpoint")
    if asked.startswith("@"):
        _fire_if_armed(os.path.join(asked[1:], name), name)
    wanted, _, how = asked.partition(":")
    if wanted != name:
        return
    _hits[name] += 1
    if how.isdigit() and _hits[name] != int(how):
        return
    if _first_to_fire(name):
        _fire(name, how)


def _fire_if_armed(file: str, name: str) -> None:
    """Whoever takes the file away is the one that fires."""
    held = f"{file}.held"
    try:
        os.rename(file, held)
    except FileNotFoundError:
        return
    if Path(held).read_text() == "hold":
        while os.path.exists(held):
            time.sleep(0.05)
        return
    os.unlink(held)
    _fire(name, "")


def _first_to_fire(name: str) -> bool:
    folder = os.environ.get("TRUECUT_FAILPOINT_HITS")
    if not folder:
        return True
    try:
        file = os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(file, str(os.getpid()).encode())
    os.close(file)
    return True


def _fire(name: str, how: str) -> None:
    if how == "error":
        raise OSError(errno.EIO, f"failpoint {name}")
    if how == "hang":
        threading.Event().wait()
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    os._exit(KILLED)
