"""What travels to executors: a range of the journal, read and decoded there into rows of several tables.

Promises: the same rows every time; a table that cannot go on stops alone, and the others are read on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecut.errors import Fault, Retry, TruecutError
from truecut.journal.contract import Entry
from truecut.journal.decoding import Undecodable
from truecut.journal.opening import Where, open_reader
from truecut.journal.record import Kind, Record
from truecut.model import change
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import Rows, Stopped, TableRead
from truecut.sources.postgres import shape
from truecut.sources.postgres.decode import Decoded, TableChanges, decode
from truecut.sources.postgres.messages import lsn_text
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.shape import Projection
from truecut.sources.postgres.stream import Open

TRIMMED = "TC6006"
DECODE_BYTES = 4 << 20  # at once, about


@dataclass(frozen=True, slots=True)
class Share:
    """One table of a task: changes after its own place, in the columns that it has at the window's end."""

    table: TableRead
    after: int
    target: Relation
    keeps: bool  # an append table reads: every event with all that is known of it


@dataclass(frozen=True, slots=True)
class JournalTask:
    """The records `first` to `last`: whole transactions. Those that committed in `(after, upto]`."""

    where: Where
    first: int
    last: int
    upto: int
    shares: tuple[Share, ...]
    relations: Mapping[int, Relation]  # schema id → a version of one of the tables

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Whose rows it may give."""
        return tuple(share.table.name for share in self.shares)

    def read(self) -> Iterator[Rows]:
        """The rows, in the order of the journal."""
        reader = open_reader(self.where)
        try:
            entries = reader.read(after=Position(0, self.first - 1), upto=Position(0, self.last))
            yield from _Reading(self).read(entries)
        except TruecutError as error:
            if error.fault.code == TRIMMED:
                raise TruecutError.of(replace(error.fault, retry=Retry.GAP)) from None
            raise
        finally:
            reader.close()


class _Reading:
    """One pass over the records."""

    def __init__(self, task: JournalTask) -> None:
        self._task = task
        self._shares = {share.table.name: share for share in task.shares}
        self._stopped: dict[TableName, Fault] = {}
        self._open: Open | None = None

    def read(self, entries: Iterator[Entry]) -> Iterator[Rows]:
        changes = (one for one in entries if one.record.kind is Kind.CHANGES)
        for group in _groups(changes, self._is_needed):
            yield from self._decoded(group)
        if self._stopped:
            raise Stopped(self._stopped)

    def _is_needed(self, record: Record) -> bool:
        """Every part of a large transaction is: its changes are numbered through."""
        in_parts = record.part > 0 or not record.last
        return in_parts or not self._task.relations.keys().isdisjoint(record.schemas)

    def _decoded(self, group: Sequence[Entry]) -> Iterator[Rows]:
        versions: dict[int, list[Relation]] = {}
        for number in group[0].record.schemas:
            relation = self._task.relations.get(number)
            if relation is not None:
                share = self._shares[relation.name]
                versions.setdefault(relation.oid, []).append(shape.followed(relation, share.table))
        found = self._decode(group, versions)
        self._open = found.open
        for part in found.tables:
            yield from self._of_table(part)

    def _decode(self, group: Sequence[Entry], versions: Mapping[int, Sequence[Relation]]) -> Decoded:
        try:
            return decode([one.record.payload for one in group], versions, opened=self._open)
        except Undecodable as error:
            raise _undecodable(group[error.index].position.place, error.reason) from None

    def _of_table(self, part: TableChanges) -> Iterator[Rows]:
        name = part.relation.name
        share = self._shares[name]
        if name in self._stopped:
            return
        rows = _within(part.rows, after=share.after, upto=self._task.upto)
        if rows.num_rows:
            how = shape.projection(part.relation, share.target)
            if isinstance(how, Fault):
                self._stopped[name] = how
                return
            yield Rows(name, _delivered(rows, part.relation, how, keeps=share.keeps))
        if part.stop is not None and share.after < part.stop.place <= self._task.upto:
            self._stopped[name] = part.stop.fault


def _groups(entries: Iterator[Entry], is_needed: Callable[[Record], bool]) -> Iterator[list[Entry]]:
    """Records that can be decoded at once: of the same schemas, whole, and not too many."""
    group: list[Entry] = []
    size = 0
    for entry in entries:
        if not is_needed(entry.record):
            continue
        alone = entry.record.part > 0 or not entry.record.last
        other = bool(group) and entry.record.schemas != group[0].record.schemas
        if group and (alone or other or size >= DECODE_BYTES):
            yield group
            group, size = [], 0
        group.append(entry)
        size += len(entry.record.payload)
        if alone:
            yield group
            group, size = [], 0
    if group:
        yield group


# --- from events to changes -----------------------------------------------------------------------------


def _within(rows: pa.RecordBatch, *, after: int, upto: int) -> pa.RecordBatch:
    """Those of transactions that committed in `(after, upto]`."""
    places = rows.column(change.PLACE).to_numpy()
    chosen = (places > after) & (places <= upto)
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def _delivered(rows: pa.RecordBatch, version: Relation, how: Projection, *, keeps: bool) -> pa.RecordBatch:
    """In the form of `model.change`."""
    deletes = pc.equal(rows.column(change.OP), pa.scalar(change.DELETE, pa.uint8()))
    arrays = [rows.column(field.name) for field in change.CONTROL_FIELDS]
    fields = list(change.CONTROL_FIELDS)
    for field in change.OPTIONAL_FIELDS:
        array = _optional(field.name, rows, version, how, deletes, keeps)
        if array is not None:
            fields.append(field)
            arrays.append(array)
    before, after = rows.column(change.BEFORE), rows.column(change.AFTER)
    any_deleted = bool(pc.any(deletes).as_py())
    for name, source in zip(how.names, how.sources, strict=True):
        array = (
            _values(before, after, source, deletes if any_deleted else None)
            if isinstance(source, int)
            else source.take(_where_told(rows))
        )
        fields.append(pa.field(name, array.type))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _values(before: pa.Array, after: pa.Array, number: int, deletes: pa.Array | None) -> pa.Array:
    """A delete's are those before it, all others those after."""
    new = pc.struct_field(after, [number])
    return new if deletes is None else pc.if_else(deletes, pc.struct_field(before, [number]), new)


def _where_told(rows: pa.RecordBatch) -> pa.Array:
    """The number of the one initial value for events that tell a whole row, of which it is a part."""
    keyed = pc.equal(rows.column(change.IMAGE), pa.scalar(change.KEY_IMAGE, pa.uint8()))
    whole = pc.and_not(rows.column(change.BEFORE).is_valid(), keyed)
    told = np.asarray(pc.or_(rows.column(change.AFTER).is_valid(), whole))
    return pa.array(np.zeros(len(told), np.int64), mask=~told)


def _optional(
    name: str, rows: pa.RecordBatch, version: Relation, how: Projection, deletes: pa.Array, keeps: bool
) -> pa.Array | None:
    if name == change.TRANSACTION:
        return rows.column(name) if keeps else None
    absent = _absent_names(rows.column(change.UNCHANGED), how)
    keyed = pc.equal(rows.column(change.IMAGE), pa.scalar(change.KEY_IMAGE, pa.uint8()))
    untold = pc.and_(deletes, keyed)
    if keeps and pc.any(untold).as_py():
        absent = _told_key_alone(absent, untold, version, how)
    return None if absent.null_count == len(absent) else absent


def _absent_names(numbers: pa.ListArray, how: Projection) -> pa.ListArray:
    """The columns of the version by number, as names of those that are delivered."""
    if numbers.null_count == len(numbers):
        return pa.nulls(len(numbers), pa.list_(pa.string()))
    name_of = {
        source: name for name, source in zip(how.names, how.sources, strict=True) if isinstance(source, int)
    }
    named = [
        None if row is None else [name_of[number] for number in row if number in name_of]
        for row in numbers.to_pylist()
    ]
    return pa.array(named, pa.list_(pa.string()))


def _told_key_alone(
    absent: pa.ListArray, untold: pa.Array, version: Relation, how: Projection
) -> pa.ListArray:
    """Deletes that carry the key: all other columns are absent."""
    pairs = zip(how.names, how.sources, strict=True)
    others = [name for name, n in pairs if not isinstance(n, int) or not version.columns[n].identity]
    chosen = np.asarray(untold)
    return pa.array(
        [others if one else names for one, names in zip(chosen, absent.to_pylist(), strict=True)],
        pa.list_(pa.string()),
    )


def _undecodable(record: int, reason: str) -> TruecutError:
    return TruecutError(
        "TC2118",
        f"record {record} of the journal cannot be read: {reason}",
        fix="Check the journal with `truecut journal inspect`; if it is sound, please report it.",
    )


def place_text(place: int) -> str:
    """A place of ours in the server's words: everything before that LSN."""
    return lsn_text(place + 1)
