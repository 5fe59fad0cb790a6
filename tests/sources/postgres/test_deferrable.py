"""A primary key that may be checked late: between two checks rows share it, so it tells none apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import Follower
from tests.sources.postgres.piped import MIRROR, WIDE, Piped, pipeline_document
from truecut.model.table import TableName

T = TableName("public", "t")


@pytest.fixture
def piped(postgres: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    conninfo = postgres.create_database("deferrable")
    made = Piped(tmp_path, conninfo, pipeline_document("deferrable", conninfo, [{"name": str(T)}]))
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
            follower.bring(T)
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
