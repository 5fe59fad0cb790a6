"""Whether a statement that runs for long is at work: asked of its server by another session.

One statement may move all rows of a large seed, and says nothing before it has ended. Its backend does: on a
processor it works; where it waits, it works if it is found waiting for something else the next time. Waiting
for a lock is no work, nor for a client or a clock. Promises: whoever asks for the pulse never waits; a
statement that is over soon costs nothing; a server that cannot be asked tells of no work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

PATIENCE_S = 5.0  # with a statement, before anybody asks
EVERY_S = 2.0
_TIMEOUTS = "-c statement_timeout=5s -c lock_timeout=5s"
# Of a statement in parallel, its workers count, too: their leader only waits for them.
_ASK = """
SELECT count(*) FILTER (WHERE wait_event IS NULL), string_agg(wait_event, ',' ORDER BY pid, wait_event)
FROM pg_catalog.pg_stat_activity
WHERE (pid = %(pid)s OR leader_pid = %(pid)s) AND state = 'active'
  AND coalesce(wait_event_type, '') NOT IN ('Lock', 'Client', 'Timeout', 'Activity', 'Extension')
"""


class Progress:
    """Of the statements of one session."""

    def __init__(self, conninfo: str, pid: int) -> None:
        self.asked = 0  # how often the server has answered
        self._conninfo = conninfo
        self._pid = pid
        self._begun_s: float | None = None
        self._next_s = 0.0
        self._asking = threading.Lock()
        self._waits: str | None = None
        self._signs = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """A statement runs in the block."""
        self._begun_s, self._waits = time.monotonic(), None
        try:
            yield
        finally:
            self._begun_s = None

    def read(self) -> float:
        """Grows while a statement is at work."""
        begun_s, now_s = self._begun_s, time.monotonic()
        if begun_s is not None and now_s >= max(begun_s + PATIENCE_S, self._next_s):
            self._next_s = now_s + EVERY_S
            if self._asking.acquire(blocking=False):
                threading.Thread(target=self._look_once, name="truecut progress", daemon=True).start()
        return self._signs

    def look(self) -> None:
        """Ask the server, and wait for its answer."""
        with (
            suppress(psycopg.Error, OSError),
            psycopg.connect(self._conninfo, autocommit=True, options=_TIMEOUTS) as connection,
        ):
            self._take(connection.execute(_ASK, {"pid": self._pid}).fetchone())

    def _look_once(self) -> None:
        try:
            self.look()
        finally:
            self._asking.release()

    def _take(self, found: tuple[Any, ...] | None) -> None:
        computing, waits = found or (0, None)
        if computing or (waits is not None and self._waits not in (None, waits)):
            self._signs += 1
        self._waits = waits
        self.asked += 1
