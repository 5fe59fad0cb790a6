"""One table at one place: which events of its log follow the rows of its units, and what they leave of them.

For a transaction that all units' snapshots see, or none does, nobody has to know which unit a key is in. Only
where they disagree is the server asked, which alone knows the order of keys. Promises (core/splice.py): S1,
events that a unit's snapshot saw are in its rows and are dropped, all others follow in the order of commits;
S2, what an event does not tell is taken from the row before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truecut.core import cut, splice
from truecut.core.cut import Backfill, Evidence, Slot
from truecut.core.splice import Splice
from truecut.journal.opening import Where, open_reader
from truecut.model import change
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import Stopped
from truecut.sources.postgres import unit_faults
from truecut.sources.postgres.fold import Contradicted, Counted, Key, Keyed, Step
from truecut.sources.postgres.history import Events, Log, as_text
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.row_store import RowStore
from truecut.sources.postgres.server import Address, Connection, connect
from truecut.sources.postgres.types import value_type
from truecut.sources.postgres.unit_ledger import Edition, UnitRecord
from truecut.sources.postgres.unit_read import same_columns
from truecut.sources.postgres.units import identity_columns, units_of

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_KEYS_AT_ONCE = 5000


@dataclass(frozen=True)
class Spliced:
    """A table whose units were all read, and the place at which its content is asked for. Picklable."""

    table: TableName
    address: Address
    journal: Where
    edition: Edition
    records: tuple[UnitRecord, ...]
    at: int

    @property
    def relation(self) -> Relation:
        """Of units and events alike."""
        return self.edition.plan.relation

    @cached_property
    def texted(self) -> Relation:
        """The relation, what tells its rows apart as text."""
        return as_text(self.relation, frozenset(one.name for one in identity_columns(self.relation)))

    @cached_property
    def backfill(self) -> Backfill:
        """What core/cut.py decides about."""
        return backfill_of(self.edition, self.records)

    @cached_property
    def splices(self) -> list[Splice]:
        """C4: how each unit takes events."""
        found = cut.splices(self.backfill, range(len(self.records)))
        return [one for one in found if one is not None]

    @property
    def doubts(self) -> list[str]:
        """Why it cannot be claimed that units and log are the source at the place."""
        upto = Position(self.edition.generation, self.at)
        applied = cut.wave(self.backfill, upto=upto, units=range(len(self.records)), torn=())
        return cut.doubts(applied, frontier=upto)

    def fold(
        self, store: RowStore | None = None, also: Callable[[Events, Asking], None] | None = None
    ) -> Folded:
        """Read the log from where the units' snapshots may not see it, up to the place. Rows that events tell
        are put into the store. `also` is told all events, whatever they count for."""
        settled = self.edition.settled
        reader = open_reader(self.journal)
        with ExitStack() as stack:
            stack.callback(reader.close)
            log = Log(reader, after=settled.after, near=settled.snapshot.xmax)
            asking = Asking(self, stack)
            folding = _Folding(self, store, asking)
            for events in log.events(self.relation.oid, self._shape, upto=self.at):
                if also is not None:
                    also(events, asking)
                folding.take(events)
            return folding.folded

    def _shape(self, relation: Relation) -> Relation:
        return as_text(relation, frozenset(one.name for one in identity_columns(self.relation)))


def backfill_of(edition: Edition, records: Sequence[UnitRecord]) -> Backfill:
    """A table that is to be copied, all of whose units were read. Its log begins where the snapshot that was
    settled first sees everything; so do those of the units, which came later: that is the lo of each."""
    lo, seen = Position(edition.generation, edition.settled.lo), edition.settled.snapshot
    begun = cut.begin(Slot(lo, seen), edition.plan.parts, cursor=lo)
    told = [
        Evidence(one.snapshot, lo, max(lo, Position(lo.generation, one.hi)), one.rows, one.digest)
        for one in records
    ]
    return begun.with_units({n: replace(begun.units[n], evidence=one) for n, one in enumerate(told)})


def all_ready(edition: Edition, records: Sequence[UnitRecord], *, at: int) -> bool:
    """C4: whether all units may be applied at this place."""
    backfill = backfill_of(edition, records)
    return len(cut.ready(backfill, upto=Position(edition.generation, at))) == len(records)


@dataclass(slots=True)
class Folded:
    """What the log leaves: rows that events touched, and the units whose files count no more."""

    rows: Keyed | Counted
    void: set[int] = field(default_factory=set)

    def touched(self) -> Collection[Key]:
        """Whatever a file has under these is not the last word."""
        return self.rows.rows.keys()


class Asking:
    """Which unit a key is in, by the server; connected when somebody asks."""

    def __init__(self, spliced: Spliced, stack: ExitStack) -> None:
        self._spliced = spliced
        self._stack = stack

    @cached_property
    def _connection(self) -> Connection:
        connection = connect(self._spliced.address)
        self._stack.callback(connection.close)
        return connection

    def units(self, keys: Sequence[Key]) -> list[int]:
        """Of each key."""
        if len(self._spliced.records) == 1:
            return [0] * len(keys)
        found: list[int] = []
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            some = [tuple(text or "" for text in key) for key in keys[first : first + _KEYS_AT_ONCE]]
            found += units_of(self._connection, self._spliced.address, self._spliced.edition.plan, some)
        return found


class _Folding:
    """Events as they come."""

    def __init__(self, spliced: Spliced, store: RowStore | None, asking: Asking) -> None:
        relation = spliced.relation
        self.folded = Folded(Keyed(len(relation.columns)) if relation.key else Counted())
        self._spliced = spliced
        self._store = store
        self._asking = asking
        self._names = [one.name for one in identity_columns(relation)]
        self._told = 0
        # Units that were read under one snapshot take the same events.
        self._kinds = {one: number for number, one in enumerate(dict.fromkeys(spliced.splices))}
        self._kind_of = np.array([self._kinds[one] for one in spliced.splices], np.int64)

    def take(self, events: Events) -> None:
        """Some more, in the order of commits."""
        which, keeps = self._verdicts(events)
        some = np.flatnonzero(np.any(keeps[:, which], axis=0))
        if not len(some):
            return
        if not same_columns(events.relation, self._spliced.texted):
            self._spliced.edition.make_void("its columns have changed since")
            raise unit_faults.table_changed(self._spliced.table)
        rows, which = events.rows.take(pa.array(some)), which[some]
        ops = np.asarray(rows.column(change.OP))
        befores, afters = self._keys(rows, change.BEFORE), self._keys(rows, change.AFTER)
        kept = self._kept(keeps, which, ops, befores, afters)
        numbers = self._numbers(rows, kept & (ops != change.DELETE) & (ops != change.TRUNCATE))
        absent = rows.column(change.UNCHANGED).to_pylist()
        places = np.asarray(rows.column(change.PLACE)).tolist()
        seqs = np.asarray(rows.column(change.SEQ)).tolist()
        for n in np.flatnonzero(kept).tolist():
            if ops[n] == change.TRUNCATE:
                self._truncate(keeps[:, which[n]])
            else:
                absents = tuple(absent[n] or ())
                self._fold(Step(int(ops[n]), places[n], seqs[n], befores[n], afters[n], numbers[n], absents))

    def _fold(self, step: Step) -> None:
        try:
            self.folded.rows.take(step)
        except Contradicted as error:
            self._spliced.edition.make_void(f"its log contradicts its key: {error}")
            table = self._spliced.table
            raise Stopped({table: unit_faults.contradicted(table, str(error))}) from None

    def _verdicts(self, events: Events) -> tuple[Ints, Flags]:
        """For each event the number of its transaction; for each kind of unit and transaction whether it
        follows the rows."""
        xids, first, which = np.unique(events.xids, return_index=True, return_inverse=True)
        places = np.asarray(events.rows.column(change.PLACE))[first]
        unit = np.zeros(len(xids), np.intp)
        generation = self._spliced.edition.generation
        keeps = [
            splice.keep_mask(place=places, xid=xids, unit=unit, splices=[one], generation=generation)
            for one in self._kinds
        ]
        return which, np.stack(keeps)

    def _kept(
        self,
        keeps: Flags,
        which: Ints,
        ops: npt.NDArray[np.uint8],
        befores: Sequence[Key | None],
        afters: Sequence[Key | None],
    ) -> Flags:
        """S1. A truncate counts if any unit takes it."""
        kept: Flags = np.all(keeps[:, which], axis=0) | (ops == change.TRUNCATE)
        disputed = np.flatnonzero(~kept)
        keys = [key for n in disputed.tolist() if (key := self._key(ops[n], befores[n], afters[n]))]
        units = np.array(self._asking.units(keys), np.int64)
        kept[disputed] = keeps[self._kind_of[units], which[disputed]]
        return kept

    def _key(self, op: int, before: Key | None, after: Key | None) -> Key | None:
        return before if op == change.DELETE else after

    def _keys(self, rows: pa.RecordBatch, image: str) -> list[Key | None]:
        return keys_of(rows, image, self._names)

    def _numbers(self, rows: pa.RecordBatch, told: Flags) -> list[int]:
        """Those of the rows that events tell."""
        count = int(told.sum())
        if self._store is not None and count:
            self._store.put(self._typed(rows.column(change.AFTER).take(pa.array(np.flatnonzero(told)))))
        numbers = np.where(told, self._told + np.cumsum(told) - 1, -1)
        self._told += count
        found: list[int] = numbers.tolist()
        return found

    def _typed(self, struct: pa.StructArray) -> pa.RecordBatch:
        assert self._store is not None
        return typed(struct, self._spliced.relation, self._store.schema)

    def _truncate(self, keeps: Flags) -> None:
        """All rows of the units that take it are gone, those of their files, too."""
        takes = keeps[self._kind_of]
        self.folded.void |= set(np.flatnonzero(takes).tolist())
        if isinstance(self.folded.rows, Counted):
            self.folded.rows.truncate()
        elif takes.all():
            self.folded.rows.truncate(lambda keys: (True for _ in keys))
        elif takes.any():
            self.folded.rows.truncate(lambda keys: takes[self._asking.units(list(keys))].tolist())


def keys_of(rows: pa.RecordBatch, image: str, names: Sequence[str]) -> list[Key | None]:
    """The texts of what tells rows apart; None where there is no such row."""
    struct = rows.column(image)
    columns = [pc.struct_field(struct, name).to_pylist() for name in names]
    there = struct.is_valid().to_pylist()
    return [
        key if is_there else None for key, is_there in zip(zip(*columns, strict=True), there, strict=True)
    ]


def typed(struct: pa.StructArray, relation: Relation, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the types of the table: what was read as text is read once more."""
    texts = frozenset(one.name for one in identity_columns(relation))
    columns = []
    for one in relation.columns:
        values = pc.struct_field(struct, one.name)
        columns.append(value_type(one).read(values.cast(pa.binary())) if one.name in texts else values)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
