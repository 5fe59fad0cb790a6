"""Random life of one table: every kind of commit and of maintenance, and polls in between.

The table's content is noted by the native client right after each commit, and the copy is compared with
that at every poll: maintenance can spoil what the lake itself later says about an older snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import duckdb

from tests.sources.copy_model import CopyModel, Row, changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.model.change import PLACE
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead, WindowLimits
from truecut.sources.ducklake.source import DuckLakeSource

TABLE = TableRead(TableName("main", "events"), ("id",), "tenant")
KEYS = 40
AMOUNTS = ("1.5", "NULL", "'nan'::DOUBLE")


class Churn:
    """A writer, a source over the same lake, and the copy that the source's changes make."""

    def __init__(self, writer: LakeWriter, *, seed: int, mode: Mode, maintenance: bool = True) -> None:
        self.random = Random(seed)
        self.writer = writer
        self.mode = mode
        self.source = DuckLakeSource(writer.address, generation=1)
        self.model = CopyModel(key=TABLE.key, route_by=TABLE.route_by)
        self.live: set[int] = set()
        self.extra: list[str] = []  # columns added so far
        self.added = 0
        self.noted: dict[int, tuple[list[str], list[Row]]] = {}  # snapshot → columns, rows
        self.tasks: Counter[str] = Counter()
        self.log: list[str] = []
        self.steps: list[Callable[[], list[str]]] = [
            *[self.insert] * 3,
            *[self.update] * 3,
            *[self.delete] * 2,
            *[self.merge] * 2,
            *[self.several] * 4,
            self.key_change,
            self.route_change,
            self.no_change,
            self.elsewhere,
            self.everything,
            self.alter,
        ]
        self.upkeep: list[Callable[[], None]] = (
            [self.merge_files, self.rewrite, self.flush, self.expire, self.cleanup] if maintenance else []
        )
        writer.run(
            "CREATE TABLE events (id INTEGER, tenant VARCHAR, value VARCHAR, amount DOUBLE)",
            "CREATE TABLE other (id INTEGER)",
        )
        self._note()
        writer.release()
        self.position = self.source.observe().head
        self.seed()

    # --- commits --------------------------------------------------------------------------------------

    def insert(self) -> list[str]:
        """New keys, few or many (so inlined or not), also such that were deleted before."""
        free = [key for key in range(KEYS) if key not in self.live]
        keys = self.random.sample(free, min(len(free), self.random.choice([1, 2, 5, 14])))
        self.live.update(keys)
        return [f"INSERT INTO events BY NAME {self._rows(keys)}"] if keys else []

    def update(self) -> list[str]:
        """New values."""
        return [f"UPDATE events SET value = {self._value()}, amount = amount + 1 WHERE {self._some()}"]

    def delete(self) -> list[str]:
        """Some rows go."""
        keys = self._pick()
        self.live.difference_update(keys)
        return [f"DELETE FROM events WHERE id IN ({_list(keys)})"] if keys else []

    def merge(self) -> list[str]:
        """MERGE: what is there is updated (or deleted), what is not is inserted."""
        keys = self.random.sample(range(KEYS), self.random.choice([2, 6, 13]))
        deletes = self.random.random() < 0.3
        self.live = self.live ^ set(keys) if deletes else self.live | set(keys)
        matched = "DELETE" if deletes else "UPDATE SET tenant = s.tenant, value = s.value"
        return [
            f"""MERGE INTO events t USING ({self._rows(keys)}) s ON t.id = s.id
                WHEN MATCHED THEN {matched}
                WHEN NOT MATCHED THEN INSERT (id, tenant, value, amount)
                VALUES (s.id, s.tenant, s.value, s.amount)"""
        ]

    def several(self) -> list[str]:
        """Two to four of the others in one transaction, often on the same keys."""
        plain = [self.insert, self.update, self.delete, self.reinsert, self.key_change, self.route_change]
        inside = [s for step in self.random.choices(plain, k=self.random.randint(2, 4)) for s in step()]
        return ["BEGIN", *inside, "COMMIT"] if inside else []

    def reinsert(self) -> list[str]:
        """Delete and insert the same keys."""
        keys = self._pick()
        if not keys:
            return []
        return [
            f"DELETE FROM events WHERE id IN ({_list(keys)})",
            f"INSERT INTO events BY NAME {self._rows(keys)}",
        ]

    def key_change(self) -> list[str]:
        """Some rows get another key."""
        free = [key for key in range(KEYS) if key not in self.live]
        moves = dict(zip(self._pick(), free, strict=False))
        if not moves:
            return []
        self.live = (self.live - set(moves)) | set(moves.values())
        cases = " ".join(f"WHEN {old} THEN {new}" for old, new in moves.items())
        return [f"UPDATE events SET id = CASE id {cases} END WHERE id IN ({_list(moves)})"]

    def route_change(self) -> list[str]:
        """Some rows get another tenant."""
        return [f"UPDATE events SET tenant = {self._tenant()} WHERE {self._some()}"]

    def no_change(self) -> list[str]:
        """An update that leaves every value as it is."""
        return [f"UPDATE events SET value = value WHERE {self._some()}"]

    def elsewhere(self) -> list[str]:
        """A commit that does not concern the table."""
        return ["INSERT INTO other VALUES (1)"]

    def everything(self) -> list[str]:
        """All rows at once."""
        if self.random.random() < 0.7:
            return ["UPDATE events SET amount = amount * 2"]
        self.live.clear()
        return ["DELETE FROM events"]

    def alter(self) -> list[str]:
        """A column comes or goes."""
        if self.extra and self.random.random() < 0.5:
            return [f"ALTER TABLE events DROP COLUMN {self.extra.pop(0)}"]
        self.added += 1
        self.extra.append(f"extra_{self.added}")
        default = self.random.choice(["", " DEFAULT 'it''s'"])
        return [f"ALTER TABLE events ADD COLUMN {self.extra[-1]} VARCHAR{default}"]

    # --- maintenance ----------------------------------------------------------------------------------

    def merge_files(self) -> None:
        """Compaction of small files."""
        self._maintain("CALL ducklake_merge_adjacent_files('lake')")

    def rewrite(self) -> None:
        """Rewriting of files with deletes."""
        threshold = self.random.choice([0.0, 0.3, 0.9])
        self._maintain(f"CALL ducklake_rewrite_data_files('lake', 'events', delete_threshold => {threshold})")

    def flush(self) -> None:
        """Inlined rows become files."""
        self._maintain("CALL ducklake_flush_inlined_data('lake')")

    def expire(self) -> None:
        """Snapshots go: a beginning, or some in the middle, but not the ones a reader stands at."""
        ids = self.writer.snapshots()
        if self.random.random() < 0.5:
            going = [s for s in ids if s < self.position.place]
        else:
            going = [s for s in ids[:-1] if s != self.position.place and self.random.random() < 0.3]
        if going:
            self._maintain(f"CALL ducklake_expire_snapshots('lake', versions => [{_list(going)}])")

    def cleanup(self) -> None:
        """Files that no snapshot needs any more are removed."""
        self._maintain("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")

    # --- polls ----------------------------------------------------------------------------------------

    def live_long(self, *, polls: int) -> None:
        """Commits, maintenance and a poll, many times over."""
        for _ in range(polls):
            self.live_a_while()
            self.poll()

    def live_a_while(self) -> None:
        """A few commits, perhaps some maintenance between them."""
        for _ in range(self.random.randint(1, 5)):
            statements = self.random.choice(self.steps)()
            if statements:
                self._run(*statements)
            if self.upkeep and self.random.random() < 0.25:
                self.random.choice(self.upkeep)()

    def poll(self) -> None:
        """Read one window and compare the copy with the source at its end (an append table: at each step)."""
        self.writer.release()
        head = self.source.observe().head
        if head == self.position:
            return
        limits = WindowLimits(rows_max=self.random.choice([1, 20, 1000]), bytes_max=1 << 30)
        window = self.source.plan_window(
            {TABLE.name: (TABLE, self.position, frozenset({self.mode}))},
            upto_max=head,
            limits=limits,
            parallelism=2,
        )
        assert not window.faults
        assert self.position < window.upto <= head
        self.tasks.update(type(task).__name__ for task in window.tasks)
        self.log.append(f"-- window ({self.position.place}, {window.upto.place}] {_kinds(window.tasks)}")
        changes = changes_of(batch for task in window.tasks for _, batch in task.read())
        assert all(self.position.place < change[PLACE] <= window.upto.place for change in changes)
        self._evolve(window.upto)
        if self.mode == "append":
            self._compare_each_step(changes, window.upto)
        else:
            self.model.apply(changes, numbered=False)
        self.position = window.upto
        self.compare(window.upto.place)

    def seed(self) -> None:
        """The whole table at the head, as every sink begins and as a mirror begins again."""
        self.writer.release()
        head = self.source.observe().head
        window = self.source.plan_seed([TABLE], at=head, parallelism=3)
        assert not window.faults
        self.tasks.update(type(task).__name__ for task in window.tasks)
        self.log.append(f"-- seed at {head.place}")
        self.model.routes.clear()
        self._evolve(head)
        self.model.apply(
            changes_of(batch for task in window.tasks for _, batch in task.read()), numbered=True
        )
        self.position = head
        self.compare(head.place)

    def compare(self, snapshot: int) -> None:
        """The copy is the table as it was committed then, row by row, in the columns both know."""
        names, rows = self.noted[snapshot]
        shared = [name for name in self.model.columns if name in names]
        held = _sorted(self.model.rows(), self.model.columns, shared)
        assert held == _sorted(rows, names, shared), f"differs at snapshot {snapshot}"
        route = self.model.columns.index("tenant")
        assert all(row[route] == of for of, held in self.model.routes.items() for row in held.values())

    def _compare_each_step(self, changes: list[dict[str, Any]], upto: Position) -> None:
        """The changes of each snapshot lead to that snapshot's content, also where the lake itself no longer
        tells it right."""
        surviving = [s for s in self.writer.snapshots() if self.position.place < s <= upto.place]
        assert {change[PLACE] for change in changes} <= set(surviving)
        for snapshot in surviving:
            self.model.apply((c for c in changes if c[PLACE] == snapshot), numbered=True)
            self.compare(snapshot)

    def _evolve(self, at: Position) -> None:
        self.writer.release()
        schema = self.source.describe(TABLE, at=at)
        self.model.evolve([(c.name, None if c.initial is None else "it's") for c in schema.columns])

    # --- leaves ---------------------------------------------------------------------------------------

    def _maintain(self, statement: str) -> None:
        """The extension itself fails at some maintenance (a rewrite after ALTER, inlined): then none was."""
        try:
            self._run(statement)
        except duckdb.Error:
            self.tasks["refused maintenance"] += 1
            self.writer.rollback()

    def _run(self, *statements: str) -> None:
        self.log += statements
        self.writer.run(*statements)
        self._note()

    def _note(self) -> None:
        head = self.writer.head()
        if head not in self.noted:
            self.noted[head] = self.writer.table("events")

    def _pick(self) -> list[int]:
        keys = sorted(self.live)
        return self.random.sample(keys, min(len(keys), self.random.choice([1, 2, 3, 12])))

    def _some(self) -> str:
        return f"id IN ({_list(self._pick() or [-1])})"

    def _value(self) -> str:
        return self.random.choice(["NULL", "'a'", "'b'", f"'{self.random.randint(0, 9)}'"])

    def _tenant(self) -> str:
        return self.random.choice(["'a'", "'b'", "'c'", "NULL"])

    def _rows(self, keys: list[int]) -> str:
        rows = ", ".join(
            f"({key}, {self._tenant()}, {self._value()}, {self.random.choice(AMOUNTS)})" for key in keys
        )
        return f"SELECT * FROM (VALUES {rows}) v(id, tenant, value, amount)"


def _kinds(tasks: Any) -> list[str]:
    return [type(task).__name__ for task in tasks]


def _list(keys: Any) -> str:
    return ", ".join(str(key) for key in keys)


def _sorted(rows: list[Row], columns: Sequence[str], wanted: Sequence[str]) -> list[str]:
    places = [list(columns).index(name) for name in wanted]
    return sorted(repr(tuple(row[place] for place in places)) for row in rows)
