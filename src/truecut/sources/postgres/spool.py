"""Messages that wait for their transaction's commit: a few in memory, the rest in a file without a name.

Promises: what was added comes back, in order, as often as asked; memory stays within `memory_max` however
much is added. The file goes with the process, however that ends: a transaction that has not committed is
sent again.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

from truecut.sources.postgres import faults, framing

MEMORY_MAX = 8 << 20

_CHUNK = struct.Struct("<Q")


class Spool:
    """The messages of one transaction."""

    def __init__(self, folder: Path | None = None, *, memory_max: int = MEMORY_MAX) -> None:
        self.bytes = 0  # of messages, all in all
        self._folder = folder
        self._memory_max = memory_max
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None

    def add(self, messages: Sequence[bytes]) -> None:
        """Behind what is there."""
        size = sum(map(len, messages))
        self.bytes += size
        self._held.extend(messages)
        self._held_bytes += size
        if self._held_bytes > self._memory_max:
            self._spill()

    def chunks(self) -> Iterator[list[bytes]]:
        """Everything, a few MiB at a time."""
        if self._file is not None:
            self._file.seek(0)
            while head := self._file.read(_CHUNK.size):
                yield _messages(self._file.read(*_CHUNK.unpack(head)))
        yield self._held

    def close(self) -> None:
        """Nobody needs it any more."""
        self._held = []
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        try:
            self._write()
        except OSError as error:
            raise faults.no_room(error.strerror or type(error).__name__) from error

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, prefix="transaction-")  # noqa: SIM115
        payload = framing.encode(self._held)
        self._file.seek(0, 2)
        self._file.write(_CHUNK.pack(len(payload)))
        self._file.write(payload)
        self._held = []
        self._held_bytes = 0


def _messages(payload: bytes) -> list[bytes]:
    offsets, data = framing.decode(payload)
    places = offsets.tolist()
    return [data[a:b] for a, b in pairwise(places)]
