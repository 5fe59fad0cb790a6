"""The codec `pgoutput/1`: from PostgreSQL's messages to typed changes, table by table, column by column.

Every change is an event of `model.change`. A changed key is a delete and an insert; the insert may lack
columns that were not sent (unchanged TOAST), which are then those of the row that the delete, whose `seq` is
one less, took away. What an old row has is filled in here.

`seq` numbers the changes of a transaction over all its tables, whichever of them are decoded, and over all
its records. The place of a change is the commit LSN of its transaction.

Promises: damage to the structure of a message is refused with its place (`Undecodable`). A value that its
column's type cannot hold stops its table alone, at the beginning of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truecut.errors import Fault
from truecut.journal.decoding import RECORD, Changes, changes_schema
from truecut.model import change
from truecut.model.table import TableName
from truecut.sources.postgres import stream as streams
from truecut.sources.postgres.relation import Relation, RelationColumn
from truecut.sources.postgres.rows import Events, Rows, absent_columns, events_of, read_rows
from truecut.sources.postgres.stream import Announced, Ints, LogicalMessage, Open, Stream, Transactions
from truecut.sources.postgres.tuples import TEXT, Cells, Selection, Walk, gather
from truecut.sources.postgres.types import row_type, value_type
from truecut.sources.postgres.values import Unfit

VALUE_UNFIT = "TC3050"
SHAPE_UNKNOWN = "TC3051"
_BLOCK = 32768  # messages
PLACE = pa.field(change.PLACE, pa.uint64(), nullable=False)
_TIME = pa.timestamp("us", tz="UTC")
MESSAGE_ROW = pa.struct([("prefix", pa.string()), ("content", pa.binary())])


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a table cannot go on, and why: nothing of this transaction was decoded for it."""

    place: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Some changes of one table while it had these columns, in the order of the stream; `stop` ends them."""

    relation: Relation
    rows: pa.RecordBatch  # of `events_schema`
    stop: Stop | None = None

    def without(self, place: int) -> TableChanges:
        """Less the changes of one transaction."""
        others = pc.not_equal(self.rows.column(change.PLACE), pa.scalar(place, pa.uint64()))
        return TableChanges(self.relation, self.rows.filter(others), self.stop)

    @property
    def changes(self) -> Changes:
        """As every codec gives them."""
        return Changes(str(self.relation.name), self.relation.key, self.rows)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What some payloads hold. Changes of relations in `unknown` were left out."""

    tables: tuple[TableChanges, ...]
    messages: Changes | None
    transactions: Transactions
    unknown: frozenset[int]
    open: Open | None


def events_schema(row: pa.DataType) -> pa.Schema:
    """The columns of changes, and their place."""
    return changes_schema(row).append(PLACE)


def decode(
    payloads: Sequence[bytes], relations: Mapping[int, Sequence[Relation]], *, opened: Open | None = None
) -> Decoded:
    """The changes of these payloads, which follow each other.

    `relations` has the versions of each relation: first the one that is valid where the payloads begin, then
    those that they announce. `opened` is the transaction that goes on from the payloads before.
    """
    stream = streams.read(payloads, opened)
    found = _Found.of(stream)
    news: dict[int, list[Announced]] = {}
    for one in streams.announced(stream):
        news.setdefault(one.oid, []).append(one)
    oids = found.relations()
    known = [oid for oid in oids if relations.get(oid)]
    tables = [
        part for oid in known for part in _table(stream, found.only(oid), relations[oid], news.get(oid, []))
    ]
    unknown = frozenset(oids) - frozenset(known)
    return Decoded(tuple(tables), _messages(stream), stream.transactions, unknown, stream.open)


@dataclass(frozen=True, slots=True)
class _Found:
    """Changes as the stream has them: a truncate is one of each of its relations."""

    oids: Ints
    messages: Ints
    seqs: Ints

    @classmethod
    def of(cls, stream: Stream) -> _Found:
        """All of a stream, in its order."""
        is_change = np.isin(stream.kinds, (streams.INSERT, streams.UPDATE, streams.DELETE))
        messages = np.flatnonzero(is_change)
        rows = cls(stream.number(stream.starts[messages] + 1, 4), messages, stream.seqs[messages])
        which, oids, nth = streams.truncated(stream)
        return rows if not len(which) else rows._with(cls(oids, which, stream.seqs[which] + nth))

    def _with(self, other: _Found) -> _Found:
        order = np.argsort(np.concatenate([self.messages, other.messages]), kind="stable")
        pairs = zip(self._parts(), other._parts(), strict=True)
        return _Found(*(np.concatenate(pair)[order] for pair in pairs))

    def _parts(self) -> tuple[Ints, Ints, Ints]:
        return self.oids, self.messages, self.seqs

    def relations(self) -> list[int]:
        """The oids of all of them; often there is one."""
        alike = len(self.oids) > 0 and bool((self.oids == self.oids[0]).all())
        return [int(oid) for oid in (self.oids[:1] if alike else np.unique(self.oids))]

    def only(self, oid: int) -> _Found:
        """Those of one relation."""
        which = self.oids == oid
        return self if which.all() else _Found(*(part[which] for part in self._parts()))

    def blocks(self) -> Iterator[_Found]:
        """So few at a time that every column finds the messages still in the processor's cache."""
        for first in range(0, len(self.messages), _BLOCK):
            yield self.slice(first, first + _BLOCK)

    def slice(self, first: int, last: int) -> _Found:
        """Some that follow each other."""
        return _Found(*(part[first:last] for part in self._parts()))


# --- which version of a relation --------------------------------------------------------------------------


def _table(
    stream: Stream, found: _Found, versions: Sequence[Relation], news: Sequence[Announced]
) -> list[TableChanges]:
    """Changes of one table, in pieces of the same columns, up to where it stops."""
    made: list[TableChanges] = []
    for relation, piece in _pieces(found, versions, news):
        for part in piece.blocks():
            if relation is None:
                nothing = _changes(stream, part.slice(0, 0), versions[0])
                made.append(TableChanges(versions[0], nothing.rows, _stop_shape(stream, part, versions[0])))
            else:
                made.append(_changes(stream, part, relation))
            if made[-1].stop is not None:
                return [one.without(made[-1].stop.place) for one in made]
    return made


def _pieces(
    found: _Found, versions: Sequence[Relation], news: Sequence[Announced]
) -> Iterator[tuple[Relation | None, _Found]]:
    """Changes with the version of their relation; None where the stream announces one that is not known."""
    relation: Relation | None = versions[0]
    first = 0
    for one in news:
        announced = next((version for version in versions if _is(version, one)), None)
        if announced == relation and announced is not None:
            continue  # PostgreSQL says again what it said before
        last = int(np.searchsorted(found.messages, one.message))
        yield relation, found.slice(first, last)
        relation, first = announced, last
    yield relation, found.slice(first, len(found.messages))


def _is(version: Relation, one: Announced) -> bool:
    columns = tuple((one.identity, one.name, one.type_oid, one.typmod) for one in version.columns)
    name = (version.name.schema, version.name.table, version.replica_identity)
    return name == (one.schema, one.table, one.replica_identity) and columns == one.columns


def _stop_shape(stream: Stream, part: _Found, relation: Relation) -> Stop:
    fault = Fault(
        SHAPE_UNKNOWN,
        f"{relation.name}: the stream announces other columns than any recorded schema of the table has",
        "Backfill the table: its schema is then read anew.",
    )
    return Stop(_place(stream, part.messages[0]), fault)


# --- changes ----------------------------------------------------------------------------------------------


class _Stopped(Exception):
    """A value that its column cannot hold."""

    def __init__(self, event: int, column: str, reason: str) -> None:
        super().__init__(reason)
        self.event, self.column, self.reason = event, column, reason


def _changes(stream: Stream, found: _Found, relation: Relation) -> TableChanges:
    rows = read_rows(stream, found.messages, relation)
    events = events_of(stream, found.messages, relation, rows)
    try:
        return TableChanges(relation, _batch(stream, found, relation, rows, events))
    except _Stopped as stopped:
        bad, fault = int(events.message[stopped.event]), unfit(relation.name, stopped.column, stopped.reason)
    # Only what comes before its transaction; there another column may stop the table earlier still.
    transactions = stream.transaction[found.messages]
    before = _changes(stream, found.slice(0, int(np.searchsorted(transactions, transactions[bad]))), relation)
    if before.stop is not None:
        return before
    return TableChanges(relation, before.rows, Stop(_place(stream, found.messages[bad]), fault))


def unfit(table: TableName, column: str, reason: str) -> Fault:
    """A value that its column's type cannot hold, of a change or of a row that was read."""
    return Fault(
        VALUE_UNFIT,
        f"{table}: a value of column {column} cannot be stored: {reason}",
        "Correct the value at the source, or give the column a type that is stored as text"
        " (docs/postgres-types.md), then backfill the table.",
    )


def _batch(stream: Stream, found: _Found, relation: Relation, rows: Rows, events: Events) -> pa.RecordBatch:
    messages = found.messages[events.message]
    transactions = stream.transaction[messages]
    filled = {
        RECORD: stream.payload_of(messages).astype(np.int32),
        change.OP: events.ops,
        change.SEQ: found.seqs[events.message] + events.second,
        change.TRANSACTION: pa.array(stream.transactions.xids[transactions]).cast(pa.string()),
        change.COMMITTED_AT: stream.transactions.committed_at_us[transactions],
        change.IMAGE: events.images,
        change.UNCHANGED: absent_columns(events, rows),
        change.BEFORE: _image(stream, rows.old, events.old, relation),
        change.AFTER: _image(stream, rows.new, events.new, relation),
        change.PLACE: stream.transactions.commit_lsns[transactions].astype(np.uint64),
    }
    return _table_of(filled, events_schema(row_type(relation)))


def _table_of(filled: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    columns = [_typed(filled[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _typed(values: Any, kind: pa.DataType) -> pa.Array:
    if not isinstance(values, np.ndarray):
        return values
    array = pa.array(values)
    return array.view(kind) if pa.types.is_timestamp(kind) else array


def _place(stream: Stream, message: int) -> int:
    return int(stream.transactions.commit_lsns[stream.transaction[message]])


def _image(stream: Stream, rows: Walk, which: Ints, relation: Relation) -> pa.Array:
    """The rows of these numbers, typed; NULL for -1."""
    kind = row_type(relation)
    if not relation.columns:  # which PostgreSQL allows
        return pa.array([{} if number >= 0 else None for number in which.tolist()], kind)
    selection = Selection(which)
    pairs = zip(rows.columns, relation.columns, strict=True)
    arrays = [_values(stream, cells, selection, column) for cells, column in pairs]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(which < 0))


def _values(stream: Stream, cells: Cells, rows: Selection, column: RelationColumn) -> pa.Array:
    kind = value_type(column)
    if not cells.all_texts and not (cells.kinds == TEXT).any():  # of a key, all other columns
        return pa.nulls(len(rows.rows), kind.arrow)
    try:
        return kind.read(gather(stream, cells, rows))
    except Unfit as unfit:
        raise _Stopped(unfit.index, column.name, unfit.reason) from None


def _messages(stream: Stream) -> Changes | None:
    """Logical messages. One that is not transactional stands for itself, at its own place."""
    found = list(streams.logical_messages(stream))
    if not found:
        return None
    numbers = np.array([one.message for one in found], np.int64)
    transactions = stream.transaction[numbers]
    for one, transaction in zip(found, transactions.tolist(), strict=True):
        if one.transactional and transaction < 0:
            raise stream.broken(one.message, "it is not within a transaction")
    alone = np.array([not one.transactional for one in found])
    inside = pa.array(transactions, mask=alone)
    filled = {
        RECORD: stream.payload_of(numbers).astype(np.int32),
        change.OP: np.full(len(found), change.MESSAGE, np.uint8),
        change.SEQ: np.where(alone, 0, stream.seqs[numbers]),
        change.TRANSACTION: pa.array(stream.transactions.xids).take(inside).cast(pa.string()),
        change.COMMITTED_AT: pa.array(stream.transactions.committed_at_us).take(inside).view(_TIME),
        change.IMAGE: np.full(len(found), change.NO_IMAGE, np.uint8),
        change.UNCHANGED: pa.nulls(len(found), pa.list_(pa.int32())),
        change.BEFORE: pa.nulls(len(found), MESSAGE_ROW),
        change.AFTER: pa.array(
            [{"prefix": one.prefix, "content": one.content} for one in found], MESSAGE_ROW
        ),
        change.PLACE: _message_places(stream, found, transactions),
    }
    return Changes(None, (), _table_of(filled, events_schema(MESSAGE_ROW)))


def _message_places(
    stream: Stream, found: Sequence[LogicalMessage], transactions: Ints
) -> npt.NDArray[np.uint64]:
    lsns = stream.transactions.commit_lsns
    places = (
        int(lsns[n]) if one.transactional else one.lsn for one, n in zip(found, transactions, strict=True)
    )
    return np.fromiter(places, np.uint64, len(found))
