"""Capture as a process: `python -m tests.sources.postgres.capturing CONNINFO SLOT FOLDER [drain]`.

Runs until a file `stop` is in the folder, or, with `drain`, until everything that is there is captured.
ROOM_MIB caps its memory at so much more than it has when it begins; BUFFERED=1 makes it keep transactions
that have not committed in memory, however large, which is what the cap has to catch.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from truecut.config.secret import Secret
from truecut.journal.contract import Journal
from truecut.journal.local import LocalJournal
from truecut.runtime.capture_lease import CaptureLease
from truecut.runtime.capture_watch import watch
from truecut.runtime.control import open_control
from truecut.sources.postgres.capture import Capture, Pace
from truecut.sources.postgres.server import Address
from truecut.sources.postgres.spool import Spool

LEASE_MS = 1500


def main(conninfo: str, slot: str, folder: Path, drain: bool) -> None:
    store = open_control(Secret(str(folder / "control.db")), pipeline="shop/capture")
    lease = CaptureLease(store, owner=f"p{os.getpid()}", source=slot, duration_ms=LEASE_MS)
    address = Address(Secret(conninfo), slot, "truecut")
    pace = Pace(look_s=0.3, wait_s=0.05)
    if os.environ.get("SIZES") != "usual":  # so that small transactions are large
        pace = replace(pace, append_bytes=20_000, block_bytes=4_000)

    def begin(journal: Journal, check: Callable[[], None]) -> Capture:
        capture = Capture(address, journal, check=check, pace=pace)
        if os.environ.get("BUFFERED"):
            capture._spool = partial(Spool, None, memory_max=1 << 62)
        if room := os.environ.get("ROOM_MIB"):
            _cap(int(room) << 20)
        return capture

    watch(
        lease,
        partial(LocalJournal, folder / "journal", take_over=True),
        begin,
        stop=lambda drained: (drain and drained) or (folder / "stop").exists(),
        wait=time.sleep,
    )
    store.close()


def _cap(more_bytes: int) -> None:
    """On what a process writes to: heap, anonymous memory, the stacks of its threads."""
    status = Path("/proc/self/status").read_text()
    (has,) = (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (has + more_bytes, has + more_bytes))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:] == ["drain"])
