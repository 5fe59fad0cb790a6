"""A table whose deletes do not tell its route: said before a run begins, and mended by what was said."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import Follower
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.errors import Fault
from truecut.model.table import TableName
from truecut.sources.contract import TableFacts, TableRead
from truecut.sources.registry import survey_source

ORDERS = TableName("public", "orders")
_numbers = itertools.count(1)


@pytest.fixture
def piped(postgres: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    conninfo = postgres.create_database(name := f"identity_{next(_numbers)}")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, tenant text)")
        connection.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    document = pipeline_document(name, conninfo, [{"name": str(ORDERS), "route_by": "tenant"}])
    document["spec"]["sinks"][0]["route"] = "a"
    made = Piped(tmp_path, conninfo, document)
    yield made
    made.close()


def test_before_anything_is_published_it_is_said(piped: Piped) -> None:
    """`doctor` and `plan` look at the table itself, where no publication has it yet: what a run would hold is
    not called fit. Nothing is made for that."""
    survey = survey_source(piped.pipeline().source)
    asked = TableRead(ORDERS, ("id",), "tenant")
    found = survey.facts(asked, survey.observe())
    assert isinstance(found, Fault)
    assert found.code == "TC2124"
    with piped.connect() as connection:
        assert connection.execute("SELECT FROM pg_publication").fetchall() == []
        connection.execute(found.fix.partition(";")[0].encode())
    assert isinstance(survey.facts(asked, survey.observe()), TableFacts)


def test_mended_while_nobody_writes_it_is_copied(piped: Piped) -> None:
    """REPLICA IDENTITY leaves no trace in the log before a row changes: what was read under the old one is
    of no use after its fault was told, and the next reading sees the new one."""
    follower = Follower(piped)
    while not follower.said:
        piped.capture()
        follower.bring(ORDERS)
    assert follower.said == ["TC2124"]
    with piped.connect() as connection:
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    follower.catch_up()
    assert follower.said == ["TC2124"]
    names, rows = follower.tables[ORDERS].content()
    assert (names, rows) == (("id", "tenant"), Counter([(1, "a"), (2, "b")]))
    with piped.connect() as connection:
        connection.execute("UPDATE orders SET tenant = 'b' WHERE id = 1; DELETE FROM orders WHERE id = 2")
    follower.catch_up()
    assert (follower.said, follower.tables[ORDERS].content()[1]) == (["TC2124"], Counter([(1, "b")]))
