"""The backfill of a run: units read by Spark, several tables at once, each with its own trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgres_server import PostgresServer, postgres_server
from tests.sources.postgres.busy import BIG, SETUP
from tests.sources.postgres.copying import SMALL, Copying, at_source_now, copying
from tests.sources.postgres.shop import Shop
from truecut.config.secret import Secret
from truecut.config.settings import JournalSettings, SourceSettings, TableSettings
from truecut.journal.reader import LocalReader
from truecut.model.table import TableName
from truecut.runtime.backfill import Backfill
from truecut.sources.postgres.address import PostgresSource, UnitPace
from truecut.sources.postgres.captured import CapturedLog
from truecut.sources.postgres.unit_state import Standing, standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS, BAG, BAD = (TableName("public", name) for name in ("items", "bag", "bad"))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def backfill_of(spark: SparkSession, copy: Copying) -> Backfill:
    shop = copy.shop
    settings = SourceSettings(
        "postgres",
        PostgresSource(Secret(shop.conninfo), shop.slot, "truecut", pace=UnitPace(2, 100_000)),
        "shop",
        JournalSettings(copy.folder / "journal", 1 << 30),
        tuple(TableSettings(name, (), None, False, "count", "backfill") for name in (ITEMS, BAG, BAD)),
        copy.folder / "units",
    )
    return Backfill(spark, settings, unit_bytes=SMALL)


def stands(copy: Copying, table: TableName) -> Standing:
    extent = CapturedLog(LocalReader(copy.folder / "journal")).extent()
    assert extent is not None
    return standing(copy.ledger, table, extent)


def test_tables_are_read_by_turns_each_with_its_own_trouble(
    server: PostgresServer, spark: SparkSession, tmp_path: Path
) -> None:
    """All units of two tables are read, though a third cannot be; that one says why, once, and is read again
    when it is mended. A table without a key whose snapshot is gone begins again. What is ready is exact."""
    shop = Shop(server, "turns")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute("CREATE TABLE bad (id int PRIMARY KEY, v numeric(5,2))")
        connection.execute("INSERT INTO bad VALUES (1, 'NaN')")
        connection.execute(
            f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 90) i"
        )
        connection.execute("INSERT INTO bag SELECT i / 2, 0, repeat('x', 300) FROM generate_series(1, 300) i")
        left = copy.begin("bag")
        left.share("00000000-00000000-1")  # of a run that was killed
        backfill = backfill_of(spark, copy)
        assert stands(copy, ITEMS).why == "it has not been read yet"
        turns = 0
        while backfill.turn([ITEMS, BAG, BAD]):
            turns += 1
            connection.execute("UPDATE items SET n = n + 1")
            connection.execute("UPDATE bag SET n = n + 1 WHERE id % 3 = 0")
        assert turns > 1
        assert backfill.faults()[BAD].code == "TC3050"
        assert stands(copy, BAD).why is None, "it is up to the seed to say it"
        with pytest.raises(AssertionError, match="TC3050"):
            copy.seeded("bad", (1 << 63) - 1)
        for table in ("items", "bag"):
            at, held = at_source_now(shop, [table])
            copy.wait_for(at)
            assert stands(copy, TableName("public", table)).why is None
            assert copy.seeded(table, at) == held[table]
        edition = copy.ledger.current(BAG)
        assert edition is not None
        assert edition.number == 2
        connection.execute("UPDATE bad SET v = 1")
        while backfill.turn([BAD]):
            pass
        assert stands(copy, BAD).rows == 1
        assert BAD not in backfill.faults()


def test_a_server_that_is_away_is_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    """Units that could not be read stay unread, and are read when it is back."""
    with postgres_server() as server:
        shop = Shop(server, "away")
        with copying(shop, tmp_path) as copy, shop.connect() as connection:
            connection.execute(SETUP)
            connection.execute("INSERT INTO items SELECT i, 0, '', '' FROM generate_series(1, 9) i")
            at, _ = at_source_now(shop, [])
            copy.wait_for(at)
        backfill = backfill_of(spark, copy)
        server.stop()
        assert not backfill.turn([ITEMS])
        assert backfill.faults()[ITEMS].code == "TC2100"
        server.start()
        assert backfill.turn([ITEMS])
        assert not backfill.faults()
        assert stands(copy, ITEMS).rows == 9
