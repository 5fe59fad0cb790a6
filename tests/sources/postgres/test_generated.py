"""Columns that the server computes: copied exactly where its log has them, told of where it has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import Follower, looking_always
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.model.finding import Finding
from truecut.model.table import TableName
from truecut.sources.contract import TableRead
from truecut.sources.postgres.address import server_address
from truecut.sources.postgres.reread import reread
from truecut.sources.postgres.survey import PostgresSurvey

__all__ = ["looking_always"]
_numbers = count(1)
T = TableName("public", "t")
MAKE = (
    "CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, "
    "large text GENERATED ALWAYS AS (repeat(md5(id::text), 400)) STORED, what text)",
    "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
    "CREATE TABLE plain (id int PRIMARY KEY)",
    "INSERT INTO t (id, n) SELECT i, i FROM generate_series(1, 30) i",
)
MORE = (
    "INSERT INTO t (id, n) SELECT i, i FROM generate_series(31, 40) i",
    "UPDATE t SET n = -n WHERE id % 3 = 0",
    "UPDATE t SET what = 'x' WHERE id % 4 = 0",
    "DELETE FROM t WHERE id % 7 = 0",
    "UPDATE t SET id = id + 100 WHERE id % 5 = 0",
)
VIRTUAL = "ALTER TABLE t ADD next int GENERATED ALWAYS AS (n + 1) VIRTUAL"
NAMES = ("id", "n", "twice", "large", "what")


def made(server: PostgresServer, folder: Path, *statements: str) -> Piped:
    name = f"generated_{next(_numbers)}"
    conninfo = server.create_database(name)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for statement in (*MAKE, *statements):
            connection.execute(statement)
    return Piped(folder, conninfo, pipeline_document(name, conninfo, [{"name": "public.*"}]))


@pytest.fixture
def piped(postgres: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    found = made(postgres, tmp_path, VIRTUAL)
    yield found
    found.close()


def do(piped: Piped, *statements: str) -> None:
    with piped.connect() as connection:
        for statement in statements:
            connection.execute(statement)


def at_source(piped: Piped) -> tuple[tuple[str, ...], Counter[Any]]:
    with piped.connect() as connection:
        return NAMES, Counter(connection.execute(f"SELECT {', '.join(NAMES)} FROM t").fetchall())


def reread_now(piped: Piped) -> tuple[tuple[str, ...], Counter[Any]]:
    """As verification reads the source once more."""
    piped.capture()
    with reread(piped.pipeline().source, generation=1) as again:
        window = again.plan(TableRead(T, ("id",), None), at=again.frontier, parallelism=2)
        events = [event for task in window.tasks for _, batch in task.read() for event in batch.to_pylist()]
        names = tuple(column.name for column in window.schemas[T].columns)
    return names, Counter(tuple(event[name] for name in names) for event in events)


def findings(piped: Piped) -> list[Finding]:
    survey = PostgresSurvey(piped.pipeline().source, 1)
    return list(survey.check(survey.observe()).findings)


def left_out(piped: Piped) -> tuple[str, ...]:
    """What `plan` says."""
    survey = PostgresSurvey(piped.pipeline().source, 1)
    facts = survey.facts(TableRead(T, ("id",), None), survey.observe())
    return facts.left_out  # type: ignore[union-attr]


def test_stored_ones_are_copied_and_followed(piped: Piped, looking_always: None) -> None:
    """By a publication that we make; also where large ones were not sent, the row moved, or the server
    computes them anew by another expression, of which its log has no word. Verification reads the same."""
    follower = Follower(piped)
    follower.catch_up()
    assert follower.tables[T].content() == at_source(piped)
    do(piped, *MORE)
    follower.catch_up()
    assert (follower.tables[T].content(), follower.said) == (at_source(piped), [])
    assert reread_now(piped) == at_source(piped)
    do(piped, "ALTER TABLE t ALTER twice SET EXPRESSION AS (n * 3)", *MORE[1:3])
    follower.catch_up()
    assert follower.tables[T].content() == at_source(piped)
    assert follower.said == ["TC2153"]


def test_virtual_ones_are_told(piped: Piped) -> None:
    """No server publishes them: before a first run, and after it."""
    for _ in range(2):
        (found,) = findings(piped)
        assert (found.object, found.fault.code, found.severity) == ("public.t", "TC2157", "warning")
        assert "columns next:" in found.fault.message
        assert left_out(piped) == ("next",)
        piped.capture()


def test_a_publication_without_them_is_told_with_the_sql(piped: Piped, looking_always: None) -> None:
    """That SQL mends it: the tables are copied anew, with them."""
    name = server_address(piped.pipeline().source).publication
    do(piped, f"CREATE PUBLICATION {name} FOR TABLE t, plain WITH (publish_via_partition_root)")
    follower = Follower(piped)
    follower.catch_up()
    assert follower.tables[T].content()[0] == ("id", "n", "what")
    (found,) = findings(piped)
    assert "columns twice, large, next:" in found.fault.message
    assert left_out(piped) == ("twice", "large", "next")
    do(piped, found.fault.fix.partition(";")[0])
    follower.catch_up()
    assert follower.tables[T].content() == at_source(piped)
    assert follower.said == ["gap"]
    assert left_out(piped) == ("next",)


def test_a_list_of_columns_is_its_makers_choice(piped: Piped) -> None:
    """What it leaves out is left out on purpose."""
    name = server_address(piped.pipeline().source).publication
    do(piped, f"CREATE PUBLICATION {name} FOR TABLE t (id, twice), plain")
    assert findings(piped) == []
    assert left_out(piped) == ()


def test_an_older_server_publishes_none(postgres_16: PostgresServer, tmp_path: Path) -> None:
    """Which is said, and that nothing at this server mends it; the other columns are copied."""
    piped = made(postgres_16, tmp_path)
    (found,) = findings(piped)
    assert "columns twice, large:" in found.fault.message
    assert "None at the source" in found.fault.fix
    follower = Follower(piped)
    follower.catch_up()
    assert follower.tables[T].content()[0] == ("id", "n", "what")
    assert findings(piped) == [found]
    piped.close()
