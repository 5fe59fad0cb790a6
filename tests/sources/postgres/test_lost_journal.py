"""Units belong to the log that they were read along: a journal that was lost, or put back to an earlier
state, is another one, and what was read along the old one is read again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.busy import SETUP
from tests.sources.postgres.copying import Copying, at_source_now, copying
from tests.sources.postgres.shop import Shop
from truecut.errors import TruecutError
from truecut.journal.local import LocalJournal
from truecut.journal.opening import open_reader
from truecut.model.table import TableName
from truecut.sources.postgres import server as at_server
from truecut.sources.postgres.capture import Capture, Pace
from truecut.sources.postgres.captured import CapturedLog, Extent
from truecut.sources.postgres.unit_state import standing

ITEMS = TableName("public", "items")
SETTINGS = ("fsync=off", "wal_level=logical", "max_replication_slots=20")
FILL = "INSERT INTO items SELECT i, 0, '', '' FROM generate_series(1, 400) i"
_numbers = count(1)


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


def filled(server: PostgresServer) -> Shop:
    shop = Shop(server, f"lost{next(_numbers)}")
    with shop.connect() as connection:
        connection.execute(SETUP)
        connection.execute(FILL)
    return shop


def execute(shop: Shop, statement: str) -> None:
    with shop.connect() as connection:
        connection.execute(statement.encode())
    shop.flush()


def read_all(copy: Copying) -> None:
    edition = copy.begin("items")
    for unit in range(len(edition.plan.parts)):
        copy.read(edition, unit)


def extent_of(copy: Copying) -> tuple[CapturedLog, Extent]:
    log = CapturedLog(open_reader(copy.journal))
    extent = log.extent()
    assert extent is not None
    return log, extent


def is_read_again(copy: Copying, why: str) -> None:
    """What is there is refused, by whoever looks and by whoever would seed; read again, it is exact."""
    log, extent = extent_of(copy)
    found = standing(copy.ledger, ITEMS, log, extent)
    assert found.edition is None
    assert why in str(found.why)
    at, held = at_source_now(copy.shop, ["items"])
    copy.wait_for(at)
    with pytest.raises(TruecutError, match=why):
        copy.seeded("items", at)
    read_all(copy)
    at, held = at_source_now(copy.shop, ["items"])
    copy.wait_for(at)
    assert copy.seeded("items", at) == held["items"]


def capture(copy: Copying, **pace: int) -> None:
    """What has committed by now."""
    journal = LocalJournal(copy.folder / "journal", take_over=True)
    try:
        Capture(copy.shop.address, journal, pace=Pace(**pace)).run(lambda drained: drained)
    finally:
        journal.close()


def test_a_new_journal_does_not_take_the_units_of_the_lost_one(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Its generations begin anew, and so do its records' numbers; what was captured and released in between
    is in neither."""
    shop = filled(server)
    with copying(shop, tmp_path) as copy:
        read_all(copy)
        execute(shop, "UPDATE items SET n = 1 WHERE id % 2 = 0")
        copy.wait_for(at_source_now(shop, [])[0])
    shutil.rmtree(tmp_path / "journal")
    with copying(shop, tmp_path) as copy:
        execute(shop, "UPDATE items SET note = 'later' WHERE id < 9")
        is_read_again(copy, "another log")


def test_two_journals_that_begin_at_one_place_are_two(server: PostgresServer, tmp_path: Path) -> None:
    """Of one slot, at the very same place of its log, in the same generation."""
    shop = filled(server)
    found = []
    for name in ("one", "other"):
        copy = Copying(shop, tmp_path / name)
        journal = LocalJournal(copy.folder / "journal")
        Capture(shop.address, journal).run(lambda drained: True)  # nothing but where it begins
        journal.close()
        found.append(extent_of(copy)[1])
    one, other = found
    assert (one.generation, one.first.lsn) == (other.generation, other.first.lsn)
    assert one.identity != other.identity


def test_whom_the_lost_journal_waited_for_is_asked_anew(server: PostgresServer, tmp_path: Path) -> None:
    """Who had written to a table before it was published is known of one log only."""
    shop = filled(server)
    ledger = Copying(shop, tmp_path).ledger
    ledger.await_first(ITEMS, frozenset({7}), log="one/1", oid=5)
    assert ledger.awaited(ITEMS, log="one/1", oid=5) == frozenset({7})
    assert ledger.awaited(ITEMS, log="other/1", oid=5) is None


def test_a_journal_put_back_to_an_earlier_state_does_not_take_later_units(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot has not been released since, so the log goes on, and is the same one: but its records have
    other numbers now, and a unit's changes would be looked for behind where they are."""
    shop = filled(server)
    copy = Copying(shop, tmp_path)
    capture(copy)
    monkeypatch.setattr(at_server, "advance", lambda *_: None)
    shutil.copytree(tmp_path / "journal", tmp_path / "backup")
    for n in range(30):
        execute(shop, f"INSERT INTO lines VALUES ({n}, 'x')")
        if n % 10 == 0:
            capture(copy)
    capture(copy, append_bytes=1)  # each transaction an append of its own
    read_all(copy)
    for n in range(8):
        execute(shop, f"UPDATE items SET n = 2 WHERE id % 8 = {n}")
    shutil.rmtree(tmp_path / "journal")
    (tmp_path / "backup").rename(tmp_path / "journal")
    before = extent_of(copy)[1].identity
    capture(copy)  # all of it in a few appends
    execute(shop, "UPDATE items SET note = 'later' WHERE id < 9")
    capture(copy, append_bytes=1)
    assert extent_of(copy)[1].identity == before
    monkeypatch.undo()
    with copying(shop, tmp_path) as copy:
        execute(shop, "DELETE FROM items WHERE id = 7")
        copy.wait_for(at_source_now(shop, [])[0])  # its capture has begun, and ends no session any more
        is_read_again(copy, "put back to an earlier state")


def test_units_put_back_to_an_earlier_state_are_spliced_with_their_log(
    server: PostgresServer, tmp_path: Path
) -> None:
    """An older edition of the same log is as good as the newest: the log has everything since."""
    shop = filled(server)
    with copying(shop, tmp_path) as copy:
        read_all(copy)
        shutil.copytree(tmp_path / "units", tmp_path / "backup")
        execute(shop, "UPDATE items SET n = 1 WHERE id % 2 = 0")
        read_all(copy)
        shutil.rmtree(tmp_path / "units")
        (tmp_path / "backup").rename(tmp_path / "units")
        execute(shop, "DELETE FROM items WHERE id % 3 = 0")
        at, held = at_source_now(shop, ["items"])
        copy.wait_for(at)
        assert copy.seeded("items", at) == held["items"]
