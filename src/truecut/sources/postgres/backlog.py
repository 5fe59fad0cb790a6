"""Reading what has piled up, in big gulps: the cheapest way, for us and for the server.

A gulp is `pg_logical_slot_peek_binary_changes` bounded by a number of messages and by bytes of the log. It
ends at a commit, is read in portions, and leaves the slot where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from truecut.sources.postgres import server
from truecut.sources.postgres.faults import identifier
from truecut.sources.postgres.messages import lsn_text
from truecut.sources.postgres.server import Address, Connection, answering, promptly

MESSAGES_MAX = 200_000  # the server reads its log again from the oldest open transaction for each gulp
LOG_BYTES_MAX = 256 << 20  # it keeps a gulp in a temporary file
PORTION = 5_000

_PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s,
  'proto_version', '1', 'publication_names', %s, 'messages', 'true')
"""


class Gulp:
    """One call. After its end `drained` tells whether everything that committed up to `upto` was in it."""

    def __init__(self, *, after: int, flushed: int, at_least: int = 0) -> None:
        """`at_least`: of a transaction that must be in it."""
        self.upto = max(min(flushed, after + LOG_BYTES_MAX), at_least)
        self.messages = 0

    @property
    def drained(self) -> bool:
        """The server stops at a commit once it has so many messages; with fewer it came to the end."""
        return self.messages < MESSAGES_MAX

    def portions(self, connection: Connection, address: Address) -> Iterator[list[bytes]]:
        """Its messages, in order."""
        arguments = (address.slot, lsn_text(self.upto), MESSAGES_MAX, identifier(address.publication))
        with answering(address, "show its changes"), connection.cursor(binary=True) as cursor:
            rows = cursor.stream(_PEEK, arguments, size=PORTION)
            while portion := self._next(rows, connection.fileno()):
                self.messages += len(portion)
                yield portion

    def _next(self, rows: Iterator[tuple[bytes]], line: int) -> list[bytes]:
        with promptly(line, within_s=server.WORK_S):
            return [row[0] for row in islice(rows, PORTION)]
