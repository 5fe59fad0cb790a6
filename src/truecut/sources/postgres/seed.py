"""A table's whole content at a place, put together of units that were read at other times and of the log.

Two kinds of tasks. One reads the files of some units and gives the rows that no event touched. The other has
the rows that events touched, from the log, and from the files where an event left a value untold. Each folds
the log by itself, so that tasks need nothing from each other and give the same every time. A value that
nobody has makes its unit torn: it is read again, under a snapshot that sees all up to this place (C5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecut.core import splice
from truecut.errors import Fault, Retry, TruecutError
from truecut.journal.opening import Where
from truecut.model.change import CONTROL_FIELDS, READ, first_of_reading
from truecut.model.position import Position
from truecut.model.table import TableName, TableSchema
from truecut.model.units import Witness
from truecut.sources.contract import ReadTask, Rows, TableRead, Window
from truecut.sources.postgres import shape, unit_faults
from truecut.sources.postgres.captured import CapturedLog
from truecut.sources.postgres.fold import Counted, Key, Keyed, OfFile
from truecut.sources.postgres.row_store import RowStore
from truecut.sources.postgres.server import Address, connect
from truecut.sources.postgres.splicing import Folded, Spliced, all_ready
from truecut.sources.postgres.types import row_type
from truecut.sources.postgres.unit_ledger import UnitLedger, UnitRecord
from truecut.sources.postgres.unit_read import KEY, digest_of
from truecut.sources.postgres.unit_state import strayed, without_its_log
from truecut.sources.postgres.units import units_of
from truecut.sources.postgres.witnessed import Witnessing

SEQS_MAX = 1 << 31  # of one table: a table's numbers begin at its oid times this
_ROWS = 16_384
_MIXED_ROWS = 1024  # whose large values are taken together


def plan_seed(
    address: Address,
    journal_opening: Where,
    tables: Sequence[TableRead],
    *,
    at: Position,
    log: CapturedLog,
    parallelism: int,
    ledger: UnitLedger,
    committed_at_ms: int = 0,
) -> Window:
    """The tables' whole content at `at`, as READ rows. `log` is what the journal has. Raises
    where a table's units are not all there, or end behind `at`: it is to be tried again. A table that cannot
    be read is among the faults."""
    schemas: dict[TableName, TableSchema] = {}
    faults: dict[TableName, Fault] = {}
    tasks: list[ReadTask] = []
    rows = 0
    for table in tables:
        try:
            found = spliced(address, journal_opening, table.name, at=at.place, log=log, ledger=ledger)
            fault = shape.fault_in(table, found.relation, frozenset())
            if fault is not None:  # it may be mended where nothing tells: what was read does not see that
                found.edition.make_void("what was wrong with it has been said")
        except TruecutError as error:
            if error.fault.retry is not Retry.NOT_RETRYABLE:
                raise
            fault = error.fault
        if fault is not None:
            faults[table.name] = fault
            continue
        schemas[table.name] = shape.delivered(found.relation)
        first = first_of_reading(table.reading, first=found.relation.oid * SEQS_MAX)
        tasks += _tasks(found, parallelism, first, committed_at_ms)
        rows += sum(record.rows for record in found.records)
    return Window(at, committed_at_ms, tasks, schemas, rows, faults)


def spliced(
    address: Address, journal: Where, table: TableName, *, at: int, log: CapturedLog, ledger: UnitLedger
) -> Spliced:
    """The table's newest edition, if it is of use at that place."""
    edition = ledger.current(table)
    if edition is None:
        raise unit_faults.not_ready(table, "it has not been read yet")
    if (why := edition.void or without_its_log(edition, log, log.extent())) is not None:
        raise unit_faults.not_ready(table, why)
    if (fault := edition.fault) is not None:
        edition.make_void("what was wrong with it has been said")
        raise TruecutError.of(fault)
    records = edition.records()
    known = tuple(record for record in records if record is not None)
    if len(known) < len(records):
        raise unit_faults.not_ready(table, f"{len(known)} of its {len(records)} units were read")
    if not edition.plan.by and len({record.snapshot for record in known}) > 1:
        edition.make_void("its pages were read under several snapshots")
        raise unit_faults.not_ready(table, "its pages were read under several snapshots")
    if not all_ready(edition, known, at=at):
        raise unit_faults.not_ready(table, "it was read at a later place")
    extent = log.extent()
    if extent is not None and (away := strayed(known, log, extent)):
        raise unit_faults.not_ready(table, f"{len(away)} of its units are of a history that did not go on")
    return Spliced(table, address, journal, edition, known, at)


def _tasks(found: Spliced, parallelism: int, first: int, committed_at_ms: int) -> list[ReadTask]:
    count = max(1, min(parallelism, len(found.records)))
    shares = _shares([record.rows for record in found.records], count)
    numbers = len(shares) + 1
    made: list[ReadTask] = [
        UnitRows(found, tuple(share), Numbering(number, numbers, first, committed_at_ms))
        for number, share in enumerate(shares)
    ]
    return [*made, EventRows(found, Numbering(numbers - 1, numbers, first, committed_at_ms))]


def _shares(sizes: Sequence[int], count: int) -> list[list[int]]:
    """The largest first, each to whoever has least."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for unit in sorted(range(len(sizes)), key=lambda unit: -sizes[unit]):
        least = loads.index(min(loads))
        shares[least].append(unit)
        loads[least] += sizes[unit] + 1
    return [sorted(share) for share in shares if share]


# --- what travels to executors ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Numbering:
    """Which numbers a task gives its rows: every `of`-th, from the first on."""

    task: int
    of: int
    first: int
    committed_at_ms: int

    def _times(self, count: int) -> pa.Array:
        kind = CONTROL_FIELDS[3].type
        if not self.committed_at_ms:  # nobody told
            return pa.nulls(count, kind)
        return pa.array(np.full(count, self.committed_at_ms * 1000, np.int64)).view(kind)

    def batch(self, found: Spliced, columns: Sequence[pa.Array], *, first: int) -> Rows:
        """Rows in the form of `model.change`; `first` is how many the task gave before."""
        count = len(columns[0]) if columns else 0
        numbers = self.first + (np.arange(first, first + count) * self.of + self.task)
        control = [
            pa.array(np.full(count, READ, np.uint8)),
            pa.array(np.full(count, found.at, np.uint64)),
            pa.array(numbers.astype(np.int64)),
            self._times(count),
        ]
        schema = pa.schema([*CONTROL_FIELDS, *row_type(found.relation)])
        return Rows(found.table, pa.RecordBatch.from_arrays([*control, *columns], schema=schema))


@dataclass(frozen=True)
class UnitRows:
    """Rows of some units that no event touched."""

    found: Spliced
    units: tuple[int, ...]
    numbering: Numbering

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (self.found.table,)

    def read(self) -> Iterator[Rows]:
        return self._read(None)

    def read_witnessed(self, witness: Witness) -> Iterator[Rows]:
        """The same rows; the witness is told those that events touched, too."""
        return self._read(witness)

    def _read(self, witness: Witness | None) -> Iterator[Rows]:
        folded = self.found.fold()
        touched = _Touched(folded.touched())
        width = len(self.found.relation.columns)
        count = 0
        for unit in self.units:
            if witness is not None:
                witness.unit(self.found.table, unit)
            elif unit in folded.void:
                continue
            for batch in _batches(self.found, unit):
                if witness is not None:
                    witness.rows(self.found.table, batch.select(range(width)))
                    if unit in folded.void:
                        continue
                left = batch.filter(pc.invert(touched.among(batch)))
                if left.num_rows:
                    yield self.numbering.batch(self.found, left.columns[:width], first=count)
                    count += left.num_rows


@dataclass(frozen=True)
class EventRows:
    """The rows that events touched."""

    found: Spliced
    numbering: Numbering

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (self.found.table,)

    def read(self) -> Iterator[Rows]:
        return self._read(None)

    def read_witnessed(self, witness: Witness) -> Iterator[Rows]:
        """The same rows; the witness is told all events, and how the units were read."""
        return self._read(Witnessing(self.found, witness))

    def _read(self, witnessing: Witnessing | None) -> Iterator[Rows]:
        schema = pa.schema(list(row_type(self.found.relation)))
        count = 0
        with RowStore(schema) as store:
            folded = self.found.fold(store, None if witnessing is None else witnessing.take)
            if witnessing is not None:
                witnessing.end()
            for columns in _columns(self.found, folded, store):
                yield self.numbering.batch(self.found, columns, first=count)
                count += len(columns[0])


def _columns(found: Spliced, folded: Folded, store: RowStore) -> Iterator[list[pa.Array]]:
    if isinstance(folded.rows, Counted):
        return _counted(found, folded, folded.rows, store)
    return _keyed(found, folded, folded.rows, store)


def _keyed(found: Spliced, folded: Folded, keyed: Keyed, store: RowStore) -> Iterator[list[pa.Array]]:
    in_files = _of_files(found, folded, keyed.of_files(), store)
    mixed = {key: _numbers(row, in_files) for key, row in keyed.rows.items() if type(row) is tuple}
    torn = [key for key, row in mixed.items() if splice.incomplete(row)]
    if torn:
        raise _tear(found, torn)
    whole = sorted(row for row in keyed.rows.values() if isinstance(row, int))
    for first in range(0, len(whole), _ROWS):
        yield store.take(whole[first : first + _ROWS])
    rows = list(mixed.values())
    for first in range(0, len(rows), _MIXED_ROWS):
        columns = zip(*rows[first : first + _MIXED_ROWS], strict=True)
        yield [store.column(number, column) for number, column in enumerate(columns)]


def _numbers(row: tuple[object, ...], in_files: Mapping[Key, int]) -> tuple[object, ...]:
    """With the number of a row wherever a value was of a file; MISSING where no file has it."""
    return tuple(in_files.get(one.key, splice.MISSING) if isinstance(one, OfFile) else one for one in row)


def _counted(found: Spliced, folded: Folded, counted: Counted, store: RowStore) -> Iterator[list[pa.Array]]:
    """As many of each row as the files have, and the events added or took away."""
    in_files: Counter[Key] = Counter()
    numbers = dict(counted.numbers)
    for key, number in _found_in_files(found, folded, counted.rows.keys(), store):
        in_files[key] += 1
        numbers[key] = number
    left = {key: in_files[key] + more for key, more in counted.rows.items()}
    if any(many < 0 for many in left.values()):
        raise _tear(found, [])
    rows = [numbers[key] for key, many in left.items() for _ in range(many)]
    for first in range(0, len(rows), _ROWS):
        yield store.take(rows[first : first + _ROWS])


def _of_files(found: Spliced, folded: Folded, keys: Collection[Key], store: RowStore) -> dict[Key, int]:
    return dict(_found_in_files(found, folded, keys, store))


def _found_in_files(
    found: Spliced, folded: Folded, keys: Collection[Key], store: RowStore
) -> Iterator[tuple[Key, int]]:
    """The rows that files have under these keys, put into the store, and their numbers there."""
    wanted = _Touched(keys)
    width = len(found.relation.columns)
    units = [unit for unit in range(len(found.records)) if unit not in folded.void] if keys else []
    for unit in units:
        for batch in _batches(found, unit):
            rows = batch.filter(wanted.among(batch))
            first = store.put(pa.RecordBatch.from_arrays(rows.columns[:width], schema=store.schema))
            yield from ((key, first + n) for n, key in enumerate(_keys(rows)))


def _tear(found: Spliced, keys: Sequence[Key]) -> TruecutError:
    """C5: the units of these keys are to be read again."""
    with connect(found.address) as connection:
        asked = [tuple(text or "" for text in key) for key in keys]
        units = set(units_of(connection, found.address, found.edition.plan, asked)) or {0}
    for unit in units:
        found.edition.tear(unit, reading=reading_of(found.records[unit]), floor=found.at)
    return unit_faults.torn(found.table, len(units))


def reading_of(record: UnitRecord) -> int:
    """Which reading of its unit it is of."""
    return int(record.file.split(".")[1])


# --- files ----------------------------------------------------------------------------------------------


def _batches(found: Spliced, unit: int) -> Iterator[pa.RecordBatch]:
    """The rows of a unit's file, which is what was written."""
    record = found.records[unit]
    path: Path = found.edition.path(record)
    try:
        file = pa.memory_map(
            str(path)
        )  # who has it open keeps it, also when the edition is forgotten meanwhile
        is_whole = digest_of(path) == record.digest
    except FileNotFoundError:
        is_whole = False
    if not is_whole:
        found.edition.tear(unit, reading=reading_of(record), floor=0)
        raise unit_faults.damaged(found.table, record.file)
    with file, pa.ipc.open_stream(file) as reader:
        yield from reader


def _keys(batch: pa.RecordBatch) -> list[Key]:
    names = [name for name in batch.schema.names if name.startswith(KEY)]
    return list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))


class _Touched:
    """Keys to be found in batches: by the text of the first column all at once, then one by one."""

    def __init__(self, keys: Collection[Key]) -> None:
        self._keys = frozenset(keys)
        self._firsts = pa.array({key[0] for key in self._keys if key}, pa.string())

    def among(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows have one of these keys."""
        if not self._keys:
            return pa.array(np.zeros(batch.num_rows, np.bool_))
        perhaps = np.asarray(pc.is_in(batch.column(f"{KEY}0"), value_set=self._firsts))
        which = np.flatnonzero(perhaps)
        found = np.zeros(batch.num_rows, np.bool_)
        keys = _keys(batch.take(pa.array(which)))
        found[which] = [key in self._keys for key in keys]
        return pa.array(found)
