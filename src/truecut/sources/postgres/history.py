"""The journal as a log of transactions: which committed where, and the changes of one table.

Records are taken as they come, with the schemas that their heads name, so memory is bounded by a few. Ids of
transactions are 64 bits wide here: the stream has 32 of them, and a marker says which are near. The journal
keeps a transaction under its top-level id, whatever subtransaction made a change. Order is that of commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecut.core.visibility import Ids, Snapshot, nearest_of, seen
from truecut.errors import TruecutError, require
from truecut.journal.contract import JournalReader
from truecut.journal.record import Kind, Record
from truecut.model import change
from truecut.model.position import Position
from truecut.sources.postgres import journaled
from truecut.sources.postgres import stream as streams
from truecut.sources.postgres.decode import TableChanges, decode
from truecut.sources.postgres.relation import Relation, RelationColumn
from truecut.sources.postgres.stream import Open

Shape = Callable[[Relation], Relation]
_BATCH_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Events:
    """Changes of one table in one record, in their order, and the 64-bit id of each one's transaction."""

    relation: Relation
    rows: pa.RecordBatch
    xids: Ids


@dataclass(frozen=True, slots=True)
class Commits:
    """Those that a record completes or goes on with; `after` is where a log that has all of it may begin."""

    after: Position
    places: npt.NDArray[np.uint64]
    xids: Ids


def as_text(relation: Relation, names: frozenset[str]) -> Relation:
    """The same relation, some of whose columns are read as the texts that they are sent as."""
    columns = tuple(_as_text(one) if one.name in names else one for one in relation.columns)
    return replace(relation, columns=columns)


def _as_text(column: RelationColumn) -> RelationColumn:
    return replace(column, dims=0, base_oid=25, base_typmod=-1, base_kind="b", base_name="text")


class Log:
    """Records of one generation behind a position, up to the journal's end of now."""

    def __init__(self, reader: JournalReader, *, after: Position, near: int) -> None:
        """`near` is an id near those of the first records."""
        self._reader = reader
        self._after = after
        self._near = near
        self.whole = after  # the last marker: nothing that stands behind it needs what stands before
        self._schemas: dict[int, Relation] = {}

    def commits(self) -> Iterator[Commits]:
        """Every transaction, whatever it changed."""
        opened: Open | None = None
        for _, record in self._records():
            found = streams.read([record.payload], opened)
            begun, opened = found.transactions, found.open
            yield Commits(self.whole, begun.commit_lsns.astype(np.uint64), self._wide(begun.xids))

    def events(self, oid: int, shape: Shape, *, upto: int) -> Iterator[Events]:
        """The changes of one table that committed at or before a place. `shape` says how its rows are read.
        Raises what stops the table."""
        opened: Open | None = None
        for payloads, versions in self._batches(oid):
            relations = {oid: [shape(one) for one in versions]} if versions else {}
            found = decode(payloads, relations, opened=opened)
            opened = found.open
            for table in found.tables:
                yield from self._upto(table, upto)
            if len(found.transactions.commit_lsns) and found.transactions.commit_lsns[0] > upto:
                return

    def _batches(self, oid: int) -> Iterator[tuple[list[bytes], list[Relation]]]:
        """Payloads that are decoded together, with the versions that they name of a relation. The same words
        may announce another version in another record, so those of a batch name the same."""
        payloads: list[bytes] = []
        versions: list[Relation] = []
        goes_on = False
        for position, record in self._records():
            named = dict.fromkeys(self._schema(one, position) for one in record.schemas)
            own = [one for one in named if one.oid == oid]
            if not own and record.last and not goes_on:
                continue  # nothing of this table
            full = sum(map(len, payloads)) > _BATCH_BYTES
            if payloads and (full or (own and versions and own != versions)):
                yield payloads, versions
                payloads, versions = [], []
            payloads.append(record.payload)
            versions, goes_on = versions or own, not record.last
        if payloads:
            yield payloads, versions

    def _upto(self, table: TableChanges, upto: int) -> Iterator[Events]:
        places = np.asarray(table.rows.column(change.PLACE))
        count = int(np.searchsorted(places, upto, "right"))
        if count:
            rows = table.rows.slice(0, count)
            xids = np.asarray(rows.column(change.TRANSACTION).cast(pa.int64()))
            yield Events(table.relation, rows, self._wide(xids))
        if table.stop is not None and table.stop.place <= upto:
            raise TruecutError.of(table.stop.fault)

    def _wide(self, xids: npt.NDArray[np.int64]) -> Ids:
        return nearest_of(xids.astype(np.uint64), near=self._near)

    def _records(self) -> Iterator[tuple[Position, Record]]:
        """Records of changes; schemas and markers are taken in on the way."""
        for position, record in self._reader.read(after=self._after):
            if record.generation != self._after.generation:
                require(record.generation > self._after.generation, "generations never fall along a log")
                return
            if record.kind is Kind.CHANGES:
                yield position, record
            elif record.kind is Kind.SCHEMA:
                self._learn(record)
            elif record.kind is Kind.MARKER:
                self._near = journaled.said(record.payload)[0].xid_near
                self.whole = position

    def _learn(self, record: Record) -> None:
        self._schemas[record.schemas[0]] = Relation.of(json.loads(record.payload))

    def _schema(self, id: int, position: Position) -> Relation:
        """Before the record that names it; behind it, where capture was killed within a large transaction."""
        if id not in self._schemas:
            for _, record in self._reader.read(after=position):
                if record.kind is Kind.SCHEMA:
                    self._learn(record)
                if record.kind is Kind.MARKER:
                    break
        return self._schemas[id]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a snapshot sees the log without a break."""

    lo: int  # every commit at or before this place is seen
    after: Position  # records up to here hold nothing behind it
    unseen: int | None  # the first commit that is not seen, if there is one


def reach(log: Log, snapshot: Snapshot, *, lo: int, upto: int | None = None) -> Reach:
    """C2: up to the last place before the first commit that the snapshot does not see. `lo` is known to be
    one that it sees; what is behind `upto` is not looked at."""
    for commits in log.commits():
        places = commits.places if upto is None else commits.places[commits.places <= upto]
        unseen = np.flatnonzero(~seen(snapshot, commits.xids[: len(places)]))
        if len(unseen):
            first = int(places[unseen[0]])
            return Reach(first - 1, commits.after, first)
        if len(places):
            lo = int(places[-1])
        if len(places) < len(commits.places):
            return Reach(lo, commits.after, None)
    return Reach(lo, log.whole, None)
