"""A primary key that may be checked late: between two checks rows share it, so it tells none apart."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import Follower
from tests.sources.postgres.piped import MIRROR, WIDE, Piped, pipeline_document
from tests.sources.postgres.streams import relation
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead
from truecut.sources.postgres import shape
from truecut.sources.postgres.relation import Relation

T = TableName("public", "t")
LATE = "TC2127"
_numbers = itertools.count(1)


@pytest.fixture
def piped(postgres: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    conninfo = postgres.create_database("deferrable")
    made = Piped(tmp_path, conninfo, pipeline_document("deferrable", conninfo, [{"name": str(T)}]))
    yield made
    made.close()


@pytest.fixture
def named(postgres: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    """The file names the key."""
    conninfo = postgres.create_database(name := f"named_{next(_numbers)}")
    made = Piped(tmp_path, conninfo, pipeline_document(name, conninfo, [{"name": str(T), "key": ["id"]}]))
    yield made
    made.close()


def test_a_deferrable_key_is_none(piped: Piped) -> None:
    """`id = id + 1` moves a row to the key of the next one before that has moved, too: what is put together
    of a reading and that change counts whole rows, as of a table without a key, and a mirror has none."""
    with piped.connect() as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text)")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        follower = Follower(piped)
        follower.capture()
        while T in (seen := follower.look()).unready:
            follower.capture()
            for read in follower.units(T):
                read()
        connection.execute("UPDATE t SET id = id + 1")
        follower.capture()
        before, seen = seen.head, follower.look()
        reading = follower.reading(T)
        seed = follower.source.plan_seed([reading], at=seen.head, parallelism=1)
        rows = [row for task in seed.tasks for _, batch in task.read() for row in batch.to_pylist()]
        truth = Counter(connection.execute("SELECT id, v FROM t").fetchall())
    assert Counter((row["id"], row["v"]) for row in rows) == truth
    wanted = {T: (reading, before, MIRROR)}
    window = follower.source.plan_window(wanted, upto_max=seen.head, limits=WIDE, parallelism=1)
    assert {fault.code for fault in window.faults.values()} == {"TC2123"}


def test_a_deferrable_key_that_the_file_names_is_refused(named: Piped) -> None:
    """A mirror would put the first row in the place of the second, and lose it. It is held until the key is
    guarded at each row, by the SQL that it is told, and then copied anew."""
    with named.connect() as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text)")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        follower = Follower(named)
        follower.catch_up()
        connection.execute("UPDATE t SET id = id + 1")
        follower.capture()
        before, seen = follower.tables[T].at, follower.look()
        assert before is not None
        wanted = {T: (follower.reading(T), before, MIRROR)}
        window = follower.source.plan_window(wanted, upto_max=seen.head, limits=WIDE, parallelism=1)
        assert {name: fault.code for name, fault in window.faults.items()} == {T: LATE}
        connection.execute(window.faults[T].fix.partition(";")[0].encode())
        follower.catch_up()
        connection.execute("UPDATE t SET v = v || 'c' WHERE id = 3")
        follower.catch_up()
        assert follower.said == [LATE]
        truth = Counter(connection.execute("SELECT id, v FROM t").fetchall())
    assert follower.tables[T].content() == (("id", "v"), truth)


def test_a_key_that_another_index_guards_is_one(named: Piped) -> None:
    """Whatever else is checked late."""
    with named.connect() as connection:
        connection.execute("CREATE TABLE t (id int UNIQUE NOT NULL, v text, UNIQUE (id, v) DEFERRABLE)")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        follower = Follower(named)
        follower.catch_up()
        connection.execute("UPDATE t SET id = 3 WHERE id = 1")
        follower.catch_up()
    assert (follower.said, follower.tables[T].content()[1]) == ([], Counter([(2, "b"), (3, "a")]))


def test_a_key_is_late_by_what_of_it_is() -> None:
    """Of a wider one the part is told that is checked late, of an append table nothing is asked, and a
    primary key within it tells rows apart."""
    table = replace(relation(1, "t", 3, key=0, identity="f"), late=(("c2",), ("c0",)))

    def fix(key: tuple[str, ...], one: Relation = table, mode: Mode = "mirror") -> str | None:
        fault = shape.fault_in(TableRead(T, key, None), one, frozenset({mode}))
        return None if fault is None else fault.fix.partition(";")[0]

    assert fix(("c0", "c1")) == 'CREATE UNIQUE INDEX ON "public"."t" ("c0")'
    assert fix(("c1",)) is None
    assert fix(("c0", "c1"), mode="append") is None
    assert fix(("c0", "c1"), replace(table, key=("c1",))) is None
