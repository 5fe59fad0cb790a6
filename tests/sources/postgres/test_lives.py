"""A whole life at random: tables that are copied while others stream, while several sessions write, change
keys and columns and truncate; a process that forgets; copies that begin again. At every frontier what streams
is the source there, row for row, so no transaction is seen in part."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.postgres_server import PostgresServer
from tests.sources.postgres.busy import Busy
from tests.sources.postgres.following import Follower, looking_always
from tests.sources.postgres.piped import Piped, frontier, pipeline_document
from truecut.config.kinds import SOURCES
from truecut.core.capture import Mode
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.runtime.capture_start import open_writer
from truecut.sources.contract import WindowLimits
from truecut.sources.postgres.address import server_address, units_of
from truecut.sources.postgres.capture import Capture, Pace

__all__ = ["looking_always"]
_numbers = itertools.count(1)
PARTS = (
    "CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
    "CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (1000)",
    "INSERT INTO parts SELECT i, 0 FROM generate_series(1, 300) i",
)
NAMES = tuple(TableName("public", name) for name in ("items", "pairs", "parts"))
# Held, or lost, and copied anew: a change of columns within a transaction or before the one before it was
# captured; what is beside the log.
MAY_BE_SAID = {"TC2153", "TC2154", "TC3052", "TC3054"}


@dataclass
class Life:
    """One seed."""

    piped: Piped
    rng: random.Random
    compared: Counter[str] = field(default_factory=Counter)
    columns: int = 0
    born: int = 1

    def __post_init__(self) -> None:
        self.busy = Busy(self.piped, self.rng)
        with self.piped.connect() as connection:
            for statement in PARTS:
                connection.execute(statement.encode())
        self.settings = self.piped.pipeline().source
        self.follower = Follower(self.piped, self.capture)
        self.capture()

    def capture(self) -> None:
        """In small pieces, so that usual transactions are large; until it is drained, or as a stream."""
        polls = self.rng.choice([0, 0, 4])
        pace = Pace(look_s=0.05, wait_s=0.01, append_bytes=20_000, block_bytes=4_000)
        with closing(open_writer(self.settings)) as journal:
            running = Capture(server_address(self.settings), journal, pace=pace)
            left = itertools.count(-polls)
            running.run(
                lambda drained: (
                    drained if not polls else running.progress.mode is Mode.TAIL and next(left) >= 0
                )
            )

    def step(self) -> None:
        what = self.rng.random()
        if what < 0.55:
            self.busy.steps(self.rng.randrange(1, 8))
        elif what < 0.63:
            self.capture()
        elif what < 0.75:
            self.some_windows()
        elif what < 0.88:
            self.bring()
        elif what < 0.91:
            self.copy_anew()
        elif what < 0.93:
            self.forget()
        elif what < 0.96:
            self.change()
        else:
            self.compare()

    def bring(self) -> None:
        """A table, nearer to its copy."""
        waiting = [name for name, held in self.follower.tables.items() if held.at is None]
        if waiting:
            self.follower.bring(self.rng.choice(waiting), self.rng.choice([1, 2, 99]))

    def forget(self) -> None:
        """The process begins anew."""
        self.follower.restart()
        self.follower.look()

    def some_windows(self) -> None:
        limits = WindowLimits(rows_max=self.rng.choice([1, 20, 5000]), bytes_max=1 << 30)
        head = self.follower.look().head
        for _ in range(self.rng.randrange(1, 4)):
            self.follower.follow(limits, head)

    def copy_anew(self) -> None:
        """Of the units that are there, at another place; or of others."""
        name = self.rng.choice(NAMES)
        self.follower.tables[name].at = None
        edition = units_of(self.settings).current(name)
        if edition is not None and self.rng.random() < 0.5:
            edition.make_void("the test says so")

    def change(self) -> None:
        """What needs a table for itself."""
        self.busy.settle()
        self.columns += 1
        c, n = f"c{self.columns}", self.rng.randrange(100)
        table = self.rng.choice(["items", "pairs"])
        with self.piped.connect() as connection:
            have = [row[0] for row in connection.execute(_EXTRA, (table,))]
            old = self.rng.choice(have) if have else None
            choices = [
                f"ALTER TABLE {table} ADD {c} int DEFAULT {n}",
                f"ALTER TABLE {table} ADD {c} text",
                f"BEGIN; UPDATE {table} SET n = {n}; ALTER TABLE {table} ADD {c} int; "
                f"UPDATE {table} SET {c} = n WHERE n > 3; COMMIT",
                f"BEGIN; ALTER TABLE {table} RENAME TO away; UPDATE away SET n = n + 1; "
                f"ALTER TABLE away RENAME TO {table}; COMMIT",
                f"VACUUM FULL {table}",
                "TRUNCATE parts1",
                f"CREATE TABLE parts{self.born + 1} PARTITION OF parts FOR VALUES "
                f"FROM ({self.born * 1000}) TO ({self.born * 1000 + 1000}); "
                f"INSERT INTO parts SELECT {self.born * 1000} + i, i FROM generate_series(1, 9) i",
                "UPDATE parts SET n = n + 1; DELETE FROM parts WHERE n > 4",
                "INSERT INTO parts SELECT i, 1 FROM generate_series(1, 50) i ON CONFLICT (id) DO NOTHING",
            ]
            if old is not None:
                choices += [
                    f"ALTER TABLE {table} DROP {old}",
                    f"ALTER TABLE {table} RENAME {old} TO {c}",
                    f"ALTER TABLE {table} DROP {old}; ALTER TABLE {table} ADD {old} int DEFAULT 7",
                ]
            chosen = self.rng.choice(choices)
            self.born += chosen.startswith("CREATE TABLE parts")
            connection.execute(chosen.encode())

    def compare(self) -> None:
        """At a slot's own place, or in the middle of transactions none of which commits."""
        if self.rng.random() < 0.5:
            self.busy.settle()
            with frontier(self.piped.conninfo) as (lsn, session):
                held = {name: at_source(session, name) for name in NAMES}
        else:
            with self.piped.connect() as session, session.transaction():
                session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                (lsn,) = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone() or ("",)
                held = {name: at_source(session, name) for name in NAMES}
        self.busy.steps(4)  # what comes behind does not matter
        self._agree(Position(1, SOURCES["postgres"].place(lsn)), held)

    def _agree(self, at: Position, held: dict[TableName, list[dict[str, Any]]]) -> None:
        streaming = [name for name, table in self.follower.tables.items() if table.at is not None]
        while self.follower.look().head < at:
            with self.piped.connect() as connection:
                connection.execute("SELECT pg_current_xact_id()")
            self.capture()
        limits = WindowLimits(rows_max=self.rng.choice([1, 50, 5000]), bytes_max=1 << 30)
        self.follower.stream_to(at, limits)
        for name in streaming:
            if self.follower.tables[name].at == at:
                self._equal(name, held[name])

    def _equal(self, name: TableName, held: list[dict[str, Any]]) -> None:
        columns, found = self.follower.tables[name].content()
        source = Counter(tuple(row[column] for column in columns) for row in held)
        assert found == source, (name, found - source, source - found)
        self.compared[name.table] += 1

    def end(self) -> None:
        """Everything is the source in the end, and what was said is what may be."""
        self.busy.settle()
        self.follower.catch_up()
        self.follower.catch_up()
        with self.piped.connect() as session:
            for name in NAMES:
                self._equal(name, at_source(session, name))
        assert set(self.follower.said) <= MAY_BE_SAID, self.follower.said


def at_source(session: psycopg.Connection[Any], table: TableName) -> list[dict[str, Any]]:
    """Read at once: an older snapshot finds a table empty that was truncated since."""
    with session.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(f"SELECT * FROM {table.schema}.{table.table}".encode()).fetchall()


_EXTRA = """
SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attname LIKE 'c%%' AND attnum > 0
  AND NOT attisdropped
"""


def live(server: PostgresServer, folder: Path, seed: int, steps: int) -> Life:
    name = f"life_{next(_numbers)}"
    conninfo = server.create_database(name)
    keys = {"items": ["id"], "pairs": ["a", "b"], "parts": ["id"]}
    tables = [{"name": f"public.{table}", "key": key} for table, key in keys.items()]
    piped = Piped(folder, conninfo, pipeline_document(name, conninfo, tables))
    life = Life(piped, random.Random(seed))
    try:
        for _ in range(steps):
            life.step()
        life.end()
    finally:
        life.busy.close()
        piped.close()
    return life


@pytest.mark.parametrize(("version", "seed"), [("postgres", 1), ("postgres_16", 2)])
def test_what_streams_is_the_source_at_every_frontier(
    request: pytest.FixtureRequest, tmp_path: Path, looking_always: None, version: str, seed: int
) -> None:
    """A short life on either version."""
    compared = live(request.getfixturevalue(version), tmp_path, seed, 150).compared
    assert compared.total() > 3, compared


@pytest.mark.soak
@pytest.mark.parametrize("version", ["postgres", "postgres_16"])
def test_the_same_for_long(
    request: pytest.FixtureRequest, tmp_path: Path, looking_always: None, version: str
) -> None:
    """Many lives; how many is TRUECUT_LIVES."""
    server: PostgresServer = request.getfixturevalue(version)
    compared: Counter[str] = Counter()
    for number in range(int(os.environ.get("TRUECUT_LIVES", "30"))):
        seed = time.time_ns() % 1_000_000_007
        folder = tmp_path / str(number)
        folder.mkdir()
        print("seed", seed, flush=True)
        compared += live(server, folder, seed, 400).compared
    assert all(compared[name.table] > 30 for name in NAMES), compared
