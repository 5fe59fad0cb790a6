"""Tables that join a publication while somebody writes to them: nothing that was written before is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import PostgresServer, postgres_server
from tests.sources.postgres.copying import Copying, at_source_now, copying
from tests.sources.postgres.shop import Shop
from truecut.errors import TruecutError
from truecut.model.table import TableName
from truecut.sources.postgres.unit_ledger import Edition

ITEMS = TableName("public", "items")
SETTINGS = ("fsync=off", "wal_level=logical", "max_prepared_transactions=4", "max_replication_slots=40")
_numbers = count(1)
MAKE = "CREATE TABLE items (id bigint PRIMARY KEY, n int, big text, note text)"
FILL = "INSERT INTO items SELECT i, 0, '', '' FROM generate_series(1, 9) i"


@pytest.fixture(scope="module", params=[18, 16])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


def joined_late(server: PostgresServer) -> Shop:
    """A publication of one table, which is not `items`."""
    shop = Shop(server, f"late{next(_numbers)}", publication=False)
    with shop.connect() as connection:
        connection.execute("CREATE PUBLICATION truecut FOR TABLE orders")
    return shop


def copied(copy: Copying) -> Edition:
    edition = copy.begin("items")
    for unit in range(len(edition.plan.parts)):
        copy.read(edition, unit)
    return edition


def copied_if_allowed(copy: Copying) -> Edition | None:
    try:
        return copied(copy)
    except TruecutError as error:
        if error.fault.code != "TC2151":
            raise
        return None


def agrees(copy: Copying) -> None:
    at, held = at_source_now(copy.shop, ["items"])
    copy.wait_for(at)
    assert copy.seeded("items", at) == held["items"]


def added(connection: psycopg.Connection[object]) -> None:
    connection.execute("ALTER PUBLICATION truecut ADD TABLE items")


def set_as_published(connection: psycopg.Connection[object]) -> None:
    """By another schema, of which all tables are published."""
    connection.execute("ALTER PUBLICATION truecut ADD TABLES IN SCHEMA public")


@pytest.mark.parametrize("join", [added, set_as_published])
def test_who_had_written_is_waited_for(
    server: PostgresServer, tmp_path: Path, join: Callable[[psycopg.Connection[object]], None]
) -> None:
    """A transaction writes, the table joins the publication, the transaction writes on and commits after the
    copy was asked for: of it the log has the second half only. The copy waits for its end, says so, and then
    holds all of it; it does not wait for those who began meanwhile."""
    shop = joined_late(server)
    with (
        copying(shop, tmp_path) as copy,
        shop.connect() as connection,
        psycopg.connect(shop.conninfo) as writer,
        psycopg.connect(shop.conninfo) as later,
    ):
        connection.execute(MAKE)
        connection.execute(FILL)
        writer.execute("INSERT INTO items VALUES (100, 1, 'before', '')")
        writer.execute("UPDATE items SET n = 7 WHERE id = 3")
        join(connection)
        early = copied_if_allowed(copy)
        later.execute("INSERT INTO items VALUES (200, 1, 'behind', '')")
        writer.execute("INSERT INTO items VALUES (101, 1, 'after', '')")
        early = early or copied_if_allowed(copy)
        writer.commit()
        if early is None:
            copied(copy)
        agrees(copy)
        assert early is None, "it has waited"
        later.commit()
        agrees(copy)


def test_who_is_prepared_has_not_ended(server: PostgresServer, tmp_path: Path) -> None:
    """Neither has one that waits for the second phase of its commit, of whatever session."""
    shop = joined_late(server)
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(MAKE)
        connection.execute("BEGIN")
        connection.execute("INSERT INTO items VALUES (100, 1, 'before', '')")
        connection.execute("PREPARE TRANSACTION 'later'")
        try:
            added(connection)
            with pytest.raises(TruecutError, match="TC2151"):
                copied(copy)
        finally:
            connection.execute("COMMIT PREPARED 'later'")
        copied(copy)
        agrees(copy)


def test_readers_and_writers_of_other_tables_are_not_waited_for(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Long transactions are common; only those that wrote to the table count."""
    shop = joined_late(server)
    with (
        copying(shop, tmp_path) as copy,
        shop.connect() as connection,
        psycopg.connect(shop.conninfo) as other,
        psycopg.connect(shop.conninfo) as reader,
    ):
        connection.execute(MAKE)
        connection.execute(FILL)
        other.execute("INSERT INTO orders VALUES (1, 'x', 1, 'sad')")
        reader.execute("SELECT FROM items FOR UPDATE")
        added(connection)
        copied(copy)
        agrees(copy)


def test_writers_of_a_partition_are_those_of_its_root(server: PostgresServer, tmp_path: Path) -> None:
    """Whoever writes to a partition by its own name locks that alone."""
    shop = joined_late(server)
    with shop.connect() as connection:
        connection.execute("ALTER PUBLICATION truecut SET (publish_via_partition_root)")
    with (
        copying(shop, tmp_path) as copy,
        shop.connect() as connection,
        psycopg.connect(shop.conninfo) as writer,
    ):
        connection.execute(f"{MAKE} PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (1000)")
        writer.execute("INSERT INTO low VALUES (100, 1, 'before', '')")
        added(connection)
        with pytest.raises(TruecutError, match="TC2151"):
            copied(copy)
        writer.commit()
        copied(copy)
        agrees(copy)


def test_a_table_of_the_same_name_is_looked_at_anew(server: PostgresServer, tmp_path: Path) -> None:
    """Who is waited for is of one table and one log: after another took its name they are others."""
    shop = joined_late(server)
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(MAKE)
        with psycopg.connect(shop.conninfo) as writer:
            writer.execute("INSERT INTO items VALUES (1, 1, 'gone', '')")
            added(connection)
            with pytest.raises(TruecutError, match="TC2151"):
                copied(copy)
            writer.rollback()
        assert copy.ledger.is_awaiting(ITEMS)
        connection.execute("ALTER TABLE items RENAME TO old_items")
        connection.execute(MAKE)
        with psycopg.connect(shop.conninfo) as writer:
            writer.execute("INSERT INTO items VALUES (2, 1, 'new', '')")
            added(connection)
            with pytest.raises(TruecutError, match="TC2151"):
                copied(copy)
            writer.commit()
        copied(copy)
        agrees(copy)
