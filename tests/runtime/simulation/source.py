"""A source with a replayable history: a few small tables whose every snapshot is known for ever, also of the
sources that it has replaced. A snapshot's number here only grows; its place is counted from where its own
source began, so that places of two sources are easily taken for each other.

What the runners see of it is `SourceAt`, which keeps the contract of `truecut.sources.contract`. What is
expired, damaged or cannot be copied is refused there; the laws look at `History` itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.runtime.simulation.clockwork import Clockwork
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.position import Position
from truecut.model.table import Column, Mode, TableName, TableSchema
from truecut.sources import contract
from truecut.sources.contract import Observation, TableRead, Window, WindowLimits

KEYS = range(4)
GONE = Fault("TC2010", "that snapshot was expired", "None needed.", Retry.GAP)
AWAY = Fault("TC2014", "it had another name then", "None needed.", Retry.GAP)
UNFIT = Fault("TC2007", "a row has NULL in its key", "Give it one.")
DOWN = Fault("TC2012", "the source cannot be read", "None needed.", Retry.RETRYABLE)

Rows = Mapping[int, tuple[str, int]]  # key → (route, value)


class Event(NamedTuple):
    """One net change of one key; an update that changes the route is a delete there, an insert here."""

    place: int
    kind: str
    route: str
    key: int
    value: int


@dataclass
class History:
    """Snapshot n is the content after the n-th commit."""

    clockwork: Clockwork
    tables: tuple[str, ...]
    routes: tuple[str, ...]
    identity: str = "source 1"
    begins: dict[str, int] = field(default_factory=dict)  # identity → the snapshot at its place 0
    contents: list[dict[str, Rows]] = field(default_factory=list)
    events: list[dict[str, list[Event]]] = field(default_factory=list)
    widths: list[dict[str, int]] = field(default_factory=list)  # columns of each table
    committed_ms: list[int] = field(default_factory=lambda: [0])
    oldest: int = 0  # snapshot
    down_until_ms: int = 0
    unread_until_ms: dict[str, int] = field(default_factory=dict)  # table → nobody can read it until then
    damaged: dict[str, int] = field(default_factory=dict)  # table → nothing can be read from before this
    away: dict[str, int] = field(default_factory=dict)  # table → the same, but only who reads finds out
    unfit: dict[str, int] = field(default_factory=dict)  # table → the snapshot that cannot be copied

    def __post_init__(self) -> None:
        self.begins[self.identity] = 0
        self.contents.append({table: {} for table in self.tables})
        self.events.append({})
        self.widths.append(dict.fromkeys(self.tables, 3))

    @property
    def head(self) -> int:
        """The newest snapshot."""
        return len(self.contents) - 1

    def snapshot(self, identity: str, place: int) -> int:
        """The snapshot at this place of that source."""
        return self.begins[identity] + place

    def replace(self) -> None:
        """Another source takes its place, with rows of its own; of the old one nothing can be read."""
        rng = self.clockwork.rng
        self.identity = f"source {len(self.begins) + 1}"
        self.begins[self.identity] = self.oldest = len(self.contents)
        rows = {key: (rng.choice(self.routes), rng.randrange(1_000_000)) for key in KEYS}
        self.contents.append({table: dict(rng.sample(sorted(rows.items()), 2)) for table in self.tables})
        self.events.append({})
        self.widths.append(dict.fromkeys(self.tables, 3))
        self.committed_ms.append(self.clockwork.now_ms)
        self.damaged.clear()
        self.unfit.clear()

    @property
    def is_down(self) -> bool:
        """Whether nobody can read it now."""
        return self.clockwork.now_ms < self.down_until_ms

    def hindrance(self, table: str, *, since: int) -> Fault | None:
        """Why the table cannot be read now from that place."""
        if since < self.away.get(table, 0):
            return AWAY
        hidden = self.clockwork.now_ms < self.unread_until_ms.get(table, 0)
        return DOWN if self.is_down or hidden or since < self.oldest else None

    def heal(self) -> None:
        """It can be reached, and its newest rows be copied."""
        self.down_until_ms = 0
        self.unread_until_ms.clear()
        self.unfit.clear()

    def commit(self) -> None:
        """One snapshot: changes of some keys of some tables, perhaps a new column."""
        rng = self.clockwork.rng
        content = dict(self.contents[-1])
        events: dict[str, list[Event]] = {}
        for table in rng.sample(self.tables, rng.randint(1, len(self.tables))):
            rows = dict(content[table])
            touched = rng.sample(KEYS, rng.randint(1, 2))
            events[table] = [e for key in touched for e in self._change(rows, key)]
            content[table] = rows
        widths = dict(self.widths[-1])
        if self.clockwork.happens(0.05):
            widths[rng.choice(self.tables)] += 1
        self.contents.append(content)
        self.events.append(events)
        self.widths.append(widths)
        self.committed_ms.append(self.clockwork.now_ms)

    def _change(self, rows: dict[int, tuple[str, int]], key: int) -> list[Event]:
        clockwork, place, old = self.clockwork, len(self.contents), rows.get(key)
        if old is not None and clockwork.happens(0.3):
            del rows[key]
            return [Event(place, "delete", old[0], key, old[1])]
        stays = old is not None and clockwork.happens(0.6)
        route = old[0] if old is not None and stays else clockwork.rng.choice(self.routes)
        value = clockwork.rng.randrange(1_000_000)
        rows[key] = (route, value)
        if old is None:
            return [Event(place, "insert", route, key, value)]
        if old[0] == route:
            return [Event(place, "update", route, key, value)]
        return [Event(place, "delete", old[0], key, old[1]), Event(place, "insert", route, key, value)]

    # --- what is true ---------------------------------------------------------------------------------------

    def share(self, table: str, route: str | None, *, at: int) -> dict[int, int]:
        """What a mirror of this route (None: of everything) holds at a snapshot."""
        rows = self.contents[at][table].items()
        return {key: value for key, (where, value) in rows if route in (None, where)}

    def changes(self, table: str, route: str | None, *, after: int, upto: int) -> list[Event]:
        """What happened to that share in (after, upto]."""
        found = (e for n in range(after + 1, upto + 1) for e in self.events[n].get(table, ()))
        return [event for event in found if route in (None, event.route)]

    def whole(self, table: str, *, at: int) -> list[Event]:
        """The table at a snapshot, as read rows."""
        rows = sorted(self.contents[at][table].items())
        return [Event(at, "read", route, key, value) for key, (route, value) in rows]

    def schema(self, table: str, *, at: int) -> TableSchema:
        """Its columns at a snapshot."""
        columns = (Column(n, f"c{n}", "BIGINT") for n in range(self.widths[at][table]))
        return TableSchema(table, tuple(columns))


@dataclass(frozen=True)
class Read:
    """A piece of a window: one table's events. It never becomes Arrow; the simulated jobs route it."""

    table: TableName
    events: tuple[Event, ...]
    since: int  # the snapshot; what was expired or replaced meanwhile cannot be read

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (self.table,)

    def read(self) -> Iterator[contract.Rows]:
        """Nobody asks for batches here."""
        raise NotImplementedError


@dataclass
class SourceAt:
    """The source as a driver sees it, with positions of one generation."""

    history: History
    generation: int

    def observe(self) -> Observation:
        """Where it stands now."""
        self._require_up()
        history = self.history
        head_ms = history.committed_ms[-1]
        return Observation(history.identity, self._at(history.oldest), self._at(history.head), head_ms)

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        """Its columns at a place."""
        return self.history.schema(str(table.name), at=self._snapshot(at))

    def plan_window(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: Position,
        limits: WindowLimits,
        parallelism: int,
    ) -> Window:
        """Changes of each table after its own place, to a common end."""
        self._require_up()
        starts = {name: self._snapshot(after) for name, (_, after, _) in tables.items()}
        upto = self._end({str(name): after for name, after in starts.items()}, upto_max, limits)
        faults = {name: f for name, after in starts.items() if (f := self._fault(str(name), after, upto))}
        read = {name: after for name, after in starts.items() if name not in faults}
        tasks = [Read(name, self._events(str(name), after, upto), after) for name, after in read.items()]
        schemas = {name: self.history.schema(str(name), at=upto) for name in read}
        lost = frozenset(name for name, fault in faults.items() if fault.retry is Retry.GAP)
        given = [task for task in tasks if task.events]
        identity = self.history.identity
        return Window(self._at(upto), 0, given, schemas, 0, faults, lost=lost, identity=identity)

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        """The tables as they were at a place."""
        self._require_up()
        snapshot = self._snapshot(at)
        if snapshot < self.history.oldest:
            raise TruecutError.of(GONE)
        names = [table.name for table in tables]
        tasks = [Read(name, tuple(self.history.whole(str(name), at=snapshot)), snapshot) for name in names]
        schemas = {name: self.history.schema(str(name), at=snapshot) for name in names}
        return Window(at, 0, tasks, schemas, 0, identity=self.history.identity)

    def _events(self, table: str, after: int, upto: int) -> tuple[Event, ...]:
        return tuple(self.history.changes(table, None, after=after, upto=upto))

    def _end(self, starts: Mapping[str, int], upto_max: Position, limits: WindowLimits) -> int:
        """As far as the limit allows, at least one snapshot, never before `not_before`."""
        last = self._snapshot(upto_max)
        first = min(starts.values(), default=last)
        least = first + 1 if limits.not_before is None else max(first + 1, self._snapshot(limits.not_before))
        rows, place = 0, first
        while place < last:
            events = self.history.events[place + 1]
            rows += sum(len(events.get(table, ())) for table, after in starts.items() if after <= place)
            if rows > limits.rows_max and place >= least:
                break
            place += 1
        return place

    def _fault(self, table: str, after: int, upto: int) -> Fault | None:
        history = self.history
        if after < max(history.oldest, history.damaged.get(table, 0)):
            return GONE
        return UNFIT if after < history.unfit.get(table, -1) <= upto else None

    def _require_up(self) -> None:
        if self.history.is_down:
            raise TruecutError.of(DOWN)

    def _at(self, snapshot: int) -> Position:
        return Position(self.generation, snapshot - self.history.begins[self.history.identity])

    def _snapshot(self, at: Position) -> int:
        """Whatever source the position was meant for: a catalog knows numbers only."""
        snapshot = self.history.snapshot(self.history.identity, at.place)
        if snapshot > self.history.head:
            raise TruecutError.of(GONE)
        return snapshot
