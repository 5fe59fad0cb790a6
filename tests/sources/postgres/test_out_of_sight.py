"""What the log does not tell. A row that came or went beside it must not be missing without a word: whatever
the source did between two looks, the copy is the source, and where it was not, that was said."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.types import TypeInfo
from psycopg.types.string import TextLoader

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import Follower, looking_always
from tests.sources.postgres.piped import WIDE, Piped, pipeline_document
from truecut.model.table import TableName

__all__ = ["looking_always"]
_numbers = itertools.count(1)
T, P = TableName("public", "t"), TableName("public", "p")
LOOKS_MAX = 4
MADE = (
    "CREATE SCHEMA other",
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TYPE pair AS (a int, m mood[])",
    "CREATE DOMAIN network AS cidr",
    "CREATE DOMAIN host AS network",
    "CREATE TABLE t (id bigint PRIMARY KEY, n int, note text)",
    "CREATE TABLE typed (id int PRIMARY KEY, n int, p pair DEFAULT '(1,{sad})', net cidr DEFAULT '::1/128',"
    " host host DEFAULT '10.1.2.3/32')",
    "CREATE TABLE narrow (id int PRIMARY KEY, n int)",
    "CREATE TABLE p (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200)",
    "INSERT INTO t SELECT n, n, 'first' FROM generate_series(1, 20) n",
    "INSERT INTO narrow SELECT n, n FROM generate_series(1, 20) n",
    "INSERT INTO typed SELECT n, n FROM generate_series(1, 3) n",
    "INSERT INTO p SELECT n * 10, 'first' FROM generate_series(0, 19) n",
)
LISTED, IN_SCHEMA, ALL = "", "TABLES IN SCHEMA public", "ALL TABLES"


@dataclass(frozen=True)
class Case:
    """What is done, under which publication, and whether the copy has to be told that it cannot follow."""

    publication: str
    steps: tuple[str, ...]
    said: str = ""  # a code, or "gap"


CASES = {
    "out of the schema and back": Case(
        IN_SCHEMA,
        (
            "ALTER TABLE t SET SCHEMA other",
            "INSERT INTO other.t VALUES (100, 1, 'unseen')",
            "ALTER TABLE other.t SET SCHEMA public",
        ),
        "TC2153",
    ),
    "to another schema and back, and still published": Case(
        LISTED,
        (
            "ALTER TABLE t SET SCHEMA other",
            "INSERT INTO other.t VALUES (100, 1, 'elsewhere')",
            "ALTER TABLE other.t SET SCHEMA public",
        ),
        "TC2154",
    ),
    "renamed and back": Case(
        ALL,
        (
            "ALTER TABLE t RENAME TO t_away",
            "INSERT INTO t_away VALUES (100, 1, 'elsewhere')",
            "ALTER TABLE t_away RENAME TO t",
        ),
        "TC2154",
    ),
    "renamed and back between its changes": Case(
        LISTED,
        (
            "INSERT INTO t VALUES (99, 1, 'before')",
            "ALTER TABLE t RENAME TO t_away",
            "UPDATE t_away SET n = 77 WHERE id < 5",
            "ALTER TABLE t_away RENAME TO t",
            "INSERT INTO t VALUES (101, 1, 'after')",
        ),
        "TC2154",
    ),
    "renamed and back, and nothing written": Case(
        LISTED, ("ALTER TABLE t RENAME TO t_away", "ALTER TABLE t_away RENAME TO t")
    ),
    "taken out and put in again": Case(
        LISTED,
        (
            "ALTER PUBLICATION {p} DROP TABLE t",
            "INSERT INTO t VALUES (100, 1, 'unseen')",
            "ALTER PUBLICATION {p} ADD TABLE t",
        ),
        "gap",
    ),
    "only inserts for a while": Case(
        LISTED,
        (
            "ALTER PUBLICATION {p} SET (publish = 'insert')",
            "UPDATE t SET n = 100",
            "DELETE FROM p WHERE id < 50",
            "ALTER PUBLICATION {p} SET (publish = 'insert, update, delete, truncate')",
        ),
        "gap",
    ),
    "partitions by their own names for a while": Case(
        LISTED,
        (
            "ALTER PUBLICATION {p} SET (publish_via_partition_root = false)",
            "INSERT INTO p VALUES (1, 'as p1')",
            "ALTER PUBLICATION {p} SET (publish_via_partition_root)",
        ),
        "gap",
    ),
    "a filter for a while": Case(
        LISTED,
        (
            "ALTER PUBLICATION {p} SET TABLE t WHERE (id < 5), narrow, p, typed",
            "INSERT INTO t VALUES (100, 1, 'unseen')",
            "ALTER PUBLICATION {p} SET TABLE t, narrow, p, typed",
        ),
        "gap",
    ),
    "some columns for a while": Case(
        LISTED,
        (
            "ALTER PUBLICATION {p} SET TABLE t (id, n), narrow, p, typed",
            "UPDATE t SET note = 'unseen'",
            "ALTER PUBLICATION {p} SET TABLE t, narrow, p, typed",
        ),
        "gap",
    ),
    "dropped and made anew": Case(
        ALL,
        (
            "DROP TABLE t",
            "CREATE TABLE t (id bigint PRIMARY KEY, n int, note text)",
            "INSERT INTO t VALUES (7, 7, 'another')",
        ),
        "TC3071",
    ),
    "dropped and made anew, empty": Case(
        ALL, ("DROP TABLE t", "CREATE TABLE t (id bigint PRIMARY KEY, n int, note text)"), "TC3071"
    ),
    "another one had its name within a transaction": Case(
        ALL,
        (
            "CREATE TABLE other.t (id bigint CONSTRAINT o PRIMARY KEY, n int, note text)",
            "BEGIN; INSERT INTO t VALUES (99, 1, 'before'); ALTER TABLE t RENAME TO t_away;"
            "ALTER TABLE other.t SET SCHEMA public; INSERT INTO t VALUES (100, 1, 'of another');"
            "ALTER TABLE t SET SCHEMA other; ALTER TABLE t_away RENAME TO t;"
            "INSERT INTO t VALUES (101, 1, 'after'); COMMIT",
        ),
        "TC3071",
    ),
    "another identity for a while": Case(
        LISTED,
        (
            "ALTER TABLE t REPLICA IDENTITY NOTHING",
            "INSERT INTO t VALUES (100, 1, 'seen')",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "UPDATE t SET n = 3 WHERE id < 4",
            "ALTER TABLE t REPLICA IDENTITY DEFAULT",
            "DELETE FROM t WHERE id = 5",
        ),
        "TC2123",
    ),
    "unlogged for a while": Case(
        ALL,
        (
            "ALTER TABLE t SET UNLOGGED",
            "INSERT INTO t VALUES (100, 1, 'unseen')",
            "ALTER TABLE t SET LOGGED",
        ),
        "TC2153",
    ),
    "unlogged for a while, without large values": Case(
        IN_SCHEMA,
        (
            "ALTER TABLE narrow SET UNLOGGED",
            "DELETE FROM narrow WHERE id > 5",
            "ALTER TABLE narrow SET LOGGED",
        ),
        "TC2153",
    ),
    "values rewritten": Case(LISTED, ("ALTER TABLE narrow ALTER n TYPE int USING n * 100",), "TC2153"),
    "values rewritten, of a table with large ones": Case(
        LISTED, ("ALTER TABLE t ALTER n TYPE bigint USING n * 100",), "TC2153"
    ),
    "a column dropped and made anew": Case(
        LISTED,
        (
            "UPDATE narrow SET n = 5 WHERE id < 5",
            "ALTER TABLE narrow DROP n",
            "ALTER TABLE narrow ADD n int DEFAULT 7",
        ),
        "TC2153",
    ),
    "a column dropped and made anew within a transaction": Case(
        LISTED,
        (
            "BEGIN; UPDATE narrow SET n = 5 WHERE id < 5; ALTER TABLE narrow DROP n;"
            "ALTER TABLE narrow ADD n int; UPDATE narrow SET n = 6 WHERE id = 6; COMMIT",
        ),
        "TC2153",
    ),
    "a column dropped and made anew with another type": Case(
        LISTED,
        (
            "UPDATE narrow SET n = 5 WHERE id < 5",
            "ALTER TABLE narrow DROP n",
            "ALTER TABLE narrow ADD n bigint DEFAULT 7",
            "UPDATE narrow SET n = 9 WHERE id < 3",
        ),
    ),
    "a partition attached with rows": Case(
        LISTED,
        (
            "CREATE TABLE p3 (LIKE p INCLUDING ALL)",
            "INSERT INTO p3 VALUES (250, 'unseen')",
            "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300)",
        ),
        "TC2153",
    ),
    "a partition made, filled and attached at once": Case(
        LISTED,
        (
            "BEGIN; CREATE TABLE p3 (LIKE p INCLUDING ALL); INSERT INTO p3 VALUES (250, 'unseen');"
            "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300); COMMIT",
        ),
        "TC2153",
    ),
    "a partition attached empty": Case(
        LISTED,
        (
            "CREATE TABLE p3 (LIKE p INCLUDING ALL)",
            "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300)",
        ),
    ),
    "a partition born and filled": Case(
        LISTED,
        (
            "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (200) TO (300) PARTITION BY RANGE (id)",
            "CREATE TABLE p31 PARTITION OF p3 FOR VALUES FROM (200) TO (250)",
            "INSERT INTO p VALUES (201, 'seen')",
            "INSERT INTO p31 VALUES (202, 'seen, too')",
        ),
    ),
    "a partition detached": Case(LISTED, ("ALTER TABLE p DETACH PARTITION p2",), "TC2153"),
    "a partition dropped": Case(LISTED, ("DROP TABLE p2",), "TC2153"),
    "a partition detached for a while": Case(
        LISTED,
        (
            "ALTER TABLE p DETACH PARTITION p2",
            "INSERT INTO p2 VALUES (199, 'unseen')",
            "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200)",
        ),
        "TC2153",
    ),
    "a partition truncated": Case(LISTED, ("TRUNCATE p2",), "TC2153"),
    "a label of an enum renamed": Case(LISTED, ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",), "TC2153"),
    "a label of an enum renamed and back": Case(
        LISTED,
        (
            "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
            "UPDATE typed SET n = 7 WHERE id = 1",
            "ALTER TYPE mood RENAME VALUE 'blue' TO 'sad'",
        ),
        "TC2153",
    ),
    "an attribute added to a composite": Case(LISTED, ("ALTER TYPE pair ADD ATTRIBUTE c int",), "TC2153"),
    "networks made addresses": Case(LISTED, ("ALTER TABLE typed ALTER net TYPE inet",), "TC2153"),
    "networks behind domains made addresses": Case(
        LISTED, ("ALTER TABLE typed ALTER host TYPE inet",), "TC2153"
    ),
    "networks given another domain": Case(LISTED, ("ALTER TABLE typed ALTER host TYPE network",)),
    "a column whose value of older rows is no longer told": Case(
        LISTED,
        (
            "ALTER TABLE t ADD c int DEFAULT 7",
            "ALTER TABLE t ALTER c DROP DEFAULT",
            "VACUUM FULL t",
            "UPDATE t SET n = 3 WHERE id = 1",
        ),
        "TC2153",
    ),
    "what is usual": Case(
        IN_SCHEMA,
        (
            "TRUNCATE t",
            "INSERT INTO t VALUES (1, 1, 'again')",
            "VACUUM FULL t",
            "CLUSTER t USING t_pkey",
            "ALTER TABLE t ADD extra int DEFAULT 5",
            "ALTER TABLE narrow ADD note text",
            "GRANT SELECT ON t TO PUBLIC",
            "ALTER TYPE mood ADD VALUE 'calm' BEFORE 'glad'",
            "ALTER TYPE pair RENAME ATTRIBUTE a TO first",
            "VACUUM ANALYZE",
            "UPDATE t SET n = 9",
        ),
    ),
}


# Seen by the same mark as another case.
ALIKE = {
    "to another schema and back, and still published",
    "renamed and back",
    "a filter for a while",
    "some columns for a while",
    "partitions by their own names for a while",
    "dropped and made anew",
    "values rewritten, of a table with large ones",
    "a column dropped and made anew within a transaction",
    "a partition detached",
    "a label of an enum renamed",
}


def life(server: PostgresServer, folder: Path, publication: str) -> Iterator[tuple[Piped, Follower]]:
    name = f"sight_{next(_numbers)}"
    conninfo = server.create_database(name)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(statement.encode())
        if publication:
            what = f"CREATE PUBLICATION truecut_{name} FOR {publication}"
            connection.execute(f"{what} WITH (publish_via_partition_root)".encode())
    tables = [{"name": f"public.{table}"} for table in ("t", "narrow", "p", "typed")]
    piped = Piped(folder, conninfo, pipeline_document(name, conninfo, tables))
    try:
        yield piped, Follower(piped)
    finally:
        piped.close()


def do(piped: Piped, steps: tuple[str, ...]) -> None:
    with piped.connect() as connection:
        for step in steps:
            connection.execute(step.format(p=f"truecut_{piped.pipeline().name}").encode())


def agrees(piped: Piped, follower: Follower) -> None:
    """The copy is what the source holds, row for row."""
    with piped.connect() as connection:
        for name in ("cidr", "inet", "pair"):  # as the server writes them
            kind = TypeInfo.fetch(connection, name)
            assert kind is not None
            connection.adapters.register_loader(kind.oid, TextLoader)
        for table, held in follower.tables.items():
            columns, found = held.content()
            query = f"SELECT {', '.join(columns)} FROM {table.schema}.{table.table}"
            assert found == Counter(connection.execute(query.encode()).fetchall()), table


def comes_to_agree(piped: Piped, follower: Follower) -> None:
    """What a look has shown is told when the journal has come to where the log was then; a server's log moves
    on by itself, so that may take another look or two."""
    for _ in range(LOOKS_MAX):
        follower.catch_up()
        with suppress(AssertionError):
            return agrees(piped, follower)
    return agrees(piped, follower)


@pytest.mark.parametrize(
    ("version", "restarts"),
    [
        pytest.param("postgres", True, id="started again"),
        pytest.param("postgres", False, id="running", marks=pytest.mark.soak),
        pytest.param("postgres_16", True, id="on 16", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.soak) if case in ALIKE else case for case in CASES]
)
def test_nothing_happens_out_of_sight(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    looking_always: None,
    case: str,
    version: str,
    restarts: bool,
) -> None:
    """Done between two looks, and then a change of every table, so that something follows; in a process that
    knows only what is durable, or in one that goes on."""
    server: PostgresServer = request.getfixturevalue(version)
    one = CASES[case]
    for piped, follower in life(server, tmp_path, one.publication):
        follower.catch_up()
        do(piped, ("UPDATE t SET n = 1 WHERE id = 1", "INSERT INTO p VALUES (5, 'second')"))
        follower.catch_up()
        agrees(piped, follower)
        assert follower.said == []
        do(piped, one.steps)
        if restarts:
            follower.restart()
        comes_to_agree(piped, follower)
        do(
            piped,
            (
                "UPDATE t SET n = n + 1",
                "UPDATE narrow SET n = n + 1",
                "UPDATE p SET note = 'last'",
                "UPDATE typed SET n = n + 1 WHERE id = 2",
            ),
        )
        follower.catch_up()
        agrees(piped, follower)
        assert set(follower.said) == ({one.said} if one.said else set())


@pytest.mark.parametrize("restarts", [True, False], ids=["started again", "running"])
def test_what_is_written_under_another_name_is_not_passed(
    postgres: PostgresServer, tmp_path: Path, looking_always: None, restarts: bool
) -> None:
    """While a table is away from its name, as the catalog shows, a window that has its changes is not passed:
    it might come back."""
    for piped, follower in life(postgres, tmp_path, ALL):
        follower.catch_up()
        do(piped, ("ALTER TABLE t RENAME TO t_away", "INSERT INTO t_away VALUES (100, 1, 'elsewhere')"))
        piped.capture()
        if restarts:
            follower.restart()
        follower.stream_to(None, WIDE)
        do(piped, ("ALTER TABLE t_away RENAME TO t",))
        comes_to_agree(piped, follower)
        assert set(follower.said) == {"TC2154"}


@pytest.mark.parametrize(
    "restarts",
    [pytest.param(True, id="started again"), pytest.param(False, id="running", marks=pytest.mark.soak)],
)
def test_a_table_whose_name_another_one_had_meanwhile_is_copied_anew(
    postgres: PostgresServer, tmp_path: Path, looking_always: None, restarts: bool
) -> None:
    """Seen or not, whatever was written to it under another name is not missing when it is back."""
    for piped, follower in life(postgres, tmp_path, ALL):
        do(piped, ("CREATE TABLE other.t (id bigint CONSTRAINT o PRIMARY KEY, n int, note text)",))
        follower.catch_up()
        do(
            piped,
            (
                "ALTER TABLE t RENAME TO t_away",
                "INSERT INTO t_away VALUES (100, 1, 'elsewhere')",
                "ALTER TABLE other.t SET SCHEMA public",
            ),
        )
        piped.capture()
        follower.stream_to(None, WIDE)
        do(piped, ("ALTER TABLE t SET SCHEMA other", "ALTER TABLE t_away RENAME TO t"))
        if restarts:
            follower.restart()
        comes_to_agree(piped, follower)
        assert follower.said
