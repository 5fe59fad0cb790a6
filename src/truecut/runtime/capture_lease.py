"""Who captures a source: one process at a time, by a lease in the control store.

The lease divides the work; what keeps it correct is the journal's epoch, which a newcomer raises, and the
slot, whose other sessions it ends. Promises: `check` lets nobody pass whose lease may have run out, by a
clock that also runs while the process is stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from truecut.errors import Retry, TruecutError
from truecut.runtime.control import ControlStore

log = logging.getLogger(__name__)


class CaptureLease:
    """Of one source, for one process. The store is that of `PIPELINE/capture`: its processes are not counted
    among those that share the sinks."""

    def __init__(
        self,
        store: ControlStore,
        *,
        owner: str,
        source: str,
        duration_ms: int,
        report: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """`report`: what the store is told with every renewal."""
        self._report = report
        self._store = store
        self._owner = owner
        self._source = source
        self._duration_ms = duration_ms
        self._until_s = 0.0
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None

    def acquire(self) -> bool:
        """Whether it is ours now."""
        asked_s = time.monotonic()
        claimed = self._store.claim(self._owner, [self._source], duration_ms=self._duration_ms, count_max=1)
        if self._source not in claimed:
            return False
        self._until_s = asked_s + self._duration_ms / 1_000
        self._over.clear()
        self._renewing = threading.Thread(target=self._renew_until_over, name="capture lease", daemon=True)
        self._renewing.start()
        return True

    def check(self) -> None:
        """Raise when it may be somebody else's by now."""
        if time.monotonic() >= self._until_s:
            raise lease_lost()

    def release(self) -> None:
        """Let the next one have it at once."""
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
        self._until_s = 0.0
        try:
            self._store.leave(self._owner)
        except TruecutError as error:
            log.warning("the lease of capture runs out by itself: %s", error.fault.message)

    def _renew_until_over(self) -> None:
        while not self._over.wait(self._duration_ms / 4_000):
            asked_s = time.monotonic()
            try:
                held, _ = self._store.heartbeat(
                    self._owner, duration_ms=self._duration_ms, report=self._report(), ours=[self._source]
                )
            except TruecutError as error:
                log.warning("the lease of capture could not be renewed: %s", error.fault.message)
                continue
            if self._source not in held:
                self._until_s = 0.0
                return
            self._until_s = asked_s + self._duration_ms / 1_000


def lease_lost() -> TruecutError:
    """Another capture has, or may have, taken over."""
    return TruecutError(
        "TC2114",
        "this capture's lease has run out, and another one may have taken over",
        fix="None needed: it goes on when the lease can be had again.",
        retry=Retry.RETRYABLE,
    )
