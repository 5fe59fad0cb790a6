"""Every change can be read with the schema of its place, whatever the catalog says when it is captured."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres import pgoutput
from tests.sources.postgres.shop import Shop
from truecut.journal.local import LocalJournal
from truecut.journal.reader import LocalReader
from truecut.journal.record import Kind, Record
from truecut.model import change
from truecut.sources.postgres.capture import Capture
from truecut.sources.postgres.decode import decode
from truecut.sources.postgres.lineage import Place, Publication
from truecut.sources.postgres.relation import NUMBER_UNKNOWN, Relation
from truecut.sources.postgres.schemas import Catalog
from truecut.sources.postgres.server import connect
from truecut.sources.postgres.transactions import Announcement, Transactions
from truecut.sources.postgres.writer import Writer


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param) as running:
        yield running


def capture(shop: Shop, folder: Path) -> None:
    journal = LocalJournal(folder)
    Capture(shop.address, journal).run(lambda drained: drained)
    journal.close()


def schemas_of_changes(folder: Path) -> list[tuple[Record, list[dict[str, Any]]]]:
    """Each record of changes with the schemas that its head names, found since the marker before it."""
    known: dict[int, dict[str, Any]] = {}
    found = []
    for _, record in LocalReader(folder).read(after=None):
        if record.kind is Kind.MARKER:
            known = {}
        elif record.kind is Kind.SCHEMA:
            known[record.schemas[0]] = json.loads(record.payload)
        else:
            found.append((record, [known[one] for one in record.schemas]))
    return found


def test_schemas_are_of_their_place_in_the_log(server: PostgresServer, tmp_path: Path) -> None:
    """Columns that were renamed, retyped and dropped since, and a table that is gone."""
    shop = Shop(server, "schemas")
    capture(shop, tmp_path)
    with shop.connect() as connection:
        connection.execute("CREATE TABLE s (id int PRIMARY KEY, a numeric(5,2)[], b mood, c text, e box[])")
        connection.execute("INSERT INTO s VALUES (1, '{1.5}', 'sad', 'x')")
        connection.execute("ALTER TABLE s RENAME c TO d")
        connection.execute("INSERT INTO s VALUES (2, '{1.5}', 'sad', 'x')")
        connection.execute("ALTER TABLE s DROP COLUMN a")
        connection.execute("ALTER TABLE s ALTER id TYPE bigint")
        connection.execute("INSERT INTO s VALUES (3, 'sad', 'x')")
        connection.execute("DROP TABLE s")
    capture(shop, tmp_path)
    ((record, found),) = schemas_of_changes(tmp_path)
    columns = [[(c["name"], c["type_name"], c["dims"]) for c in one["columns"]] for one in found]
    boxes = ("e", "box[]", 1)
    assert columns == [
        [("id", "integer", 0), ("a", "numeric(5,2)[]", 1), ("b", "public.mood", 0), ("c", "text", 0), boxes],
        [("id", "integer", 0), ("a", "numeric(5,2)[]", 1), ("b", "public.mood", 0), ("d", "text", 0), boxes],
        [("id", "bigint", 0), ("b", "public.mood", 0), ("d", "text", 0), boxes],
    ]
    assert [one["key"] for one in found] == [["id"]] * 3
    assert [c["base_kind"] for c in found[0]["columns"]] == ["b", "b", "e", "b", "b"]
    assert [c["delimiter"] for c in found[0]["columns"]] == [",", ",", ",", ",", ";"]
    assert len([one for one in pgoutput.split(record.payload) if one[:1] == b"R"]) == 3


def test_the_schemas_of_a_change_stand_in_its_own_append(server: PostgresServer, tmp_path: Path) -> None:
    """Also of later ones: trimming the journal never takes a schema away from a change that needs it."""
    shop = Shop(server, "appends")
    capture(shop, tmp_path)
    for id in range(3):
        with shop.connect() as connection:
            connection.execute("INSERT INTO lines VALUES (%s, 'x')", (id,))
        capture(shop, tmp_path)
    found = schemas_of_changes(tmp_path)
    assert [[one["table"] for one in named] for _, named in found] == [["lines"]] * 3
    assert {c["name"]: c["nullable"] for c in found[0][1][0]["columns"]} == {"id": False, "note": True}


def test_the_key_is_that_of_its_place(server: PostgresServer, tmp_path: Path) -> None:
    """The primary key has become another one since: what a delete carries is the old one."""
    shop = Shop(server, "rekeyed")
    capture(shop, tmp_path)
    with shop.connect() as connection:
        connection.execute("CREATE TABLE k (id int CONSTRAINT pk PRIMARY KEY, code int NOT NULL, b int)")
        connection.execute("INSERT INTO k VALUES (1, 10), (2, 20)")
        connection.execute("UPDATE k SET id = 3 WHERE id = 1")
        connection.execute("ALTER TABLE k DROP CONSTRAINT pk, ADD PRIMARY KEY (code)")
        connection.execute("UPDATE k SET code = 30 WHERE code = 20")
        connection.execute("DELETE FROM k WHERE code = 10")
    capture(shop, tmp_path)
    ((record, found),) = schemas_of_changes(tmp_path)
    assert [one["key"] for one in found] == [["id"], ["code"]]
    relations = [Relation.of(one) for one in found]
    decoded = decode([record.payload], {relations[0].oid: relations})
    rows = [
        (table.relation.key, change.EVENT_NAMES[row[change.OP]], row[change.BEFORE], row[change.AFTER])
        for table in decoded.tables
        for row in table.rows.to_pylist()
    ]
    none = dict.fromkeys(("id", "code", "b"))
    assert rows == [
        (("id",), "insert", None, none | {"id": 1, "code": 10}),
        (("id",), "insert", None, none | {"id": 2, "code": 20}),
        (("id",), "delete", none | {"id": 1}, None),
        (("id",), "insert", None, none | {"id": 3, "code": 10}),
        (("code",), "delete", none | {"code": 20}, None),
        (("code",), "insert", None, none | {"id": 2, "code": 30}),
        (("code",), "delete", none | {"code": 10}, None),
    ]


def test_names_that_were_exchanged_since_have_no_numbers(server: PostgresServer, tmp_path: Path) -> None:
    """The catalog knows both names and types, of each other's columns."""
    shop = Shop(server, "exchanged")
    capture(shop, tmp_path)
    with shop.connect() as connection:
        connection.execute("CREATE TABLE x (id int PRIMARY KEY, a int, b int)")
        connection.execute("INSERT INTO x VALUES (1, 2, 3)")
        connection.execute("ALTER TABLE x RENAME a TO c")
        connection.execute("ALTER TABLE x RENAME b TO a")
        connection.execute("ALTER TABLE x RENAME c TO b")
        connection.execute("INSERT INTO x VALUES (2, 2, 3)")
    capture(shop, tmp_path)
    ((_, found),) = schemas_of_changes(tmp_path)
    numbers = [[(c["name"], c["number"]) for c in one["columns"]] for one in found]
    assert numbers == [
        [(name, NUMBER_UNKNOWN) for name in ("id", "a", "b")],
        [("id", 1), ("b", 2), ("a", 3)],
    ]


def test_what_was_announced_before_is_forgotten(server: PostgresServer, tmp_path: Path) -> None:
    """However often the server repeats itself, memory holds one description of each relation."""
    shop = Shop(server, "forgotten")
    place = Place(1, "s", 1, "shop", "cut", 1, Publication(1, "all"), 700)
    journal, connection = LocalJournal(tmp_path), connect(shop.address)
    catalog = Catalog(connection, shop.address)
    writer = Writer(journal, catalog, place, generation=1, check=lambda: None)
    transactions = Transactions(after=0)
    for lsn in range(10, 500, 10):
        row = [pgoutput.relation(1), pgoutput.insert(1, b"x")]
        for block in transactions.take([pgoutput.begin(7, lsn), *row, pgoutput.commit(lsn, lsn + 1)]):
            writer.take(block)
        writer.flush(replace(place, lsn=transactions.position))
    writer.settle()
    assert writer.durable == 491
    assert sum(isinstance(one, Announcement) for one in gc.get_objects()) <= 2
    journal.close()
    connection.close()
