"""Partitions whose changes tell less than those of their root should, or are in no log: none is taken for
what its root says of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import Follower, looking_always
from tests.sources.postgres.piped import BOTH, MIRROR, WIDE, Piped, pipeline_document
from truecut.errors import Fault
from truecut.model.table import TableName
from truecut.sources.contract import TableFacts, TableRead
from truecut.sources.registry import survey_source

__all__ = ["looking_always"]
pytestmark = pytest.mark.usefixtures("looking_always")
_numbers = itertools.count(1)
T, L = TableName("public", "t"), '"public"."l"'
KEYED = "CREATE TABLE t (id int PRIMARY KEY, tenant text) PARTITION BY RANGE (id)"
LEAF = "CREATE TABLE l PARTITION OF t FOR VALUES FROM (0) TO (100)"


@pytest.fixture
def piped(postgres: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    conninfo = postgres.create_database(name := f"leaves_{next(_numbers)}")
    made = Piped(tmp_path, conninfo, pipeline_document(name, conninfo, [{"name": str(T)}]))
    yield made
    made.close()


def by_tenant(piped: Piped) -> None:
    piped.document["spec"]["tables"][0]["route_by"] = "tenant"
    piped.document["spec"]["sinks"][0]["route"] = "a"


def do(piped: Piped, *statements: str) -> None:
    with piped.connect() as connection:
        for statement in statements:
            connection.execute(statement.encode())


def held(follower: Follower) -> str:
    """What is said of the table when it is to be copied."""
    while not follower.said:
        follower.capture()
        follower.bring(T)
    return follower.said[-1]


def truth(piped: Piped) -> Counter[tuple[object, ...]]:
    with piped.connect() as connection:
        return Counter(connection.execute("SELECT * FROM t").fetchall())


def facts(piped: Piped, route_by: str | None = None) -> Fault | TableFacts:
    """As `doctor` and `plan` have it."""
    survey = survey_source(piped.pipeline().source)
    found = survey.facts(TableRead(T, ("id",), route_by), survey.observe())
    assert isinstance(found, Fault | TableFacts)
    return found


@dataclass(frozen=True)
class Case:
    """How the table is made, what happens to its rows, and what its leaf is told to."""

    made: tuple[str, ...]
    changes: tuple[str, ...]
    code: str
    by_tenant: bool = False


CASES = {
    "a route of the root's identity alone": Case(
        (KEYED, LEAF, "ALTER TABLE t REPLICA IDENTITY FULL"),
        ("UPDATE t SET tenant = 'b' WHERE id = 1", "DELETE FROM t WHERE id = 2"),
        "TC2161",
        by_tenant=True,
    ),
    "another key": Case(
        (
            KEYED,
            LEAF,
            "CREATE UNIQUE INDEX other ON l (tenant)",
            "ALTER TABLE l ALTER tenant SET NOT NULL",
            "ALTER TABLE l REPLICA IDENTITY USING INDEX other",
        ),
        ("UPDATE t SET id = 5 WHERE id = 1", "DELETE FROM t WHERE id = 2"),
        "TC2161",
    ),
    "a key of its own below a root that has none": Case(
        (
            "CREATE TABLE t (id int NOT NULL, tenant text) PARTITION BY RANGE (id)",
            LEAF,
            "ALTER TABLE l ADD PRIMARY KEY (id)",
            "ALTER TABLE t REPLICA IDENTITY FULL",
        ),
        ("UPDATE t SET tenant = 'x' WHERE id = 1",),
        "TC2161",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_leaf_that_tells_less_than_its_root_holds_the_table(piped: Piped, case: Case) -> None:
    """REPLICA IDENTITY of a root is not that of its leaves, and the log has what the leaf tells. `doctor` and
    `plan` say so before anything is made, and a run holds the table, with the SQL for each leaf; mended by
    that, it is the source, whatever was written before."""
    do(piped, *case.made, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    if case.by_tenant:
        by_tenant(piped)
    piped.document["spec"]["tables"][0]["key"] = ["id"]
    found = facts(piped, "tenant" if case.by_tenant else None)
    assert isinstance(found, Fault)
    assert (found.code, f"ALTER TABLE {L} REPLICA IDENTITY" in found.message) == (case.code, True)
    follower = Follower(piped)
    assert held(follower) == case.code
    do(piped, *case.changes)
    do(piped, found.message[found.message.index(f"ALTER TABLE {L}") :].partition(" mends")[0])
    follower.catch_up()
    assert follower.tables[T].content()[1] == truth(piped)
    do(piped, "UPDATE t SET tenant = 'z', id = 7 WHERE id = 3", "DELETE FROM t WHERE id IN (1, 5)")
    follower.catch_up()
    assert (follower.said, follower.tables[T].content()[1]) == ([case.code], truth(piped))


def test_a_leaf_that_comes_later_is_seen(piped: Piped) -> None:
    """Also where it has no rows, and none of the root's other leaves is written to."""
    do(piped, KEYED, LEAF, "INSERT INTO t VALUES (1, 'a')")
    follower = Follower(piped)
    follower.catch_up()
    do(
        piped,
        "CREATE TABLE m (id int PRIMARY KEY, tenant text UNIQUE NOT NULL)",
        "ALTER TABLE m REPLICA IDENTITY USING INDEX m_tenant_key",
        "ALTER TABLE t ATTACH PARTITION m FOR VALUES FROM (100) TO (200)",
        "SELECT pg_logical_emit_message(false, 'some', 'thing')",
    )
    follower.capture()
    follower.stream_to(None, WIDE)
    assert follower.said == ["TC2161"]
    do(piped, "INSERT INTO t VALUES (101, 'x')", "UPDATE t SET id = 102 WHERE id = 101")
    do(piped, "ALTER TABLE m REPLICA IDENTITY DEFAULT")
    follower.catch_up()
    assert (follower.said, follower.tables[T].content()[1]) == (["TC2161"], truth(piped))


def test_a_leaf_that_tells_more_is_none_the_worse(piped: Piped) -> None:
    """Of a leaf that tells whole rows, or of a root that would tell them, a mirror has all that it needs."""
    do(piped, KEYED, LEAF, "ALTER TABLE l REPLICA IDENTITY FULL")
    do(piped, "CREATE TABLE m PARTITION OF t FOR VALUES FROM (100) TO (200)")
    do(piped, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (101, 'c')")
    follower = Follower(piped)
    follower.catch_up()
    do(piped, "UPDATE t SET id = id + 10 WHERE id <> 2", "DELETE FROM t WHERE id = 2")
    follower.catch_up()
    assert (follower.said, follower.tables[T].content()[1]) == ([], truth(piped))


def test_an_append_table_takes_no_key_for_a_whole_row(piped: Piped) -> None:
    """Under a root of whole rows the server says of a leaf's key that it is one, the rest of it NULL."""
    do(piped, KEYED, LEAF, "ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1, 'a')")
    follower = Follower(piped)
    at = follower.catch_up()
    do(piped, "DELETE FROM t")
    follower.capture()
    head = follower.look().head
    for modes, said in ((MIRROR, []), (BOTH, ["TC2161"])):
        wanted = {T: (follower.reading(T), at, modes)}
        window = follower.source.plan_window(wanted, upto_max=head, limits=WIDE, parallelism=1)
        assert [fault.code for fault in window.faults.values()] == said


def test_a_leaf_of_another_server_holds_the_table(piped: Piped) -> None:
    """The root's content has its rows, and the log of this server none of its changes."""
    do(
        piped,
        "CREATE TABLE t (id int, tenant text) PARTITION BY RANGE (id)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SERVER s FOREIGN DATA WRAPPER w",
        "CREATE FOREIGN TABLE l PARTITION OF t FOR VALUES FROM (0) TO (100) SERVER s",
    )
    found = facts(piped)
    assert isinstance(found, Fault)
    assert (found.code, f"DETACH PARTITION {L}" in found.fix) == ("TC2163", True)


def test_an_unlogged_leaf_holds_the_table(piped: Piped) -> None:
    """The root's content has its rows, and no log its changes: said before the run, by the copy, and when
    such a leaf comes while the table is followed."""
    do(piped, KEYED, LEAF.replace("TABLE l", "UNLOGGED TABLE l"), "INSERT INTO t VALUES (1, 'a')")
    found = facts(piped)
    assert isinstance(found, Fault)
    assert (found.code, f"ALTER TABLE {L} SET LOGGED" in found.message) == ("TC2162", True)
    follower = Follower(piped)
    assert held(follower) == "TC2162"
    do(piped, "UPDATE t SET tenant = 'b'", "ALTER TABLE l SET LOGGED", "INSERT INTO t VALUES (2, 'c')")
    follower.catch_up()
    assert (follower.said, follower.tables[T].content()[1]) == (["TC2162"], truth(piped))
    do(piped, "CREATE UNLOGGED TABLE m PARTITION OF t FOR VALUES FROM (100) TO (200)")
    do(piped, "INSERT INTO t VALUES (101, 'unseen')", "SELECT pg_logical_emit_message(false, 'x', 'y')")
    follower.capture()
    follower.stream_to(None, WIDE)
    assert follower.said == ["TC2162", "TC2162"]
