"""The log as a stream: where it begins, how much comes at once, and where it ends for now.

An offset is a position: everything up to it has been read. It always stands at the end of a transaction,
unless the user began inside of one. Nothing is kept here that Spark's checkpoint does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from truecut.journal.contract import JournalReader
from truecut.journal.extent import extent, last_whole
from truecut.journal.opening import open_reader
from truecut.model.position import Position
from truecut.spark.source.options import Options
from truecut.spark.source.ranges import Reading, check_reach, divide, first_after

WAIT_S = 1.0  # for something new, before Spark is told that there is nothing


class TruecutStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """On the driver, in a Python process of its own for as long as the query runs."""

    def __init__(self, options: Options, reading: Reading) -> None:
        self._options = options
        self._reading = reading
        self._target: Position | None = None  # where a run ends that takes what is available now
        self._reader: JournalReader | None = None

    def initialOffset(self) -> dict[str, str]:
        """Where a query without a checkpoint begins."""
        start = self._options.start
        reader = self._open()
        if isinstance(start, Position):
            return _offset(start)
        first = first_after(reader)
        if start == "earliest":
            return _offset(first)
        return _offset(last_whole(reader, after=first) or first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one limit at a time; the other one is kept here."""
        return ReadMaxBytes(self._options.bytes_max)

    def reportLatestOffset(self) -> dict[str, str] | None:
        """For Spark's progress reports."""
        head = self._open().head()
        return None if head is None else _offset(head)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is the end."""
        reader = self._open()
        first = first_after(reader)
        self._target = last_whole(reader, after=first) or first

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """The end of the next batch; `start`, if nothing has come after a short wait."""
        after = _position(start)
        reader = self._open()
        check_reach(reader, after=after)
        deadline = time.monotonic() + (WAIT_S if self._target is None else 0.0)
        seen = after
        while True:
            left = max(0.0, deadline - time.monotonic())
            head = reader.wait(after=seen, timeout_s=left)
            if head is not None and head > seen:
                seen = head  # an unfinished transaction is not looked through again for nothing
                end = self._extent(reader, after, limit)
                if end is not None:
                    return _offset(end)
            if not left:
                return start

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The batch in parts. Also asked after a restart, for a batch that was begun before it."""
        after, upto = _position(start), _position(end)
        check_reach(self._open(), after=after, upto=upto)
        return divide(self._open(), after=after, upto=upto)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task, on an executor."""
        return self._reading.read(partition)

    def stop(self) -> None:
        """The query has ended."""
        if self._reader is not None:
            self._reader.close()

    def _extent(self, reader: JournalReader, after: Position, limit: ReadLimit) -> Position | None:
        if self._target is not None and after >= self._target:
            return None
        if isinstance(limit, ReadAllAvailable):
            return extent(reader, after=after, upto=self._target)
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        return extent(reader, after=after, upto=self._target, rows_max=rows, bytes_max=size)

    def _open(self) -> JournalReader:
        if self._reader is None:
            self._reader = open_reader(self._reading.where)
        return self._reader

    def __getstate__(self) -> dict[str, object]:
        """What goes to executors: never anything open."""
        return {**self.__dict__, "_reader": None}


def _offset(position: Position) -> dict[str, str]:
    return {"position": str(position)}


def _position(offset: dict[str, str]) -> Position:
    return Position.parse(offset["position"])
