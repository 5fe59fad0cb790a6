"""The world around delivery machines, small and hostile: a source, sinks, a control store, a network.

Everything is plain Python values. The sinks keep the contract (one atomic step that checks token and
expected cursor); the network does what it likes: tasks run late, twice, or after their runner is gone.
What a sink holds is compared with the source by `laws`, never by the code under test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Literal

from truecut.core.delivery import Wave
from truecut.errors import Fault, Retry
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.model.table import Column, Mode

TABLE = "main.t"
IDENTITY = "the source"
KEYS = range(3)
REFUSED = Fault("TC4012", "it stands elsewhere", "None needed.", Retry.RETRYABLE)
UNREADABLE = Fault("TC2001", "that history is gone", "None needed.", Retry.RETRYABLE)

Rows = dict[int, tuple[str, int]]  # key → (route, value)
Event = tuple[int, str, int, int]  # place, kind, key, value


@dataclass
class Source:
    """Snapshots; position n is the content after the n-th."""

    routes: list[str]
    contents: list[Rows] = field(default_factory=lambda: [{}])
    events: list[dict[str, list[Event]]] = field(default_factory=lambda: [{}])
    oldest: int = 0

    @property
    def head(self) -> int:
        """The newest position."""
        return len(self.contents) - 1

    def commit(self, rng: random.Random) -> None:
        """One snapshot of one to three operations."""
        rows = dict(self.contents[-1])
        events: dict[str, list[Event]] = {}
        for _ in range(rng.randint(1, 3)):
            self._operation(rng, rows, events)
        self.contents.append(rows)
        self.events.append(events)

    def _operation(self, rng: random.Random, rows: Rows, events: dict[str, list[Event]]) -> None:
        key, place = rng.choice(KEYS), len(self.contents)
        old = rows.get(key)
        route = rng.choice(self.routes)
        if old is not None and rng.random() < 0.3:
            del rows[key]
            events.setdefault(old[0], []).append((place, "delete", key, old[1]))
            return
        if old is not None and rng.random() < 0.5:
            route = old[0]
        value = rng.randrange(1_000_000)
        rows[key] = (route, value)
        if old is not None and old[0] != route:
            events.setdefault(old[0], []).append((place, "delete", key, old[1]))
        kind = "update" if old is not None and old[0] == route else "insert"
        events.setdefault(route, []).append((place, kind, key, value))

    def share(self, sink: str, at: int) -> dict[int, list[int]]:
        """What a mirror holds at a position."""
        return {key: [value] for key, (route, value) in self.contents[at].items() if route == sink}

    def log(self, sink: str, *, after: int, upto: int) -> list[Event]:
        """The sink's changes in (after, upto]."""
        return [event for n in range(after + 1, upto + 1) for event in self.events[n].get(sink, [])]


@dataclass
class Sink:
    """One destination: data and cursor change together, or not at all."""

    mode: Mode
    token: int = 0
    cursor: int | None = None
    base: int = 0  # where an append table was seeded
    mirror: dict[int, list[int]] = field(default_factory=dict)
    appended: list[Event] = field(default_factory=list)

    def told(self) -> Cursor:
        """The cursor as a receipt carries it."""
        copies = {TABLE: CopyState(self.mode, "t", (Column(1, "id", "BIGINT"),))}
        place = None if self.cursor is None else Position(1, self.cursor)
        return Cursor(place, self.token, IDENTITY, {} if place is None else copies)

    def seed(self, name: str, source: Source, at: int) -> None:
        """REPLACE semantics; an append table gets what is there as read rows."""
        self.mirror = source.share(name, at)
        reads = [(at, "read", key, values[0]) for key, values in sorted(source.share(name, at).items())]
        self.appended += reads
        self.base = at

    def apply(self, events: list[Event]) -> None:
        """Latest event for a key wins; nothing is deleted for a key whose first event is an insert."""
        self.appended += events
        for key in {event[2] for event in events}:
            mine = [event for event in events if event[2] == key]
            kept = self.mirror.get(key, []) if mine[0][1] == "insert" else []
            self.mirror[key] = kept + ([] if mine[-1][1] == "delete" else [mine[-1][3]])
        self.mirror = {key: values for key, values in self.mirror.items() if values}


@dataclass(frozen=True)
class Task:
    """One sink's part of a job, as it lies in the network."""

    runner: str
    job: int
    sink: str
    epoch: int
    token: int
    kind: Literal["takeover", "changes", "seed", "persist"]
    expected: int | None = None
    after: int = 0
    upto: int = 0


@dataclass
class Job:
    """What a runner waits for. `wave` is None for a recovery."""

    id: int
    wave: Wave | None
    sinks: dict[str, tuple[int, int]]  # sink → (epoch, token)
    upto: int = 0
    receipts: dict[str, Receipt] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)


def execute(task: Task, sink: Sink, source: Source) -> Receipt:
    """Carry out a task at its sink, in one step."""
    if task.kind == "takeover":
        if task.token < sink.token:
            return Receipt(task.sink, task.epoch, "failed", fault=REFUSED, fenced_by=sink.token)
        sink.token = task.token
        return Receipt(task.sink, task.epoch, "applied", cursor=sink.told())
    if task.token != sink.token:
        return Receipt(task.sink, task.epoch, "failed", fault=REFUSED, fenced_by=sink.token)
    if sink.cursor == task.upto:
        return Receipt(task.sink, task.epoch, "already", cursor=sink.told())
    if sink.cursor != task.expected:
        return Receipt(task.sink, task.epoch, "failed", fault=REFUSED)
    if task.kind == "seed":
        sink.seed(task.sink, source, task.upto)
    elif task.kind == "changes":
        sink.apply(source.log(task.sink, after=task.after, upto=task.upto))
    sink.cursor = task.upto
    return Receipt(task.sink, task.epoch, "applied", cursor=sink.told())


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
