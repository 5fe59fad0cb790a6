"""Capture as a process: `python -m tests.sources.postgres.capturing CONNINFO SLOT FOLDER [drain]`.

Runs until a file `stop` is in the folder, or, with `drain`, until everything that is there is captured.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from truecut.config.secret import Secret
from truecut.journal.local import LocalJournal
from truecut.runtime.capture_lease import CaptureLease
from truecut.runtime.capture_watch import watch
from truecut.runtime.control import open_control
from truecut.sources.postgres.capture import Capture, Pace
from truecut.sources.postgres.server import Address

LEASE_MS = 1500


def main(conninfo: str, slot: str, folder: Path, drain: bool) -> None:
    store = open_control(Secret(str(folder / "control.db")), pipeline="shop/capture")
    lease = CaptureLease(store, owner=f"p{os.getpid()}", source=slot, duration_ms=LEASE_MS)
    address = Address(Secret(conninfo), slot, "truecut")
    pace = Pace(look_s=0.3, wait_s=0.05)
    if os.environ.get("SIZES") != "usual":  # so that small transactions are large
        pace = replace(pace, append_bytes=20_000, block_bytes=4_000)
    watch(
        lease,
        partial(LocalJournal, folder / "journal", take_over=True),
        lambda journal, check: Capture(address, journal, check=check, pace=pace),
        stop=lambda drained: (drain and drained) or (folder / "stop").exists(),
        wait=time.sleep,
    )
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:] == ["drain"])
