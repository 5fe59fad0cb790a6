"""The journal as a log of transactions: which committed where, and the changes of one table.

Records are taken one by one, with the schemas that their heads name, so memory is bounded by a record. Ids of
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
from truecut.sources.postgres import stream as streams
from truecut.sources.postgres.decode import TableChanges, decode
from truecut.sources.postgres.lineage import Place
from truecut.sources.postgres.relation import Relation, RelationColumn
from truecut.sources.postgres.stream import Open

Shape = Callable[[Relation], Relation]


@dataclass(frozen=True, slots=True)
class Events:
    """Changes of one table in one record, in their order, and the 64-bit id of each one's transaction."""

    relation: Relation
    rows: pa.RecordBatch
    xids: Ids


@dataclass(frozen=True, slots=True)
class Commits:
    """Those that a record completes or goes on with; `position` is the record's."""

    position: Position
    places: npt.NDArray[np.uint64]
    xids: Ids
    closed: bool  # the record ends with a commit


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
        self._schemas: dict[int, Relation] = {}

    def commits(self) -> Iterator[Commits]:
        """Every transaction, whatever it changed."""
        opened: Open | None = None
        for position, record in self._records():
            found = streams.read([record.payload], opened)
            begun = found.transactions
            opened = found.open
            yield Commits(
                position, begun.commit_lsns.astype(np.uint64), self._wide(begun.xids), opened is None
            )

    def events(self, oid: int, shape: Shape, *, upto: int) -> Iterator[Events]:
        """The changes of one table that committed at or before a place. `shape` says how its rows are read.
        Raises what stops the table."""
        opened: Open | None = None
        for position, record in self._records():
            named = [self._schema(one, position) for one in record.schemas]
            versions = [shape(one) for one in dict.fromkeys(named) if one.oid == oid]
            if not versions and record.last and opened is None:
                continue  # nothing of this table
            found = decode([record.payload], {oid: versions} if versions else {}, opened=opened)
            opened = found.open
            for table in found.tables:
                yield from self._upto(table, upto)
            if len(found.transactions.commit_lsns) and found.transactions.commit_lsns[0] > upto:
                return

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
                self._near = Place.of(json.loads(record.payload)).xid_near

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


def first_unseen(
    log: Log, snapshot: Snapshot, *, after: Position, upto: int | None = None
) -> tuple[int | None, Position]:
    """The first commit (up to a place) that a snapshot does not see; and the last record before it that ends
    with a commit. None: it sees all of them."""
    whole = after
    for commits in log.commits():
        unseen = np.flatnonzero(~seen(snapshot, commits.xids))
        if len(unseen):
            place = int(commits.places[unseen[0]])
            if upto is None or place <= upto:
                return place, whole
        if upto is not None and len(commits.places) and int(commits.places[0]) > upto:
            break
        if commits.closed:
            whole = commits.position
    return None, whole
