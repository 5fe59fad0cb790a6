"""The driver's side of a captured PostgreSQL: what history the journal has, and which tasks read it.

A place is the LSN of a transaction's commit record. An LSN in the server's own words means everything before
it, so it is the place before: a marker of LSN L proves the head L − 1.

What a table looks like is told by the journal, with its changes. Of one that has not changed yet the catalog
tells, once the journal has passed the place where the catalog was read: whatever came before that place would
have shown itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from truecut.config.settings import SourceSettings, TableSettings
from truecut.errors import ExitCode, Fault, TruecutError
from truecut.journal.decoding import table_hash
from truecut.journal.opening import journal_of, open_reader
from truecut.model.position import Position, SourcePosition
from truecut.model.table import Mode, TableName, TableSchema
from truecut.sources.contract import Observation, TableRead, Window, WindowLimits
from truecut.sources.postgres import faults, journaled, leaves, published, seed, shape
from truecut.sources.postgres import messages as wire
from truecut.sources.postgres.address import server_address, units_of
from truecut.sources.postgres.captured import CapturedLog, Extent
from truecut.sources.postgres.published import Published
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.tasks import Share, place_text
from truecut.sources.postgres.told import Told
from truecut.sources.postgres.unit_state import standing
from truecut.sources.postgres.window import (
    KNOWN_MAX,
    Plan,
    Schemas,
    Walk,
    Wanted,
    changed_by_choice,
    tasks_of,
)

CATALOG_S = 10.0  # between two looks at the catalog
NO_LOG = "TC6009"


class Known(NamedTuple):
    """A table's schema at a place: its id, and what it means."""

    number: int
    relation: Relation


@dataclass(slots=True)
class _Seen:
    """What is known of the tables beside the journal."""

    catalog: Published | None = None
    since: dict[TableName, int] = field(default_factory=dict)  # LSN: the catalog has had it so since before
    last: dict[TableName, Relation] = field(default_factory=dict)  # also of those that it no longer has
    before: dict[TableName, tuple[int, Relation]] = field(default_factory=dict)  # LSN, what it was until then
    ahead: int | None = None  # the server's log when it was first looked at, as a place
    looked_s: float = 0.0
    passed: int = 0  # the journal was looked through up to this record
    first_new: int | None = None  # the first record of changes since the last look
    latest: dict[TableName, tuple[int, Relation]] = field(default_factory=dict)  # place, what it shows


class CapturedSource:
    """A PostgreSQL whose changes are in a journal. `generation` is that of all its positions."""

    def __init__(self, settings: SourceSettings, *, generation: int) -> None:
        self._generation = generation
        self._address = server_address(settings)
        self._where = journal_of(settings)
        self._tables: Mapping[TableName, TableSettings] = {table.name: table for table in settings.tables}
        self._units = units_of(settings)
        self._log = CapturedLog(open_reader(self._where))
        self._schemas = Schemas(self._log)
        self._told = Told(self._units, self._tables)
        self._identity = ""
        self._seen = _Seen()
        self._known: dict[tuple[TableName, int], Known] = {}  # (table, place) → its schema there
        self._lock = threading.RLock()

    # --- what there is --------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Identity and bounds of what is captured."""
        with self._lock:
            extent = self._extent()
            self._look_at_catalog(extent)
            self._look_through(extent)
            head = extent.last.lsn - 1
            return Observation(
                identity=extent.identity,
                oldest=self._position(extent.first.lsn - 1),
                head=self._position(head),
                head_committed_at_ms=self._committed_at_ms(extent),
                head_source=SourcePosition(place_text(head)),
                ahead=None if self._seen.ahead is None else self._position(max(head, self._seen.ahead)),
                unready={
                    name: why
                    for name, table in self._tables.items()
                    if (why := self._unready(table, extent)) is not None
                },
            )

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        """The table's schema at a position, as far as somebody knows."""
        with self._lock:
            relation = self._relation(table.name, at.place)
        if relation is None:
            raise TruecutError.of(shape.missing(table.name), ExitCode.WRONG_INPUT)
        return shape.delivered(relation)

    def _extent(self) -> Extent:
        try:
            extent = self._log.extent()
        except TruecutError as error:
            if error.fault.code != NO_LOG:
                raise
            extent = None
        if extent is None:
            raise faults.not_captured_yet()
        if extent.identity != self._identity:  # places of another log mean nothing in this one
            self._identity = extent.identity
            self._known.clear()
            self._seen.latest.clear()
        return extent

    def _look_at_catalog(self, extent: Extent) -> None:
        """Now and then. What is in the journal can be delivered while the server is away."""
        now = time.monotonic()
        if self._seen.catalog is not None and now < self._seen.looked_s + CATALOG_S:
            return
        if self._seen.catalog is None:
            self._seen.passed = extent.last.record  # before the catalog: what it does not know comes behind
        self._seen.looked_s = now
        before = self._seen.catalog or published.NOTHING
        known = before.relations
        try:
            self._seen.catalog = found = published.look(self._address, before)
        except TruecutError:
            if self._seen.catalog is None:
                raise
            return
        self._seen.ahead = found.lsn - 1 if self._seen.ahead is None else self._seen.ahead
        for name, relation in found.relations.items():
            if known.get(name) != relation:
                if name in self._seen.last:  # one that takes a name is not published at once
                    self._seen.before[name] = self._seen.since[name], self._seen.last[name]
                self._seen.since[name], self._seen.last[name] = found.lsn, relation
        self._forget_replaced(found)
        self._told.look(found, log=extent.identity)

    def _forget_replaced(self, catalog: Published) -> None:
        """A copy of the table that had the name before is none of the one that has it now."""
        for name in self._tables:
            edition, now = self._units.current(name), catalog.relations.get(name)
            if edition is None or now is None or edition.void is not None:
                continue
            if edition.plan.relation.oid != now.oid:
                edition.make_void("another table has taken its name")

    def _look_through(self, extent: Extent) -> None:
        """What is new in the journal: tables that show themselves."""
        start = self._seen.passed
        if start >= extent.last.record:
            return
        after = extent.first if start < extent.first.record else extent.last._replace(record=start)
        for section in self._log.sections(extent, after):
            self._schemas.learn(section.schemas)
            for one in section.changes:
                self._seen.first_new = self._seen.first_new or one.position.place
                for number in one.head.record.schemas:
                    relation = self._schemas[number]
                    self._seen.latest[relation.name] = section.end.lsn - 1, relation
        self._seen.passed = extent.last.record

    def _unready(self, table: TableSettings, extent: Extent) -> str | None:
        """Why the table cannot be given whole yet."""
        catalog = self._seen.catalog
        assert catalog is not None
        if table.name not in catalog.relations and table.name not in self._seen.latest:
            return shape.missing(table.name).message
        if table.backfill != "none":
            return standing(self._units, table.name, self._log, extent).why
        return (
            None
            if extent.last.lsn >= self._seen.since.get(table.name, 0)
            else "the journal has not reached the catalog yet"
        )

    def _committed_at_ms(self, extent: Extent) -> int:
        """When the first transaction of what is new has committed; where nothing has, when that was said."""
        record, self._seen.first_new = self._seen.first_new, None
        if record is None:
            return extent.written_ms
        (first, *_) = journaled.messages_of(self._log.payload(record))
        return wire.begin(first).committed_ms if first[0] == wire.BEGIN else extent.written_ms

    # --- windows --------------------------------------------------------------------------------------

    def plan_window(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: Position,
        limits: WindowLimits,
        parallelism: int,
    ) -> Window:
        """The changes of each table after its own position, up to a common end."""
        with self._lock:
            extent = self._extent()
            wanted = [
                Wanted(read, after.place, modes, known.number if known is not None else None)
                for read, after, modes in tables.values()
                for known in [self._known.get((read.name, after.place))]
            ]
            if not wanted:
                return Window(upto_max, 0, (), {}, 0, identity=extent.identity)
            if lost := self._lost(extent, wanted):
                return self._without(extent, upto_max, lost)
            oids = self._told.oids(log=extent.identity)
            walk = Walk(self._log, self._schemas, wanted, upto_max=upto_max.place, limits=limits, oids=oids)
            plan = walk.plan(extent)
            if walk.strayed:
                return self._without(
                    extent, upto_max, {n: faults.strayed(n, o) for n, o in walk.strayed.items()}
                )
            if plan.upto < min(upto_max.place, max(walk.earliest, min(one.after for one in wanted) + 1)):
                raise faults.not_captured_yet()
            return self._window(extent, wanted, plan, walk.ids, parallelism)

    def _without(self, extent: Extent, upto: Position, lost: Mapping[TableName, Fault]) -> Window:
        """Nothing but which tables cannot be read from where they stand."""
        return Window(upto, 0, (), {}, 0, lost, lost=frozenset(lost), identity=extent.identity)

    def _lost(self, extent: Extent, wanted: Sequence[Wanted]) -> dict[TableName, Fault]:
        """Tables that stand before what the journal still has."""
        oldest = extent.first.lsn - 1
        trimmed = {
            one.read.name: faults.trimmed(self._position(one.after), self._position(oldest))
            for one in wanted
            if one.after < oldest
        }
        return self._told.untold(wanted, log=extent.identity) | trimmed

    def _window(
        self,
        extent: Extent,
        wanted: Sequence[Wanted],
        plan: Plan,
        ids: Mapping[int, TableName],
        parallelism: int,
    ) -> Window:
        schemas: dict[TableName, TableSchema] = {}
        held: dict[TableName, Fault] = {}
        shares: list[Share] = []
        altered, alike = set(), set()
        for one in wanted:
            name, number = one.read.name, plan.schemas.get(one.read.name)
            if number is None:
                if self._is_gone(name, plan.upto):
                    held[name] = shape.missing(name)
                elif self._is_replaced(extent, one, plan.upto):
                    held[name] = shape.replaced(name)
                elif (untold := self._of_leaves(extent, one.read, one.modes)) is not None:
                    held[name] = untold
                self._remember(name, plan.upto, self._known.get((name, one.after)))
                continue
            relation = self._resolved(extent, one, number)
            before = self._before(extent, one)
            fault = relation if isinstance(relation, Fault) else self._fault(one, relation, before)
            fault = fault or self._of_leaves(extent, one.read, one.modes)
            if fault is not None or isinstance(relation, Fault):
                held[name] = fault or shape.missing(name)
                continue
            schemas[name] = shape.delivered(relation)
            shares.append(Share(one.read, one.after, relation, "append" in one.modes))
            if one.before != number:
                altered.add(name)
                if before is None or shape.alike(before, relation):
                    alike.add(name)
            self._remember(name, plan.upto, Known(number, relation))
        relations = {number: self._schemas[number] for number, name in ids.items() if name in schemas}
        tasks = tasks_of(self._where, plan, shares, relations, parallelism=parallelism)
        return Window(
            self._position(plan.upto),
            0,
            tasks,
            schemas,
            plan.rows,
            held,
            frozenset(altered),
            upto_source=SourcePosition(place_text(plan.upto)),
            identity=extent.identity,
            alike=frozenset(alike),
        )

    def _fault(self, one: Wanted, relation: Relation, before: Relation | None) -> Fault | None:
        """`before` is what the table was where it stands, as far as somebody knows."""
        settings = self._tables.get(one.read.name)
        if before is not None and before.oid != relation.oid:
            return shape.replaced(one.read.name)
        changed = before is not None and not shape.alike(before, relation)
        if changed and settings is not None and settings.on_schema_change == "stop":
            return changed_by_choice(one.read.name)
        return shape.fault_in(one.read, relation, one.modes)

    def _of_leaves(self, extent: Extent, table: TableRead, modes: frozenset[Mode]) -> Fault | None:
        """By the catalog of now: it may be mended since the last look. What was read meanwhile does not see
        that."""
        if self._apart(table, modes) is None:
            return None
        self._seen.looked_s = float("-inf")
        self._look_at_catalog(extent)
        fault = self._apart(table, modes)
        edition = self._units.current(table.name)
        if fault is not None and edition is not None and edition.void is None:
            edition.make_void("what was wrong with it has been said")
        return fault

    def _apart(self, table: TableRead, modes: frozenset[Mode]) -> Fault | None:
        catalog = self._seen.catalog
        relation = None if catalog is None else catalog.relations.get(table.name)
        if catalog is None or relation is None:
            return None
        return leaves.fault_in(table, relation, catalog.leaves.get(relation.oid, ()), modes)

    def _before(self, extent: Extent, one: Wanted) -> Relation | None:
        """What a table was where it stands: by this process's memory, the catalog of then, or by whatever is
        later, its copy or the journal further back."""
        known = self._known.get((one.read.name, one.after))
        if known is not None:
            return known.relation
        if (found := self._catalog_before(one)) is not None:
            return found
        copied, record = self._copied(extent, one)
        seen, shown = self._seen_before(extent, one)
        if copied is not None and (seen is None or record >= shown):
            return copied
        catalog = self._seen.catalog
        now = None if catalog is None else catalog.relations.get(one.read.name)
        began_anew = copied is None and seen is not None and now is not None and now.oid != seen.oid
        return None if began_anew else seen

    def _copied(self, extent: Extent, one: Wanted) -> tuple[Relation | None, int]:
        """As its copy was read, and where the journal was then; if that was before where it stands."""
        edition = self._units.current(one.read.name) if self._is_copied(one.read.name) else None
        if edition is None or edition.settled.log != extent.identity:
            return None, 0
        ends = [(1 << 63) if record is None else record.hi for record in edition.records()]
        return (edition.plan.relation, edition.settled.after.place) if max(ends) <= one.after else (None, 0)

    def _is_replaced(self, extent: Extent, one: Wanted, upto: int) -> bool:
        """Another table has its name by now, which has not changed yet."""
        catalog = self._seen.catalog
        found = None if catalog is None else catalog.relations.get(one.read.name)
        if catalog is None or found is None or upto < self._seen.since[one.read.name] - 1:
            return False
        before = self._before(extent, one)
        return before is not None and before.oid != found.oid

    def _is_gone(self, name: TableName, upto: int) -> bool:
        """The catalog, which was read at or before this place, does not have it."""
        catalog = self._seen.catalog
        return catalog is not None and name not in catalog.relations and upto >= catalog.lsn - 1

    def _resolved(self, extent: Extent, one: Wanted, number: int) -> Relation | Fault:
        """By what the table was before."""
        found = shape.resolved(self._schemas[number], None)
        if not isinstance(found, Fault):
            return found
        return shape.resolved(self._schemas[number], self._before(extent, one))

    def _catalog_before(self, one: Wanted) -> Relation | None:
        """As the catalog had it at some place at or before the table's own."""
        name, catalog = one.read.name, self._seen.catalog
        if catalog is not None and name in catalog.relations and self._seen.since[name] - 1 <= one.after:
            return catalog.relations[name]
        lsn, relation = self._seen.before.get(name, (0, None))
        return relation if lsn - 1 <= one.after else None

    def _seen_before(self, extent: Extent, one: Wanted) -> tuple[Relation | None, int]:
        """As the journal showed it last before where it stands, and in which record."""
        wanted = table_hash(str(one.read.name))
        for outline in self._log.schemas_before(extent, self._log.before(extent, one.after + 1)):
            if any(number >> 32 == wanted for number in outline.head.record.schemas):
                self._schemas.learn([outline])
                relation = self._schemas[outline.head.record.schemas[0]]
                if relation.name == one.read.name and not isinstance(shape.resolved(relation, None), Fault):
                    return relation, outline.position.place
        return None, 0

    def _remember(self, name: TableName, place: int, known: Known | None) -> None:
        if known is None:
            return
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[name, place] = known

    # --- seeds ----------------------------------------------------------------------------------------

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        """Of units and the log; a table of which only changes are wanted begins empty."""
        with self._lock:
            extent = self._extent()
            there = [table for table in tables if not self._is_nowhere(table.name, at.place)]
            apart = {
                table.name: why
                for table in there
                if (why := self._of_leaves(extent, table, frozenset())) is not None
            }
            there = [table for table in there if table.name not in apart]
            whole = [table for table in there if self._is_copied(table.name)]
            tables = [table for table in tables if table not in whole and table.name not in apart]
            found = seed.plan_seed(
                self._address,
                self._where,
                whole,
                at=at,
                log=self._log,
                parallelism=parallelism,
                ledger=self._units,
            )
            schemas: dict[TableName, TableSchema] = {}
            held: dict[TableName, Fault] = {}
            for table in tables:
                relation = self._relation(table.name, at.place)
                if relation is None:
                    held[table.name] = shape.missing(table.name)
                elif (fault := shape.fault_in(table, relation, frozenset())) is not None:
                    held[table.name] = fault
                else:
                    schemas[table.name] = shape.delivered(relation)
            told = SourcePosition(place_text(at.place))
            return replace(
                found,
                schemas={**found.schemas, **schemas},
                faults={**found.faults, **held, **apart},
                upto_source=told,
                identity=extent.identity,
            )

    def _is_copied(self, name: TableName) -> bool:
        """With the content that it had before the log."""
        table = self._tables.get(name)
        return table is None or table.backfill != "none"

    def _is_nowhere(self, name: TableName, at: int) -> bool:
        """Nothing of it was read, and nothing is there to be: others need not wait for its units."""
        return self._units.current(name) is None and self._relation(name, at) is None

    def _relation(self, name: TableName, at: int) -> Relation | None:
        """As the journal showed it last, or the catalog."""
        latest = self._seen.latest.get(name)
        if latest is not None and latest[0] <= at:
            return latest[1]
        if self._seen.catalog is None:  # who has not observed yet is not told that nothing is there
            self._look_at_catalog(self._extent())
        catalog = self._seen.catalog
        found = None if catalog is None else catalog.relations.get(name)
        if found is not None and at < self._seen.since[name] - 1:
            raise faults.not_captured_yet()
        return found

    def _position(self, place: int) -> Position:
        return Position(self._generation, place)
