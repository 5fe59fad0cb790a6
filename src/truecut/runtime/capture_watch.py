"""Capture that goes on: waits for the lease, takes the journal over, and begins again after what passes.

Promises: a fault that a retry can help with is tried again, of the source, the journal or the control store,
with pauses that grow until a run has lasted; one that it cannot is raised and leaves everything as it is. A
journal that is full is waited for with the lease in hand, so that whoever asks is told why it rests.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Protocol

from truecut.errors import Retry, TruecutError
from truecut.journal.contract import Journal
from truecut.runtime.capture_lease import CaptureLease

log = logging.getLogger(__name__)

PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 30.0
FULL_PAUSE_S = 2.0
FENCED = "TC6003"
FULL = "TC6005"


class Loop(Protocol):
    """What captures as long as it may."""

    def run(self, stop: Callable[[bool], bool]) -> None: ...


def watch(
    lease: CaptureLease,
    open_journal: Callable[[], Journal],
    make: Callable[[Journal, Callable[[], None]], Loop],
    *,
    stop: Callable[[bool], bool],
    wait: Callable[[float], object],
) -> None:
    """Until `stop` says so. `make` gets the journal and what must be asked before every durable step."""
    pause_s = PAUSE_MIN_S
    while not stop(False):
        began_s = time.monotonic()
        try:
            if not lease.acquire():
                wait(PAUSE_MIN_S)
                continue
            try:
                while not _is_done(lease, open_journal, make, stop):
                    wait(FULL_PAUSE_S)
                return
            finally:
                lease.release()
        except TruecutError as error:
            if error.fault.retry is not Retry.RETRYABLE and error.fault.code != FENCED:
                raise
            log.warning("capture begins again: %s", error.fault.message)
        if time.monotonic() - began_s > PAUSE_MAX_S:
            pause_s = PAUSE_MIN_S
        wait(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(PAUSE_MAX_S, 2 * pause_s)


def _is_done(
    lease: CaptureLease,
    open_journal: Callable[[], Journal],
    make: Callable[[Journal, Callable[[], None]], Loop],
    stop: Callable[[bool], bool],
) -> bool:
    """False where the journal is full: every attempt trims it, and its last segment ends with each."""
    try:
        _once(lease, open_journal, make, stop)
    except TruecutError as error:
        if error.fault.code != FULL:
            raise
        log.warning("capture waits: %s", error.fault.message)
        return stop(False)
    return True


def _once(
    lease: CaptureLease,
    open_journal: Callable[[], Journal],
    make: Callable[[Journal, Callable[[], None]], Loop],
    stop: Callable[[bool], bool],
) -> None:
    journal = open_journal()
    try:
        make(journal, lease.check).run(stop)
    finally:
        journal.close()
