"""What the events of a log leave of a table's rows: for each key that they touch, where its values come from.

Values are not looked at: a row is a number (the event that told it), or a number for each column, where an
event left some untold. So what is held in memory is the keys that were touched. Follows `core.splice` (S1,
S2), whose `merged` it calls; here many events are folded in place. Two kinds: rows with a key, and rows that
only their whole content tells apart, which are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from truecut.core import splice
from truecut.core.splice import ABSENT
from truecut.model.change import DELETE, INSERT, UPDATE

Key = tuple[str | None, ...]  # the texts of the columns that tell rows apart


class OfFile(NamedTuple):
    """A value of the row that a unit's file has under a key."""

    key: Key


class Contradicted(Exception):
    """The events are not of rows that their key tells apart."""


Row = int | tuple[object, ...]  # an event's number; or for each column a number, an OfFile, or MISSING


@dataclass(frozen=True, slots=True)
class Step:
    """One event that counts. `number` is that of the row it told."""

    op: int
    place: int
    seq: int
    before: Key | None
    after: Key | None
    number: int
    absent: tuple[int, ...] = ()


@dataclass(slots=True)
class Keyed:
    """Rows with a key. A key that is not in `rows` is as its unit's file has it; None: there is no row."""

    columns: int
    rows: dict[Key, Row | None] = field(default_factory=dict)
    _moved: tuple[int, int, tuple[object, ...] | None] = (0, -1, None)  # what a delete took away

    def take(self, step: Step) -> None:
        """The next event, in the order of commits; its key's unit takes it. Raises `Contradicted` where no
        rows with one key each can have it."""
        self._check(step)
        if step.op == DELETE:
            assert step.before is not None
            self._moved = (step.place, step.seq, self._row(step.before))
            self.rows[step.before] = None
            return
        assert step.after is not None
        self.rows[step.after] = self._put(step, step.after)

    def _check(self, step: Step) -> None:
        key = step.before if step.op == DELETE else step.after
        if key is None or None in key:
            raise Contradicted("a change does not tell its key")
        if key in self.rows and (self.rows[key] is None) != (step.op == INSERT):
            raise Contradicted("a row came twice" if step.op == INSERT else "a row changed that was gone")

    def _put(self, step: Step, key: Key) -> Row:
        if not step.absent:
            return step.number
        told = tuple(ABSENT if n in step.absent else step.number for n in range(self.columns))
        return splice.merged(self._before(step, key), told)

    def _before(self, step: Step, key: Key) -> tuple[object, ...] | None:
        """The row that an event's untold values are of: for an insert that of the delete right before it,
        from where the row moved, if that counted."""
        if step.op == UPDATE:
            return self._row(key)
        place, seq, row = self._moved
        return row if (place, seq + 1) == (step.place, step.seq) else None

    def _row(self, key: Key) -> tuple[object, ...] | None:
        found = self.rows.get(key, OfFile(key))
        if found is None or type(found) is tuple:
            return found
        return (found,) * self.columns

    def truncate(self, takes: Callable[[Iterable[Key]], Iterable[bool]]) -> None:
        """The rows of all keys whose units take it are gone."""
        keys = list(self.rows)
        for key, gone in zip(keys, takes(keys), strict=True):
            if gone:
                self.rows[key] = None

    def of_files(self) -> set[Key]:
        """The keys of all rows that values are to be taken from."""
        mixed = (row for row in self.rows.values() if type(row) is tuple)
        return {one.key for row in mixed for one in row if isinstance(one, OfFile)}


@dataclass(slots=True)
class Counted:
    """Rows without a key: how many more, or fewer, of each there are than in the files."""

    rows: Counter[Key] = field(default_factory=Counter)
    numbers: dict[Key, int] = field(default_factory=dict)  # of an event that told such a row

    def take(self, step: Step) -> None:
        """The next event."""
        if step.before is not None:
            self.rows[step.before] -= 1
        if step.after is not None:
            self.rows[step.after] += 1
            self.numbers[step.after] = step.number

    def truncate(self) -> None:
        """Nothing of before is left, nor of the files."""
        self.rows.clear()
        self.numbers.clear()
