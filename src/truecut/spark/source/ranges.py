"""Ranges of the log as Spark's partitions: how a range is divided, and what a task does with its share.

A task gets a few numbers and where the log is; it opens the log itself. The same range gives the same rows
every time, wherever it runs, for as long as the log holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from truecut.errors import require
from truecut.journal import faults as journal_faults
from truecut.journal.contract import Entry, JournalReader
from truecut.journal.decoding import RECORD, Changes
from truecut.journal.extent import before, estimate_bytes
from truecut.journal.opening import Where, open_reader
from truecut.model.position import Position
from truecut.spark.source import faults
from truecut.spark.source.decode import Run, decode
from truecut.spark.source.rendering import UnchangedUnseen, render
from truecut.spark.source.typed import Incompatible

PARTITION_BYTES = 16 << 20
PARTITIONS_MAX = 1_000
SEEN_S = 10.0
NOTHING = Position(0, 0)  # before the first record of any log


@dataclass(frozen=True)
class Range(InputPartition):
    """The records `(after, upto]`."""

    after: Position
    upto: Position


def first_after(reader: JournalReader) -> Position:
    """`after` this, everything is read that is still there."""
    oldest = reader.oldest()
    return before(oldest) if oldest is not None else reader.head() or NOTHING


def check_reach(reader: JournalReader, *, after: Position, upto: Position | None = None) -> None:
    """A range that is not there any more, or not yet, is an error before anything is read."""
    head = reader.head()
    for position in (after, upto):
        if position is not None and position.place and (head is None or position > head):
            raise journal_faults.ends_before(position, head=head)
    if head is not None and after.place < head.place:
        # Looks at one head: what has been trimmed says so.
        next(reader.heads(after=after), None)


def divide(reader: JournalReader, *, after: Position, upto: Position) -> list[Range]:
    """The range in parts of about the same number of records, as many as its size is worth."""
    records = upto.place - after.place
    if records <= 0:
        return []
    size = estimate_bytes(reader, after=after.place, upto=upto)
    count = max(1, min(records, PARTITIONS_MAX, -(-size // PARTITION_BYTES)))
    places = [after.place + records * n // count for n in range(1, count)]
    # The generation of a place between is not known, and a bound's need not be right.
    bounds = [after, *(Position(after.generation, place) for place in places), upto]
    return [Range(low, high) for low, high in pairwise(bounds)]


@dataclass(frozen=True)
class Reading:
    """What every task of a query knows."""

    where: Where
    table: str | None
    schema: pa.Schema

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        if not isinstance(part, Range):  # Spark makes one up where there are none
            return
        with closing(open_reader(self.where)) as reader:
            for run in decode(_all_of(reader, part), table=self.table):
                yield from self._rendered(run)

    def _rendered(self, run: Run) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._render(run)
        except ValueError:
            # A run is rendered as a whole; now each record by itself, to name the one it is.
            for position, one in _each(run):
                self._raise_fault(position, one)
            raise

    def _render(self, run: Run) -> Iterator[pa.RecordBatch]:
        return render(run.changes, [str(one) for one in run.positions], self.schema)

    def _raise_fault(self, position: Position, run: Run) -> None:
        try:
            for _ in self._render(run):
                pass
        except Incompatible as error:
            raise faults.incompatible(str(self.table), position, error) from None
        except UnchangedUnseen:
            raise faults.unchanged_unseen(str(self.table), position) from None
        except ValueError as error:
            # The text of Arrow's errors may hold values.
            reason = str(error) if type(error) is ValueError else type(error).__name__
            raise journal_faults.undecodable(run.codec, position, reason) from None


def _all_of(reader: JournalReader, part: Range) -> Iterator[Entry]:
    """Every record of the range. A reader that does not see all of it yet is an error, never fewer rows."""
    place = part.after.place
    if place >= part.upto.place:
        return
    # The driver has seen it; the replica that this task asks may learn of it a little later.
    reader.wait(after=before(part.upto), timeout_s=SEEN_S)
    for entry in reader.read(after=part.after, upto=part.upto):
        place += 1
        require(entry.position.place == place, "records follow each other without a gap")
        yield entry
    if place < part.upto.place:
        raise journal_faults.ends_before(part.upto, head=reader.head())


def _each(run: Run) -> Iterator[tuple[Position, Run]]:
    for number, position in enumerate(run.positions):
        rows = [one.rows.filter(pc.equal(one.rows.column(RECORD), number)) for one in run.changes]
        changes = [Changes(one.table, one.key, few) for one, few in zip(run.changes, rows, strict=True)]
        yield position, Run(run.codec, run.positions, changes)
