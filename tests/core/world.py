"""What surrounds the delivery machine in the simulation: a source, sinks, a network.

A sink keeps the contract of `truecut.sinks.contract` (one atomic step, fenced by token, each copy compared
with what the order expects); the network does what it likes: tasks run late, twice, or after their runner
is gone. What a sink holds is compared with the source by `laws`, never by the code under test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from truecut.core.delivery import CopyOrder, Wave
from truecut.errors import Fault, Retry
from truecut.model.cursor import CopyState, Cursor, Hold, Version
from truecut.model.order import Order, Receipt, TableOrder
from truecut.model.position import Position
from truecut.model.table import Column, Mode

T, U = "main.t", "main.u"
TABLES = (T, U)
KEYS = range(6)
COLUMNS = (Column(1, "id", "BIGINT"),)
REFUSED = Fault("TC4012", "it stands elsewhere", "None needed.", Retry.RETRYABLE)
UNREADABLE = Fault("TC2001", "that history is gone", "None needed.", Retry.RETRYABLE)
STOPPED = Hold("TC3024", "it stopped")

Rows = dict[int, tuple[str, int]]  # key → (route, value)
Event = tuple[int, str, int, str]  # place, kind, key, what is written


def table_of(key: int) -> str:
    """Each key belongs to one table."""
    return TABLES[key % 2]


def written(shape: str, value: int) -> str:
    """A row under the settings of that fingerprint."""
    return f"{shape}:{value}"


@dataclass
class Source:
    """Snapshots; place n is the content after the n-th, whichever source it was of."""

    routes: list[str]
    contents: list[Rows] = field(default_factory=lambda: [{}])
    events: list[list[tuple[str, str, int, int]]] = field(
        default_factory=lambda: [[]]
    )  # route, kind, key, value
    oldest: int = 0
    generations: int = 1  # how many sources there have been

    @property
    def identity(self) -> str:
        """Of the present one."""
        return f"source {self.generations}"

    def replace(self, rng: random.Random) -> None:
        """Another source takes its place, with rows of its own; nothing earlier can be read any more."""
        rows = {key: (rng.choice(self.routes), rng.randrange(1_000_000)) for key in rng.sample(KEYS, 3)}
        self.contents.append(rows)
        self.events.append([])
        self.oldest = self.head
        self.generations += 1

    @property
    def head(self) -> int:
        """The newest position."""
        return len(self.contents) - 1

    def commit(self, rng: random.Random) -> None:
        """One snapshot of one to three operations."""
        rows = dict(self.contents[-1])
        events: list[tuple[str, str, int, int]] = []
        for _ in range(rng.randint(1, 3)):
            self._operation(rng, rows, events)
        self.contents.append(rows)
        self.events.append(events)

    def _operation(self, rng: random.Random, rows: Rows, events: list[tuple[str, str, int, int]]) -> None:
        key = rng.choice(KEYS)
        old = rows.get(key)
        route = rng.choice(self.routes)
        if old is not None and rng.random() < 0.3:
            del rows[key]
            events.append((old[0], "delete", key, old[1]))
            return
        if old is not None and rng.random() < 0.5:
            route = old[0]
        value = rng.randrange(1_000_000)
        rows[key] = (route, value)
        if old is not None and old[0] != route:
            events.append((old[0], "delete", key, old[1]))
        kind = "update" if old is not None and old[0] == route else "insert"
        events.append((route, kind, key, value))

    def share(self, sink: str, table: str, at: int, shape: str) -> dict[int, list[str]]:
        """What a mirror holds at a position."""
        return {
            key: [written(shape, value)]
            for key, (route, value) in self.contents[at].items()
            if route == sink and table_of(key) == table
        }

    def log(self, sink: str, table: str, *, after: int, upto: int, shape: str = "") -> list[Event]:
        """The copy's changes in (after, upto]."""
        return [
            (n, kind, key, written(shape, value))
            for n in range(after + 1, upto + 1)
            for route, kind, key, value in self.events[n]
            if route == sink and table_of(key) == table
        ]

    def reads(self, sink: str, table: str, at: int, shape: str) -> list[Event]:
        """A seed of an append table."""
        share = sorted(self.share(sink, table, at, shape).items())
        return [(at, "read", key, values[0]) for key, values in share]


@dataclass
class Kept:
    """One copy at a sink, with its rows."""

    version: Version
    hold: Hold | None
    shape: str
    mode: Mode
    mirror: dict[int, list[str]] = field(default_factory=dict)
    appended: list[Event] = field(default_factory=list)
    seeds: list[tuple[int, int]] = field(default_factory=list)  # (seeded at, read up to) of former editions
    base: int = 0  # where this edition was seeded
    identity: str = ""  # of the source that it follows

    def seed(self, sink: str, table: str, source: Source, at: int, shape: str) -> None:
        """REPLACE semantics; an append table gets what is there as read rows, beside those of its shape."""
        if self.shape != shape:
            self.appended, self.seeds = [], []
        elif self.version.edition:
            self.seeds.append((self.base, self.version.at.place))
        self.mirror = source.share(sink, table, at, shape)
        self.appended = self.appended + source.reads(sink, table, at, shape)
        self.base, self.shape = at, shape

    def apply(self, events: list[Event]) -> None:
        """Latest event for a key wins; nothing is deleted for a key whose first event is an insert."""
        self.appended = self.appended + events
        for key in {event[2] for event in events}:
            mine = [event for event in events if event[2] == key]
            kept = self.mirror.get(key, []) if mine[0][1] == "insert" else []
            self.mirror[key] = kept + ([] if mine[-1][1] == "delete" else [mine[-1][3]])
        self.mirror = {key: values for key, values in self.mirror.items() if values}

    def told(self) -> CopyState:
        """As the cursor carries it."""
        seeded = self.version.edition > 0
        return CopyState(
            self.mode,
            "t",
            COLUMNS if seeded else (),
            hold=self.hold,
            fingerprint=self.shape,
            at=self.version.at,
            edition=self.version.edition,
            resumed=self.version.resumed,
            source_identity=self.identity,
        )


@dataclass
class Sink:
    """One destination: data and cursor change together, or not at all."""

    token: int = 0
    position: Position | None = None
    copies: dict[str, Kept] = field(default_factory=dict)

    def told(self) -> Cursor:
        """The cursor as a receipt carries it."""
        return Cursor(self.position, self.token, {name: copy.told() for name, copy in self.copies.items()})

    def version(self, table: str) -> Version | None:
        """What an order compares."""
        return self.copies[table].version if table in self.copies else None


@dataclass(frozen=True)
class Task:
    """One sink's part of a job, as it lies in the network. A takeover has no order."""

    runner: str
    job: int
    sink: str
    epoch: int
    token: int
    order: Order | None = None
    read_after: tuple[tuple[str, int], ...] = ()  # by table: where its packets begin
    stops: frozenset[str] = frozenset()  # tables whose rows turn out not to fit

    def __hash__(self) -> int:
        return hash((self.runner, self.job, self.sink))


@dataclass
class Job:
    """What a runner waits for. `wave` is None for a recovery."""

    id: int
    wave: Wave | None
    sinks: dict[str, tuple[int, int]]  # sink → (epoch, token)
    upto: int = 0
    receipts: dict[str, Receipt] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)


def table_order(wanted: CopyOrder, mode: Mode, shape: str, upto: Position) -> TableOrder:
    """What the planner makes of the machine's word."""
    read = wanted.kind in ("changes", "replace")
    place = wanted.at if wanted.at is not None and not read else upto
    code = None if wanted.hold is None else wanted.hold.code
    leaves = Version(wanted.edition, place, code, wanted.resumed)
    return TableOrder(wanted.kind, mode, (), None, wanted.expected, leaves, wanted.hold, shape)


def version_differs(sink: Sink, table: str, one: TableOrder) -> bool:
    """Whether the copy is not what the order expects."""
    return sink.version(table) != one.expected


def execute(task: Task, sink: Sink, source: Source) -> Receipt:
    """Carry out a task at its sink, in one step."""
    order = task.order
    if order is None:
        if task.token < sink.token:
            return Receipt(task.sink, task.epoch, "failed", fault=REFUSED, fenced_by=sink.token)
        sink.token = task.token
        return Receipt(task.sink, task.epoch, "applied", cursor=sink.told())
    if task.token != sink.token:
        return Receipt(task.sink, task.epoch, "failed", fault=REFUSED, fenced_by=sink.token)
    if any(version_differs(sink, table, one) for table, one in order.tables.items()):
        if all(one.is_done(sink.version(table)) for table, one in order.tables.items()):
            return Receipt(task.sink, task.epoch, "already", cursor=sink.told())
        return Receipt(task.sink, task.epoch, "failed", fault=REFUSED)
    _move(task, order, sink, source)
    return Receipt(task.sink, task.epoch, "applied", cursor=sink.told())


def _move(task: Task, order: Order, sink: Sink, source: Source) -> None:
    alone = not any(kept.version.edition for name, kept in sink.copies.items() if name not in order.tables)
    places = [one.leaves.at for one in order.tables.values() if alone or one.kind != "replace"]
    sink.position = max([*places, *([] if sink.position is None else [sink.position])], default=None)
    for table, one in order.tables.items():
        nothing = Kept(Version(0, Position(1, 0)), None, one.fingerprint, one.mode)
        kept = sink.copies.setdefault(table, replace(nothing, identity=order.source_identity))
        if table in task.stops and one.kind in ("changes", "replace"):
            kept.version, kept.hold = one.stopped(STOPPED.code), STOPPED
            continue
        upto = one.leaves.at.place
        if one.kind in ("changes", "replace"):
            kept.identity = order.source_identity
        if one.kind == "replace":
            kept.seed(task.sink, table, source, upto, one.fingerprint)
            kept.mode = one.mode
        elif one.kind == "changes":
            after = dict(task.read_after)[table]
            kept.apply(source.log(task.sink, table, after=after, upto=upto, shape=one.fingerprint))
        kept.version, kept.hold = one.leaves, one.hold


def late(job: Job) -> list[Receipt]:
    """The deadline has passed: those who were asked and have not answered are late."""
    missing = sorted(job.asked - set(job.receipts))
    return [
        *job.receipts.values(),
        *(Receipt(name, job.sinks[name][0], "late", fault=REFUSED) for name in missing),
    ]


def without_answer(receipt: Receipt) -> Receipt:
    """The commit has happened, its answer is lost."""
    return replace(receipt, outcome="late", cursor=None, fault=REFUSED)
