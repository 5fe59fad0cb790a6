"""The backfill of a run: units read by Spark, several tables at once, each with its own trouble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.busy import BIG, SETUP
from tests.sources.postgres.copying import SMALL, Copying, at_source_now, copying
from tests.sources.postgres.shop import Shop
from truecut.config.secret import Secret
from truecut.config.settings import JournalSettings, SourceSettings, TableSettings
from truecut.errors import Fault, TruecutError
from truecut.journal.reader import LocalReader
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.runtime.backfill import Backfill
from truecut.sources.contract import Observation, TableFacts, TableRead
from truecut.sources.postgres.address import PostgresSource, UnitPace
from truecut.sources.postgres.captured import CapturedLog
from truecut.sources.postgres.server_units import ServerUnits
from truecut.sources.postgres.unit_state import Standing, standing
from truecut.sources.registry import survey_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS, BAG, BAD = (TableName("public", name) for name in ("items", "bag", "bad"))


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param) as running:
        yield running


def settings_of(shop: Shop, folder: Path) -> SourceSettings:
    return SourceSettings(
        "postgres",
        PostgresSource(Secret(shop.conninfo), shop.slot, "truecut", pace=UnitPace(2, 100_000)),
        "shop",
        JournalSettings(folder / "journal", 1 << 30),
        tuple(TableSettings(name, (), None, False, "count", "backfill") for name in (ITEMS, BAG, BAD)),
        folder / "units",
    )


def backfill_of(spark: SparkSession, copy: Copying) -> Backfill:
    settings = settings_of(copy.shop, copy.folder)
    return Backfill(spark, settings, units=ServerUnits(settings, unit_bytes=SMALL))


def stands(copy: Copying, table: TableName) -> Standing:
    log = CapturedLog(LocalReader(copy.folder / "journal"))
    extent = log.extent()
    assert extent is not None
    return standing(copy.ledger, table, log, extent)


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


def test_a_paused_table_is_read_no_further_and_one_asked_for_again_anew(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Of a table that is paused no further unit is read, also by a job that runs, and its standing says so;
    afterwards only those that are missing. Units that were read before somebody wanted the table again are of
    no use; those read since are."""
    shop = Shop(server, "paused")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute(
            f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 90) i"
        )
        edition = copy.begin("items")
        units = range(len(edition.plan.parts))
        assert len(units) > 3
        read = sum(copy.read(edition, unit) for unit in (0, 1))
        records = [path.read_text() for path in sorted(edition.folder.glob("0*.json"))]
        copy.ledger.pause(ITEMS, paused=True)
        assert [copy.read(edition, unit) for unit in units] == [0] * len(units)
        told = f"2 of its {len(units)} units were read, {read} rows of about {read * len(units) // 2}"
        assert stands(copy, ITEMS).why == f"{told}; it is paused"
        copy.ledger.pause(ITEMS, paused=False)
        assert sum(copy.read(edition, unit) for unit in units) == 90 - read
        assert [path.read_text() for path in sorted(edition.folder.glob("00000[01].*.json"))] == records
        at, held = at_source_now(shop, ["items"])
        copy.wait_for(at)
        assert (stands(copy, ITEMS).why, copy.seeded("items", at)) == (None, held["items"])

        copy.ledger.ask_again(ITEMS, 7)
        assert stands(copy, ITEMS).why == "it is read again: it was asked for"
        with pytest.raises(TruecutError, match="it was asked for"):
            copy.seeded("items", at)
        edition = copy.begin("items")
        assert (edition.number, stands(copy, ITEMS).unread) == (2, tuple(units))
        assert sum(copy.read(edition, unit) for unit in units) == 90
        connection.execute("UPDATE items SET n = n + 1")
        at, held = at_source_now(shop, ["items"])
        copy.wait_for(at)
        assert (stands(copy, ITEMS).why, copy.seeded("items", at)) == (None, held["items"])
        copy.ledger.ask_again(ITEMS, 7)
        copy.ledger.ask_again(ITEMS, 6)
        assert stands(copy, ITEMS).why is None
        copy.ledger.pause(ITEMS, paused=True)
        copy.ledger.remove()
        assert not (tmp_path / "units").exists()


def test_a_plan_says_in_how_many_units_a_table_would_be_read(server: PostgresServer, tmp_path: Path) -> None:
    """By its size. Rows that nobody has counted are not said to be none; those of a partitioned table are
    counted once."""
    shop = Shop(server, "facts")
    with copying(shop, tmp_path), shop.connect() as connection:
        connection.execute("CREATE TABLE many (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE few PARTITION OF many FOR VALUES FROM (0) TO (100)")
        connection.execute("CREATE TABLE rest PARTITION OF many FOR VALUES FROM (100) TO (1000)")
        connection.execute("INSERT INTO many SELECT i, i FROM generate_series(1, 500) i")
        survey = survey_source(settings_of(shop, tmp_path))
        seen = Observation("x", Position(1, 0), Position(1, 0), 0)
        asked = TableRead(TableName("public", "many"), ("id",), None)
        before = survey.facts(asked, seen)
        connection.execute("ANALYZE many")
        after = survey.facts(asked, seen)
    assert isinstance(before, TableFacts)
    assert isinstance(after, TableFacts)
    assert (before.rows, before.units, after.rows) == (None, 1, 500)
    assert before.size_bytes == after.size_bytes > 0


def test_a_table_that_may_not_be_read_is_said_before_a_run(server: PostgresServer, tmp_path: Path) -> None:
    """With the SQL that mends it; row security that would hide rows counts, too."""
    shop = Shop(server, "modest")
    with shop.connect() as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY); DROP ROLE IF EXISTS modest")
        connection.execute("CREATE ROLE modest LOGIN REPLICATION")
        connection.execute(
            "REVOKE USAGE ON SCHEMA public FROM public; GRANT USAGE ON SCHEMA public TO modest"
        )
        address = PostgresSource(
            Secret(shop.conninfo.replace("user=postgres", "user=modest")), "s", "truecut"
        )
        survey = survey_source(replace(settings_of(shop, tmp_path), address=address))
        seen = Observation("x", Position(1, 0), Position(1, 0), 0)
        asked = TableRead(ITEMS, ("id",), None)
        refused = survey.facts(asked, seen)
        assert isinstance(refused, Fault)
        assert refused.code == "TC2136"
        connection.execute(refused.fix.partition(";")[0].encode())
        assert isinstance(survey.facts(asked, seen), TableFacts)

        connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
        assert isinstance(survey.facts(asked, seen), Fault)
