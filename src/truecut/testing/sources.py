"""The laws of a source (`truecut.sources.contract`) that has its history and can pin its past.

The laws write through the source's own client and know what they wrote: that is what a copy must be. Take
them over with `from truecut.testing.sources import *` and a fixture `bench` of the scope "module".
"""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import pytest

from truecut.errors import TruecutError
from truecut.model.change import (
    CONTROL_FIELDS,
    DELETE,
    OP,
    OPTIONAL_FIELDS,
    PLACE,
    READ,
    SEQ,
    TRUNCATE,
    UNCHANGED,
    UPDATE,
)
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import Source, TableRead, Window, WindowLimits

Content = dict[int, str]
Change = Mapping[str, Any]

TABLES = ("t", "u")
BEFORE: Mapping[str, Content] = {"t": {n: f"before {n}" for n in range(100, 106)}, "u": {}}
WIDE = WindowLimits(rows_max=1_000_000, bytes_max=1 << 40)
MIRROR: frozenset[Mode] = frozenset({"mirror"})
APPEND: frozenset[Mode] = frozenset({"append"})


class SourceBench(Protocol):
    """A source with two tables, `t` and `u`: id INTEGER, the key, and v VARCHAR. They hold what `BEFORE`
    says, and a source that is read in units has read them."""

    @property
    def name(self) -> str:
        """Of the back end, for the record of which laws ran."""
        ...

    def source(self) -> Source:
        """A new handle, of generation 1."""
        ...

    def read(self, table: str) -> TableRead:
        """The table as a pipeline names it."""
        ...

    def commit(self, writes: Mapping[str, Mapping[int, str | None]]) -> int:
        """One transaction by the source's own client: table → id → its value from now on; None deletes it.
        Returns its place, as that client knows it: the head may stand further on."""
        ...


class History:
    """What was written, where, and what the tables held after each transaction. The first entry of each list
    is how it began, before any of them."""

    def __init__(self, bench: SourceBench) -> None:
        self.bench, self.source, self.early = bench, bench.source(), bench.source()
        self.early.observe()  # once: it knows the tables, and all that was written came behind its look
        self.heads = [self.source.observe().head]
        self.places = [self.heads[0].place]
        self.contents: list[dict[str, Content]] = [{table: dict(BEFORE[table]) for table in TABLES}]

    def commit(self, **writes: Mapping[int, str | None]) -> None:
        """One transaction; afterwards the head has moved."""
        self.places.append(self.bench.commit(writes))
        content = {table: dict(rows) for table, rows in self.contents[-1].items()}
        for table, values in writes.items():
            for key, value in values.items():
                content[table].pop(key, None)
                content[table] |= {} if value is None else {key: value}
        self.heads.append(self.source.observe().head)
        self.contents.append(content)

    def upto(self, position: Position) -> int:
        """How many transactions are at or before a position."""
        return bisect_right(self.places, position.place) - 1

    def window(
        self,
        after: Position,
        upto: Position,
        *,
        tables: Sequence[str] = TABLES,
        modes: frozenset[Mode] = MIRROR,
        limits: WindowLimits = WIDE,
    ) -> Window:
        """Planned by a handle of its own."""
        reads = [self.bench.read(table) for table in tables]
        places = {read.name: (read, after, modes) for read in reads}
        return self.bench.source().plan_window(places, upto_max=upto, limits=limits, parallelism=2)

    def seed(self, at: Position, *, tables: Sequence[str] = TABLES) -> Window:
        """The same for what the tables hold."""
        reads = [self.bench.read(table) for table in tables]
        return self.bench.source().plan_seed(reads, at=at, parallelism=2)


def made_history(bench: SourceBench) -> History:
    """Eight transactions: inserts, updates, deletes, both tables at once, a key that comes back; of rows that
    were there before, too."""
    made = History(bench)
    made.commit(t={n: f"first {n}" for n in range(6)})
    made.commit(t={0: "second", 1: None, 100: None}, u={0: "a", 1: "b"})
    made.commit(u={1: None, 2: "c"})
    made.commit(t={1: "again", 101: "after"})
    made.commit(t={2: None, 3: "third"}, u={0: "a2"})
    made.commit(u=dict.fromkeys(range(10, 40), "many"))
    made.commit(t={0: None, 9: "nine"})
    made.commit(t={0: "back", 100: "back"}, u={10: None})
    return made


@pytest.fixture(scope="module")
def history(bench: SourceBench) -> History:
    """What the laws are about. They only read it, so one is made for all of them."""
    return made_history(bench)


def changes_of(window: Window) -> dict[str, list[Change]]:
    """A window's rows, by table, through a pickle as on the way to an executor; in the order of their ids."""
    found: dict[str, list[Change]] = {}
    for task in pickle.loads(pickle.dumps(list(window.tasks))):
        for table, batch in task.read():
            found.setdefault(table.table, []).extend(batch.to_pylist())
    return {table: sorted(rows, key=lambda row: (row[PLACE], row[SEQ])) for table, rows in found.items()}


def applied(content: Content, changes: Sequence[Change]) -> Content:
    """What the changes make of a table; a change that cannot be is an assertion."""
    rows = dict(content)
    for change in changes:
        key, op = change["id"], change[OP]
        if op == TRUNCATE:
            rows = {}
            continue
        assert (key in rows) == (op in (UPDATE, DELETE)), change
        assert op != UPDATE or rows[key] != change["v"], "an update that changes nothing"
        assert op != DELETE or change["v"] in (rows[key], None), (
            "a delete carries the row as it was, or the key"
        )
        before = rows.pop(key, None)
        if op == DELETE:
            continue
        absent = "v" in (change.get(UNCHANGED) or ())
        assert not absent or (before is not None and change["v"] is None), "nobody knows the value"
        rows[key] = before if absent and before is not None else change["v"]
    return rows


# --- the log ------------------------------------------------------------------------------------------


def test_the_head_moves_with_every_transaction(history: History) -> None:
    """Positions grow, and whatever has committed is at or before the head; the identity stays; what is there
    can be read from its oldest place on, and whole."""
    assert all(a < b for a, b in pairwise(history.heads))
    for (before, after), place in zip(pairwise(history.heads), history.places[1:], strict=True):
        assert before.place < place <= after.place
    first, second = history.bench.source().observe(), history.bench.source().observe()
    assert (first.identity, first.oldest, first.head) == (second.identity, second.oldest, second.head)
    assert first.oldest <= history.heads[0] <= first.head == history.heads[-1]
    assert not first.unready


def test_after_is_exclusive_and_upto_inclusive(history: History) -> None:
    """From one place to the next, and from the first to each: what a copy held there becomes exactly what it
    holds here."""
    ends = range(1, len(history.heads))
    for start, end in sorted({(end - 1, end) for end in ends} | {(0, end) for end in ends}):
        after, upto = history.heads[start], history.heads[end]
        window = history.window(after, upto)
        assert (window.upto, window.faults, window.lost) == (upto, {}, frozenset())
        changes = changes_of(window)
        for table in TABLES:
            places = {change[PLACE] for change in changes.get(table, [])}
            assert places <= set(history.places[start + 1 : end + 1])
            copy = applied(history.contents[start][table], changes.get(table, []))
            assert copy == history.contents[end][table], (start, end, table)


def test_a_piece_gives_the_same_rows_every_time(history: History) -> None:
    """Whoever reads it, however often, of changes or a seed; planned anew a window has the same changes."""
    first, last = history.heads[0], history.heads[-1]
    window = history.window(first, last, modes=APPEND)
    assert changes_of(window) == changes_of(window) == changes_of(history.window(first, last, modes=APPEND))
    seed = history.seed(last)
    assert changes_of(seed) == changes_of(seed)


def test_a_window_ends_early_but_never_inside_of_a_transaction(history: History) -> None:
    """However small the limits, it holds a transaction; windows meet without gap or overlap."""
    copies: Mapping[str, Content] = history.contents[0]
    position, last = history.heads[0], history.heads[-1]
    for number in range(1, len(history.places)):
        window = history.window(position, last, limits=WindowLimits(rows_max=1, bytes_max=1))
        assert position < window.upto <= last
        assert history.upto(window.upto) == number
        changes = changes_of(window)
        copies = {table: applied(copies[table], changes.get(table, [])) for table in TABLES}
        assert copies == history.contents[number]
        position = window.upto
    assert position == last


def test_position_and_seq_name_a_change(history: History) -> None:
    """Where every change counts each has an id of its own, over all tables of a transaction, and the same one
    whichever tables are read together; none of the changes in between is left out."""
    first, last = history.heads[0], history.heads[-1]
    together = changes_of(history.window(first, last, modes=APPEND))
    ids = [(row[PLACE], row[SEQ]) for rows in together.values() for row in rows]
    assert len(set(ids)) == len(ids)
    for table in TABLES:
        alone = changes_of(history.window(first, last, tables=[table], modes=APPEND))
        assert alone == {table: together[table]}
    places = {row[PLACE] for rows in together.values() for row in rows}
    assert places == set(history.places[1:])


def test_control_columns_come_first(history: History) -> None:
    """In the form of `model.change`, then optional ones, then the table's columns by their names."""
    first, last = history.heads[0], history.heads[-1]
    for window in (history.window(first, last), history.seed(last)):
        for batch in _batches(window):
            assert tuple(batch.schema)[: len(CONTROL_FIELDS)] == CONTROL_FIELDS
            assert batch.schema.names[-2:] == ["id", "v"]
            assert set(tuple(batch.schema)[len(CONTROL_FIELDS) : -2]) <= set(OPTIONAL_FIELDS)
        assert {name.table: schema.names for name, schema in window.schemas.items()} == dict.fromkeys(
            TABLES, ("id", "v")
        )


def _batches(window: Window) -> Iterator[Any]:
    return (batch for task in window.tasks for _, batch in task.read())


# --- seeds --------------------------------------------------------------------------------------------


def test_a_seed_is_the_table_at_its_place(history: History) -> None:
    """Every row once, as READ, whatever was committed since; ids are distinct over all tables."""
    for at, content in zip(history.heads, history.contents, strict=True):
        found = changes_of(history.seed(at))
        rows = [row for table in found.values() for row in table]
        assert all((row[OP], row[PLACE]) == (READ, at.place) for row in rows)
        assert len({row[SEQ] for row in rows}) == len(rows)
        for table in TABLES:
            seeded = sorted((row["id"], row["v"]) for row in found.get(table, []))
            assert seeded == sorted(content[table].items())


def test_a_seed_and_the_changes_after_it_meet(history: History) -> None:
    """A copy that begins anywhere ends where all others do."""
    last = history.heads[-1]
    for at in history.heads[:-1]:
        seed = changes_of(history.seed(at, tables=["t"]))
        begun = {row["id"]: row["v"] for row in seed.get("t", [])}
        changes = changes_of(history.window(at, last, tables=["t"]))
        assert applied(begun, changes.get("t", [])) == history.contents[-1]["t"]


# --- what cannot be -----------------------------------------------------------------------------------


def test_a_table_that_is_missing_is_named(history: History) -> None:
    """`describe` raises; a window and a seed hold that table, and read the others."""
    read, there = history.bench.read("t"), history.bench.read("u")
    missing = TableRead(TableName(read.name.schema, "nowhere"), read.key, None)
    source, first, last = history.early, history.heads[0], history.heads[-1]
    with pytest.raises(TruecutError, match="nowhere"):
        source.describe(missing, at=last)
    assert source.describe(read, at=last).names == ("id", "v")
    seed = source.plan_seed([missing, there], at=last, parallelism=1)
    assert set(seed.faults) == {missing.name}
    window = source.plan_window(
        {one.name: (one, first, MIRROR) for one in (missing, there)},
        upto_max=last,
        limits=WIDE,
        parallelism=1,
    )
    assert set(window.faults) == {missing.name}
    assert not window.lost
    assert applied(history.contents[0]["u"], changes_of(window)["u"]) == history.contents[-1]["u"]
