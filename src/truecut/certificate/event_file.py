"""A Parquet file of evidence, hashed as it is written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from truecut.certificate import durable
from truecut.certificate.events import SCHEMA

GROUP_ROWS = 1 << 17
_COMPRESSED = {"place", "seq", "op", "xid", "unit", "route", "partial"}  # digests are as good as random
_FEW = {"op", "route"}  # values, of many rows


class EventFile:
    """On its way in a copy's folder, under a name that nobody looks for."""

    def __init__(self, folder: Path, about: Mapping[bytes, bytes], schema: pa.Schema = SCHEMA) -> None:
        self.path = durable.unfinished(folder)
        self.rows, self.sha256 = 0, ""
        self._hashed = _Hashed(open(self.path, "xb"))  # noqa: SIM115 - closed by `close` or `abandon`
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._hashed, "w"),
            schema.with_metadata(about),
            compression={name: "zstd" for name in schema.names if name in _COMPRESSED},
            use_dictionary=[name for name in schema.names if name in _FEW],
            write_statistics=False,
        )

    def write(self, events: pa.Table) -> None:
        """Some more of them."""
        self._writer.write_table(events, row_group_size=GROUP_ROWS)
        self.rows += events.num_rows

    def close(self) -> None:
        """Whole and synced, still without a name of its own."""
        self._writer.close()
        self._hashed.file.flush()
        os.fsync(self._hashed.file.fileno())
        self._hashed.file.close()
        self.sha256 = self._hashed.hash.hexdigest()

    def abandon(self) -> None:
        """Nothing will come of it."""
        self._hashed.dropped = True  # the writer has a last word, whenever it goes
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._hashed.file.close()
        self.path.unlink(missing_ok=True)


class _Hashed:
    """A file object; everything written to it is hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash = file, hashlib.sha256()
        self.closed = self.dropped = False

    def write(self, data: bytes) -> int:
        if self.dropped:
            return len(data)
        self.hash.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True
