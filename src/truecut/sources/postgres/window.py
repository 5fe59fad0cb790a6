"""Planning a window: where it ends, what its tables look like there, which tasks read it.

Metadata only, but for schemas, and for a record in which a table's schema changes. A window ends at a marker,
or before the first transaction that sees one of its tables with other columns than before: so a window has
one schema for each table. Only a transaction that changes rows and then columns of a table has two, and a
window that may not end earlier, because another of its tables stands further on: these rows are told in the
later one's columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from truecut.errors import Fault
from truecut.journal.contract import Outline
from truecut.journal.decoding import table_hash
from truecut.journal.opening import Where
from truecut.model.table import Mode, TableName
from truecut.sources.contract import ReadTask, TableRead, WindowLimits
from truecut.sources.postgres import journaled
from truecut.sources.postgres import messages as wire
from truecut.sources.postgres.captured import CapturedLog, Extent, Section
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.schemas import announced
from truecut.sources.postgres.tasks import JournalTask, Share

KNOWN_MAX = 4096
SCHEMA_CHANGED = "TC3053"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One table of a window."""

    read: TableRead
    after: int
    modes: frozenset[Mode]
    before: int | None = None  # the id of its schema where it stands; None: nobody remembers


@dataclass(frozen=True, slots=True)
class Step:
    """From this transaction on a table has this schema."""

    commit_lsn: int
    table: TableName
    schema: int


@dataclass(slots=True)
class Plan:
    """What was found of a window."""

    upto: int
    schemas: dict[TableName, int] = field(
        default_factory=dict
    )  # at its end, of tables that have changes in it
    pieces: list[tuple[int, int, int]] = field(default_factory=list)  # first and last record, bytes
    rows: int = 0


class Schemas:
    """Versions of relations by their ids. A table's hash may be that of another one: the name decides."""

    def __init__(self, log: CapturedLog) -> None:
        self._log = log
        self._known: dict[int, Relation] = {}

    def __getitem__(self, number: int) -> Relation:
        return self._known[number]

    def learn(self, outlines: Sequence[Outline]) -> None:
        """What schema records say."""
        for one in outlines:
            for number in one.head.record.schemas:
                if number not in self._known:
                    document = json.loads(self._log.payload(one.position.place))
                    self._known[number] = Relation.of(document)

    def of_tables(self, numbers: Sequence[int], tables: Mapping[int, set[TableName]]) -> dict[int, TableName]:
        """Which of these are schemas of the tables, which are given by their hashes."""
        near = [number for number in numbers if number >> 32 in tables]
        return {
            number: self._known[number].name
            for number in near
            if self._known[number].name in tables[number >> 32]
        }


class Walk:
    """Along the journal, section by section, until the window ends."""

    def __init__(
        self,
        log: CapturedLog,
        schemas: Schemas,
        wanted: Sequence[Wanted],
        *,
        upto_max: int,
        limits: WindowLimits,
        oids: Mapping[int, TableName] = MappingProxyType({}),
    ) -> None:
        """`oids`: which of the tables have these, whatever they are called."""
        self._log = log
        self._schemas = schemas
        self._upto_max = upto_max
        self._limits = limits
        self._after = min(one.after for one in wanted)
        not_before = 0 if limits.not_before is None else limits.not_before.place
        self.earliest = max(not_before, *(one.after for one in wanted))  # no place moves back
        self._now = {one.read.name: one.before for one in wanted if one.before is not None}
        self._hashes: dict[int, set[TableName]] = {}
        for one in wanted:
            self._hashes.setdefault(table_hash(str(one.read.name)), set()).add(one.read.name)
        self._oids = {oid: name for oid, name in oids.items() if name in {one.read.name for one in wanted}}
        self._stands = {one.read.name: one.after for one in wanted}
        self.strayed: dict[TableName, TableName] = {}  # written to under another name, which
        self.ids: dict[int, TableName] = {}  # of the schemas of the window's changes
        self._size = 0
        self._first_part: Outline | None = None  # of the transaction that is under way
        self._plan = Plan(self._after)

    def plan(self, extent: Extent) -> Plan:
        """Up to a marker, the greatest place allowed, or a change of columns."""
        start = self._log.before(extent, self._after + 1)
        first, begin = start.record + 1, start.lsn - 1
        for section in self._log.sections(extent, start):
            cut = self._take(section, begin)
            end = min(section.end.lsn - 1, self._upto_max) if cut is None else cut
            self._plan.pieces.append((first, section.end.record, self._size))
            self._plan.upto = max(self._plan.upto, end)
            if cut is None:
                self._log.remember(section.end.lsn, section.end)
            if cut is not None or end >= self._upto_max or self._is_enough(end):
                break
            first, begin, self._size = section.end.record + 1, section.end.lsn - 1, 0
        return self._plan

    def _is_enough(self, end: int) -> bool:
        """Something is in it, and more would be too much."""
        if not self._plan.rows or end < self.earliest:
            return False
        size = sum(size for *_, size in self._plan.pieces)
        return self._plan.rows >= self._limits.rows_max or size >= self._limits.bytes_max

    def _take(self, section: Section, begin: int) -> int | None:
        """The changes of a section; where the window has to end before it, or in it."""
        self._schemas.learn(section.schemas)
        for one in section.changes:
            record = one.head.record
            self._stray(record.schemas, section.end.lsn - 1)
            ours = self._schemas.of_tables(record.schemas, self._hashes)
            if record.part == 0:
                self._first_part = one
            if ours:
                self._plan.rows += record.rows
                self._size += one.head.payload_bytes
                if (cut := self._cut(one, ours, begin, section.end.lsn - 1)) is not None:
                    return cut
        return None

    def _stray(self, numbers: Sequence[int], upto: int) -> None:
        """A table that is away from its name, and may be back, has changes that no window of its name has."""
        for number in numbers:
            relation = self._schemas[number]
            name = self._oids.get(relation.oid)
            if name not in (None, relation.name) and upto > self._stands[name]:
                self.strayed[name] = relation.name

    def _cut(self, one: Outline, ours: Mapping[int, TableName], begin: int, end: int) -> int | None:
        """The place before the first change with other columns; None where the record is taken whole. The
        record is of the section `(begin, end]`."""
        for step in self._steps(one, ours, begin, end):
            if step.commit_lsn > self._upto_max:
                return None
            self.ids[step.schema] = step.table
            if (
                step.commit_lsn <= self._stands[step.table]
            ):  # what it was before is nothing to who stands here
                self._now[step.table] = step.schema
                continue
            known = self._now.get(step.table)
            before = step.commit_lsn - 1
            if known not in (None, step.schema) and before > self._after and before >= self.earliest:
                return before
            self._plan.schemas[step.table] = self._now[step.table] = step.schema
        return None

    def _steps(self, one: Outline, ours: Mapping[int, TableName], begin: int, end: int) -> Iterator[Step]:
        """Where a record's tables get their schemas. Looked into only where something is new, or where one of
        them stands within the section: then a schema is its own again with the first change behind that."""
        is_known = all(self._now.get(table) == number for number, table in ours.items())
        if is_known and not any(begin < self._stands[table] < end for table in ours.values()):
            yield from (Step(begin + 1, table, number) for number, table in ours.items())
            return
        place = self._begun(one)
        announced_as: dict[int, int] = {}
        for message in journaled.messages_of(self._log.payload(one.position.place)):
            if message[0] == wire.BEGIN:
                place = wire.begin(message).commit_lsn
            elif message[0] == wire.RELATION:
                number = self._number(message, ours)
                if number is not None:
                    announced_as[self._schemas[number].oid] = number
                    yield Step(place, ours[number], number)
            for oid in _changed(message):
                number = announced_as.get(oid)
                if number is not None and place > self._stands[ours[number]]:
                    del announced_as[oid]  # once is enough
                    yield Step(place, ours[number], number)

    def _begun(self, one: Outline) -> int:
        """Where the transaction commits that a record goes on with; 0 where it begins one itself."""
        first = self._first_part
        if not one.head.record.part or first is None:
            return 0
        (begin, *_) = journaled.messages_of(self._log.payload(first.position.place))
        return wire.begin(begin).commit_lsn

    def _number(self, message: bytes, ours: Mapping[int, TableName]) -> int | None:
        """Which of the schemas a Relation message announces."""
        said = announced(message)
        for number in ours:
            version = self._schemas[number]
            columns = tuple((c.name, c.type_oid, c.typmod, c.identity) for c in version.columns)
            alike = (version.oid, version.name, version.replica_identity) == (
                said.oid,
                said.name,
                said.replica_identity,
            )
            if alike and columns == said.columns:
                return number
        return None


def _changed(message: bytes) -> Sequence[int]:
    """The relations whose rows a message changes."""
    if message[0] in wire.ROWS:
        return (wire.relation_oid(message),)
    return wire.truncated_oids(message) if message[0] == wire.TRUNCATE else ()


def tasks_of(
    where: Where,
    plan: Plan,
    shares: Sequence[Share],
    relations: Mapping[int, Relation],
    *,
    parallelism: int,
) -> list[ReadTask]:
    """The window's records in about equal parts; sections without anything of its tables are left out."""
    pieces = [piece for piece in plan.pieces if piece[2]]
    if not pieces or not shares:
        return []
    total = sum(size for *_, size in pieces)
    bound = max(1, -(-total // parallelism))
    tasks: list[ReadTask] = []
    group: list[tuple[int, int, int]] = []
    for piece in pieces:
        group.append(piece)
        if sum(size for *_, size in group) >= bound:
            tasks.append(_task(where, plan, shares, relations, group))
            group = []
    return [*tasks, _task(where, plan, shares, relations, group)] if group else tasks


def _task(
    where: Where,
    plan: Plan,
    shares: Sequence[Share],
    relations: Mapping[int, Relation],
    group: Sequence[tuple[int, int, int]],
) -> JournalTask:
    return JournalTask(where, group[0][0], group[-1][1], plan.upto, tuple(shares), relations)


def changed_by_choice(table: TableName) -> Fault:
    """The file says that the table stops when its columns change."""
    return Fault(
        SCHEMA_CHANGED,
        f"{table}: its columns have changed, and the pipeline says `on_schema_change: stop`",
        f"Say evolve, or go on: truecut resume FILE --table {table}",
    )
