"""A PostgreSQL in small: transactions that overlap, savepoints, row and table locks, a log in which a commit
is written before anybody sees it, snapshots, a slot.

`states` is the truth: the rows after each commit. Ids are near the end of their 32 bits, and the log tells no
more of them than that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from truecut.core.cut import Slot
from truecut.core.splice import ABSENT, Event, Row
from truecut.core.visibility import Snapshot
from truecut.model.position import Position

KEYS = tuple(range(1, 8))
OTHERS = ("x", "y")  # of another table
FIRST_ID = (1 << 32) - 6
Rows = dict[Any, Row]


@dataclass(frozen=True, slots=True)
class Written:
    """A row's change in the log. `full` is the row as it is, `event` what is told of it."""

    place: int
    sub: int  # 0: the transaction itself
    xid: int
    event: Event
    full: Row = ()


@dataclass(eq=False)
class Transaction:
    """One that runs."""

    ids: dict[int, int] = field(default_factory=dict)  # 0: its own, others: of its subtransactions
    sub: int = 0
    subs: int = 0
    written: list[Written] = field(default_factory=list)
    place: int = 0  # of its commit
    left: int = 4


@dataclass(frozen=True, slots=True)
class Commit:
    """As capture has it from the log: ids in 32 bits, the transaction's own beside those of its events."""

    place: int
    xid: int
    tops: dict[int, int]
    written: tuple[Written, ...]


def place(number: int) -> Position:
    return Position(1, number)


def table(rows: Rows, *, other: bool) -> Rows:
    """The rows of one of the two tables."""
    return {key: row for key, row in rows.items() if (key in OTHERS) == other}


class Source:
    """What happens there."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.end = 0
        self.next_id = FIRST_ID
        self.last_over = FIRST_ID - 1
        self.values = 100
        first: Rows = {key: (key, f"large {key}") for key in (*KEYS[:5], *OTHERS) if rng.random() < 0.9}
        self.logged, self.visible = dict(first), dict(first)  # after all commits; for snapshots
        self.states: dict[int, Rows] = {0: first}
        self.running: list[Transaction] = []
        self.commits: list[Commit] = []
        self.committed: set[int] = set()
        self.readers = 0  # that hold the table's lock

    # --- transactions -----------------------------------------------------------------------------------

    def moves(self) -> None:
        """Something happens in one of the transactions, or another one begins."""
        if len(self.running) < 3 and self.rng.random() < 0.3:
            self.running.append(Transaction(left=self.rng.randint(1, 4)))
        if self.running:
            one = self.rng.choice(self.running)
            self._over(one) if one.place else self._goes_on(one)

    def quiet(self) -> None:
        """Whatever runs comes to its end."""
        for one in list(self.running):
            if not one.place:
                self._commit(one)
            if one in self.running:
                self._over(one)

    def _goes_on(self, one: Transaction) -> None:
        happens = self.rng.random()
        if one.left == 0:
            self._commit(one) if happens < 0.9 else self._abort(one)
        elif happens < 0.15:
            one.subs += 1
            one.sub = one.subs
        elif happens < 0.25:
            self._roll_back(one)
        else:
            one.left -= 1
            self._write(one)

    def _roll_back(self, one: Transaction) -> None:
        """To the savepoint, or the savepoint is let go."""
        if one.sub and self.rng.random() < 0.6:
            one.written = [w for w in one.written if w.sub != one.sub]
            one.ids = {sub: xid for sub, xid in one.ids.items() if sub != one.sub}
        one.sub = 0

    def _write(self, one: Transaction) -> None:
        made = self._event(self._seen_by(one))
        if made is None or self._locked(one, made[0]):
            return
        for sub in (0, one.sub):
            if sub not in one.ids:
                one.ids[sub] = self.next_id
                self.next_id += 1
        self.end += 1
        one.written.append(Written(self.end, one.sub, one.ids[one.sub], *made))

    def _event(self, rows: Rows) -> tuple[Event, Row] | None:
        """A change that finds something to do. Half of the updates leave the large value as it is."""
        self.values += 1
        new = (self.values, f"large {self.values}")
        key: Any = self.rng.choice(KEYS if self.rng.random() < 0.8 else OTHERS)
        happens = self.rng.random()
        row = rows.get(key)
        if happens < 0.08 and self.readers == 0:
            return Event("truncate"), ()
        if row is None:
            return Event("put", key, key, new), new
        told, full = ((new[0], ABSENT), (new[0], row[1])) if self.rng.random() < 0.6 else (new, new)
        if happens < 0.3:
            return Event("delete", key, key), ()
        free = [k for k in KEYS if k not in rows]
        if happens < 0.5 and free and key in KEYS:
            return Event("move", key, self.rng.choice(free), told), full
        return Event("put", key, key, told), full

    def _seen_by(self, one: Transaction) -> Rows:
        rows = dict(self.logged)
        for written in one.written:
            change(rows, written)
        return rows

    def _locked(self, one: Transaction, event: Event) -> bool:
        wanted = locks(event)
        others = (w for other in self.running if other is not one for w in other.written)
        return any(wanted & locks(written.event) for written in others)

    def _commit(self, one: Transaction) -> None:
        """In the log; who asks for a snapshot does not see it yet."""
        if not one.ids:
            self.running.remove(one)
            return
        self.end += 1
        one.place = self.end
        for written in one.written:
            change(self.logged, written)
        self.states[one.place] = dict(self.logged)
        self.committed.update(one.ids.values())
        short = {sub: xid % (1 << 32) for sub, xid in one.ids.items()}
        tops = dict.fromkeys(short.values(), short[0])
        self.commits.append(Commit(one.place, short[0], tops, tuple(one.written)))

    def _over(self, one: Transaction) -> None:
        for written in one.written:
            change(self.visible, written)
        self._gone(one)

    def _abort(self, one: Transaction) -> None:
        self._gone(one)

    def _gone(self, one: Transaction) -> None:
        self.running.remove(one)
        self.last_over = max([self.last_over, *one.ids.values()])

    # --- what can be asked ------------------------------------------------------------------------------

    def truncating(self) -> bool:
        """Whether a TRUNCATE holds its lock."""
        return any(w.event.kind == "truncate" for one in self.running for w in one.written)

    def snapshot(self) -> Snapshot:
        """`pg_current_snapshot()`."""
        xmax = self.last_over + 1
        xip = frozenset(one.ids[0] for one in self.running if one.ids and one.ids[0] < xmax)
        return Snapshot(min({xmax, *xip}), xmax, xip)

    def slot(self) -> Slot:
        """The log from here on, and the snapshot exported with it."""
        xmax = max([FIRST_ID - 1, *self.committed]) + 1
        xip = frozenset(range(FIRST_ID, xmax)) - self.committed
        return Slot(place(self.end), Snapshot(min({xmax, *xip}), xmax, xip))

    def writers(self) -> frozenset[int]:
        """Who holds a lock of the table for having written to it."""
        wrote = [one for one in self.running if any(is_of_table(w.event) for w in one.written)]
        return frozenset(one.ids[0] for one in wrote)

    def at(self, number: int) -> Rows:
        """The truth at a place of the log."""
        return self.states[max(known for known in self.states if known <= number)]


def is_of_table(event: Event) -> bool:
    return event.kind == "truncate" or event.key in KEYS


def locks(event: Event) -> set[Any]:
    return {*KEYS} if event.kind == "truncate" else {event.key, event.to}


def change(rows: Rows, written: Written) -> None:
    """What a change does to the rows, by the row itself."""
    event = written.event
    if event.kind == "truncate":
        for key in KEYS:
            rows.pop(key, None)
        return
    if event.kind != "put":
        rows.pop(event.key, None)
    if event.kind != "delete":
        rows[event.to] = written.full
