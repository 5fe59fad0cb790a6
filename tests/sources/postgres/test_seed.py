"""Units that are read while their tables change, spliced with the log: the source at a place, row for row."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.busy import BIG, SETUP, Busy, busy
from tests.sources.postgres.copying import Copying, at_source, at_source_now, copying, shared_snapshot
from tests.sources.postgres.shop import Shop
from truecut.errors import Retry, TruecutError
from truecut.failpoint import BACKFILL, KILLED
from truecut.model.table import TableName
from truecut.sources.postgres.seed import UnitRows
from truecut.sources.postgres.unit_ledger import Edition
from truecut.sources.postgres.unit_read import digest_of

SETTINGS = ("fsync=off", "wal_level=logical", "logical_decoding_work_mem=64kB", "max_replication_slots=40")
FIRST = {"units_awaited": 0, "units_planned": 0}  # once for each edition, before any unit
_numbers = count(1)


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


def read_units(copy: Copying, life: Busy, tables: list[str]) -> None:
    """One after another, in any order, with steps between them: so snapshots differ, and some transactions
    began before one unit and committed behind the next."""
    with ExitStack() as stack:
        work = []
        for table in tables:
            edition = begun(copy, life, table)
            life.steps(5)
            shared = None
            if not edition.plan.by:
                shared = stack.enter_context(shared_snapshot(copy.shop.address, edition.plan))
            work += [(edition, unit, shared) for unit in range(len(edition.plan.parts))]
        assert len(work) > 8
        life.rng.shuffle(work)
        for edition, unit, shared in work:
            life.steps(12)
            copy.read(edition, unit, shared)


def begun(copy: Copying, life: Busy, table: str) -> Edition:
    """When those have ended who had written to it."""
    for _ in range(1000):
        try:
            return copy.begin(table)
        except TruecutError as error:
            if error.fault.code != "TC2151":
                raise
        life.steps(2)
    raise AssertionError("whoever wrote first has ended long ago")


def compare(copy: Copying, life: Busy, tables: list[str]) -> None:
    """At a slot's own place, where nothing runs; or in the middle of transactions, none of which commits."""
    if life.rng.random() < 0.5:
        life.settle()
        at, held = at_source(copy.shop, tables)
    else:
        at, held = at_source_now(copy.shop, tables)
    life.steps(8)  # what comes behind does not matter
    copy.wait_for(at)
    for table in tables:
        try:
            found = copy.seeded(table, at)
        except TruecutError as error:  # a large value moved between units: they are read again
            if error.fault.code != "TC2135":
                raise
            read_torn(copy, table)
            compare(copy, life, tables)
            return
        assert found == held[table], (table, found - held[table], held[table] - found)


def read_torn(copy: Copying, table: str) -> None:
    edition = copy.ledger.current(TableName("public", table))
    assert edition is not None
    for unit, record in enumerate(edition.records()):
        if record is None:
            copy.read(edition, unit)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_units_and_log_are_the_source_at_a_place(server: PostgresServer, tmp_path: Path, seed: int) -> None:
    """Overlapping transactions with savepoints, rollbacks, changed keys, large values and truncates, before,
    between and after the units: at several places the content is that of a plain SELECT there."""
    shop = Shop(server, f"seed{next(_numbers)}")
    tables = ["items", "pairs"]
    with copying(shop, tmp_path) as copy, busy(shop, seed) as life:
        life.steps(30)
        read_units(copy, life, tables)
        for _ in range(3):
            life.steps(25)
            compare(copy, life, tables)


def test_rows_without_a_key_are_counted(server: PostgresServer, tmp_path: Path) -> None:
    """Pages are read under one snapshot, and the log adds and takes away whole rows, of which there may be
    several alike. A truncate waits while the snapshot is held."""
    shop = Shop(server, f"seed{next(_numbers)}")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute("INSERT INTO bag SELECT i / 3, 0, repeat('x', 300) FROM generate_series(1, 900) i")
        edition = copy.begin("bag")
        assert len(edition.plan.parts) > 3
        with shared_snapshot(shop.address, edition.plan) as shared:
            for unit in range(len(edition.plan.parts)):
                connection.execute(f"UPDATE bag SET n = n + 1 WHERE id % 50 = {unit}")
                connection.execute("INSERT INTO bag SELECT 7, 7, 'alike' FROM generate_series(1, 2)")
                copy.read(edition, unit, shared)
            connection.execute("DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag WHERE id = 7 LIMIT 1)")
            connection.execute("DELETE FROM bag WHERE id = 11")
        agrees(copy, "bag")
        connection.execute("TRUNCATE bag")
        connection.execute("INSERT INTO bag VALUES (1, 1, NULL), (1, 1, NULL), (NULL, NULL, NULL)")
        agrees(copy, "bag")


def agrees(copy: Copying, table: str) -> None:
    at, held = at_source_now(copy.shop, [table])
    copy.wait_for(at)
    assert copy.seeded(table, at) == held[table]


def test_pages_under_several_snapshots_are_not_put_together(server: PostgresServer, tmp_path: Path) -> None:
    """A row that moves to another page would be there twice, or not at all: the edition is void."""
    shop = Shop(server, f"seed{next(_numbers)}")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute("INSERT INTO bag SELECT i, 0, repeat('x', 300) FROM generate_series(1, 300) i")
        edition = copy.begin("bag")
        for unit in range(len(edition.plan.parts)):
            connection.execute("INSERT INTO bag VALUES (0, 0, NULL)")
            copy.read(edition, unit)
        at, _ = at_source_now(shop, [])
        with pytest.raises(TruecutError, match="several snapshots"):
            copy.seeded("bag", at)
        assert copy.ledger.current(TableName("public", "bag")).void  # type: ignore[union-attr]


def test_a_value_that_moved_between_units_is_read_again(server: PostgresServer, tmp_path: Path) -> None:
    """A row moves to a unit that was read before, from one that is read after; its large value is not told.
    Nobody has it: that unit, and no other, is read again, and then the content is exact."""
    shop = Shop(server, f"seed{next(_numbers)}")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute(
            f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 90) i"
        )
        edition = copy.begin("items")
        last = len(edition.plan.parts) - 1
        for unit in range(last, -1, -1):
            if unit == 0:
                connection.execute("UPDATE items SET id = 5000 WHERE id = 1")
            copy.read(edition, unit)
        connection.execute("UPDATE items SET id = id + 6000 WHERE id IN (40, 41)")
        at, _ = at_source_now(shop, [])
        copy.wait_for(at)
        with pytest.raises(TruecutError, match="TC2135"):
            copy.seeded("items", at)
        assert [n for n, record in enumerate(edition.records()) if record is None] == [last]
        connection.execute("UPDATE items SET n = 3 WHERE id IN (5000, 6041)")
        copy.read(edition, last)
        agrees(copy, "items")


def test_only_what_was_not_read_is_read_again(server: PostgresServer, tmp_path: Path) -> None:
    """A unit with its record is left alone; one whose file is damaged or gone is read anew; a second reader
    of a unit leaves nothing behind; a new edition replaces the one before."""
    shop = Shop(server, f"seed{next(_numbers)}")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute(
            f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 60) i"
        )
        too_early, _ = at_source_now(shop, [])
        connection.execute("UPDATE items SET n = 1 WHERE id = 9")
        edition = copy.begin("items")
        units = range(len(edition.plan.parts))
        assert sum(copy.read(edition, unit) for unit in units) == 60
        with pytest.raises(TruecutError, match="later place"):
            copy.seeded("items", too_early)
        before = edition.records()
        assert sum(copy.read(edition, unit) for unit in units) == 0
        assert edition.records() == before
        assert before[1] is not None
        late = edition.new_file(1)
        late.touch()
        edition.finished(1, replace(before[1], file=late.name))
        assert not late.exists()
        path = edition.path(before[1])
        path.write_bytes(path.read_bytes()[:-9])
        at, _ = at_source_now(shop, [])
        copy.wait_for(at)
        with pytest.raises(TruecutError, match="TC2134"):
            copy.seeded("items", at)
        assert [copy.read(edition, unit) for unit in units][1] > 0
        agrees(copy, "items")
        following = copy.begin("items")
        assert following.number == edition.number + 1
        assert following.settled.lo >= edition.settled.lo
        for unit in range(len(following.plan.parts)):
            copy.read(following, unit)
        copy.ledger.forget_older(TableName("public", "items"), following)
        assert not edition.folder.exists()
        agrees(copy, "items")


def test_an_edition_that_is_forgotten_while_a_seed_reads_it(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has a unit's file open goes on with what it has; one that comes too late, at whatever step,
    is told so in words that let the seed be tried again, with the newest edition."""
    shop = Shop(server, f"seed{next(_numbers)}")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute(
            f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 60) i"
        )
        older = copy.begin("items")
        for unit in range(len(older.plan.parts)):
            copy.read(older, unit)
        at, held = at_source_now(shop, ["items"])
        copy.wait_for(at)
        reading, late = (
            next(task for task in copy.window("items", at).tasks if isinstance(task, UnitRows)).read()
            for _ in range(2)
        )
        first = next(reading)
        newer = copy.begin("items")

        def forgotten(path: Path) -> str:
            """Between the look whether the file is there and the reading of it."""
            copy.ledger.forget_older(TableName("public", "items"), newer)
            return digest_of(path)

        monkeypatch.setattr("truecut.sources.postgres.seed.digest_of", forgotten)
        with pytest.raises(TruecutError, match="TC2134") as told:
            next(late)
        assert told.value.fault.retry is Retry.RETRYABLE
        assert first.batch.num_rows
        with pytest.raises(TruecutError, match="TC2134"):
            list(reading)
        older.make_void("nobody reads it any more")
        monkeypatch.undo()
        for unit in range(len(newer.plan.parts)):
            copy.read(newer, unit)
        at, held = at_source_now(shop, ["items"])
        copy.wait_for(at)
        assert copy.seeded("items", at) == held["items"]


def test_other_columns_make_another_edition(server: PostgresServer, tmp_path: Path) -> None:
    """Rows of two shapes are not put together, whether a unit or the log shows the other one."""
    shop = Shop(server, f"seed{next(_numbers)}")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute(
            f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 60) i"
        )
        edition = copy.begin("items")
        copy.read(edition, 0)
        connection.execute("ALTER TABLE items ADD more int DEFAULT 5")
        with pytest.raises(TruecutError, match="TC2130"):
            copy.read(edition, 1)
        assert edition.void
        edition = copy.begin("items")
        for unit in range(len(edition.plan.parts)):
            copy.read(edition, unit)
        agrees(copy, "items")
        connection.execute("ALTER TABLE items DROP more")
        connection.execute("UPDATE items SET n = 1")
        at, _ = at_source_now(shop, [])
        copy.wait_for(at)
        with pytest.raises(TruecutError, match="TC2130"):
            copy.seeded("items", at)


@pytest.mark.parametrize("point", sorted(BACKFILL))
def test_killed_at_every_durable_step(server: PostgresServer, tmp_path: Path, point: str) -> None:
    """What has its record stays as it is, everything else is read again, and the content is exact."""
    shop = Shop(server, f"seed{next(_numbers)}")
    with copying(shop, tmp_path) as copy, shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute(
            f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 60) i"
        )
        assert reading(shop, tmp_path, TRUECUT_FAILPOINT=f"{point}:{1 if point in FIRST else 2}") == KILLED
        before = {path: path.read_text() for path in (tmp_path / "units").rglob("0*.json")}
        assert len(before) == {**FIRST, "unit_opened": 1, "unit_written": 1, "unit_recorded": 2}[point]
        connection.execute("UPDATE items SET n = n + 1")
        assert reading(shop, tmp_path) == 0
        assert {path: path.read_text() for path in before} == before
        agrees(copy, "items")


def reading(shop: Shop, folder: Path, **environment: str) -> int:
    """Units read by a process of its own: how it ended."""
    command = [sys.executable, "-m", "tests.sources.postgres.copying", shop.conninfo, shop.slot, str(folder)]
    return subprocess.run(
        command, env={**os.environ, **environment}, timeout=PATIENCE_S, check=False
    ).returncode


def test_a_unit_sees_nothing_that_a_crash_takes_back(tmp_path: Path) -> None:
    """Commits that are not waited for (`synchronous_commit = off`) are seen before they are on disk. A unit
    that has seen one counts only when it is: whatever the server has lost, no unit holds it."""
    settings = (*SETTINGS[1:], "synchronous_commit=off", "wal_writer_delay=3s")
    with postgres_server(settings=settings) as server:
        shop = Shop(server, "crashes")
        with copying(shop, tmp_path) as copy, shop.connect() as connection:
            connection.execute(SETUP)
            connection.execute("INSERT INTO items SELECT i, 0, '', '' FROM generate_series(1, 60) i")
            shop.flush()
            edition = copy.begin("items")
        with shop.connect() as connection:
            connection.execute("UPDATE items SET n = 1 WHERE id < 9")
            for unit in range(len(edition.plan.parts)):
                copy.read(edition, unit)
            connection.execute("UPDATE items SET n = 2 WHERE id > 50")  # whether this one is lost or not
            server.stop()
        server.start()
        with copying(shop, tmp_path) as copy, shop.connect() as connection:
            connection.execute("UPDATE items SET note = 'later' WHERE id % 7 = 0")
            shop.flush()
            agrees(copy, "items")
