"""The source forgets nothing that the journal may lose, and nothing is done without the lease."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres import pgoutput
from tests.sources.postgres.processes import place
from tests.sources.postgres.shop import Shop, journaled
from truecut.config.secret import Secret
from truecut.core.capture import Mode, WalBudget
from truecut.errors import TruecutError
from truecut.journal.local import LocalJournal
from truecut.journal.record import Record
from truecut.model.position import Position
from truecut.runtime.capture_lease import lease_lost
from truecut.sources.postgres import backlog
from truecut.sources.postgres.capture import Capture, Pace
from truecut.sources.postgres.journaled import ending, marker
from truecut.sources.postgres.lineage import Place, Publication
from truecut.sources.postgres.schemas import Catalog
from truecut.sources.postgres.server import Address, Connection, connect
from truecut.sources.postgres.tail import Tail
from truecut.sources.postgres.writer import Writer


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(
        version=request.param, settings=("fsync=off", "wal_level=logical", "max_replication_slots=30")
    ) as running:
        yield running


def begun(server: PostgresServer, name: str, folder: Path) -> Shop:
    """A shop whose journal has begun, with a change that is not in it."""
    shop = Shop(server, name)
    journal = LocalJournal(folder)
    Capture(shop.address, journal).run(lambda drained: drained)
    journal.close()
    insert(shop, 1)
    return shop


def insert(shop: Shop, id: int) -> int:
    """Returns where the log ended before it."""
    with shop.connect() as connection:
        before = place(connection)
        connection.execute("INSERT INTO lines VALUES (%s, 'x')", (id,))
        return before


def confirmed(shop: Shop) -> int:
    """What the slot has been told."""
    with shop.connect() as connection:
        query = "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s"
        row = connection.execute(query, (shop.slot,)).fetchone()
        assert row is not None
        return int(row[0])


def test_without_the_lease_nothing_is_appended(server: PostgresServer, tmp_path: Path) -> None:
    """It is asked before every append."""
    shop = begun(server, "no_append", tmp_path)
    journal = LocalJournal(tmp_path)
    head, before = journal.head(), confirmed(shop)
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > 1:  # when it began it still had the lease
            raise lease_lost()

    with pytest.raises(TruecutError, match="lease"):
        Capture(shop.address, journal, check=check).run(lambda drained: drained)
    assert journal.head() == head
    assert confirmed(shop) == before
    journal.close()


def test_without_the_lease_nobody_s_session_is_ended(server: PostgresServer, tmp_path: Path) -> None:
    """Who slept between getting the lease and beginning leaves its successor alone."""
    shop = begun(server, "no_ending", tmp_path)
    journal = LocalJournal(tmp_path)

    def check() -> None:
        raise lease_lost()

    with connect(shop.address) as successor:
        with pytest.raises(TruecutError, match="lease"):
            Capture(shop.address, journal, check=check).run(lambda drained: drained)
        assert successor.execute("SELECT 1").fetchone() == (1,)
    journal.close()


def test_without_the_lease_the_slot_is_not_given_up(server: PostgresServer, tmp_path: Path) -> None:
    """It is asked once more when the slot is free."""
    shop = begun(server, "no_giving_up", tmp_path)
    journal = LocalJournal(tmp_path)
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > 1:
            raise lease_lost()

    budget = WalBudget(bytes_max=0, give_up=True)
    with pytest.raises(TruecutError, match="lease"):
        Capture(shop.address, journal, check=check, budget=budget).run(lambda drained: False)
    journal.close()
    assert confirmed(shop)


def test_without_the_lease_nothing_is_released(server: PostgresServer, tmp_path: Path) -> None:
    """It is asked again when the journal has answered: somebody else may have another journal's end."""
    shop = begun(server, "no_release", tmp_path)
    journal = LocalJournal(tmp_path)
    head, before = journal.head(), confirmed(shop)

    def check() -> None:
        if journal.head() != head:
            raise lease_lost()

    with pytest.raises(TruecutError, match="lease"):
        Capture(shop.address, journal, check=check).run(lambda drained: drained)
    assert journal.head() != head
    assert confirmed(shop) == before
    journal.close()


def test_nothing_is_appended_behind_what_somebody_else_has_appended(tmp_path: Path) -> None:
    """C2: an append names what it must stand behind; the journal refuses it where it ends otherwise."""
    journal = LocalJournal(tmp_path)
    place_ = Place(100, "s", 1, "shop", "cut", 1, Publication(5, "all"), 700)
    catalog = Catalog(cast(Connection, None), Address(Secret(""), "cut", "truecut"))
    writer = Writer(journal, catalog, place_, generation=1, check=lambda: None)
    writer.flush(replace(place_, lsn=200))
    writer.settle()
    journal.submit([marker(replace(place_, lsn=300), generation=1)]).result()
    with pytest.raises(TruecutError, match="TC6008"):
        writer.flush(replace(place_, lsn=400))
    assert ending(journal).place == replace(place_, lsn=300)
    journal.close()


class Slow(LocalJournal):
    """Does not answer while `waits`."""

    waits = False

    def submit(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Future[Position]:
        self.asked = super().submit(records, expected_last=expected_last)
        if not self.waits:
            return self.asked
        self.answer: Future[Position] = Future()
        return self.answer

    def go_on(self) -> None:
        self.waits = False
        self.answer.set_result(self.asked.result())


def test_a_stream_confirms_only_what_the_journal_has_answered(server: PostgresServer, tmp_path: Path) -> None:
    """What is under way is not durable, however often the server asks."""
    shop = begun(server, "confirmed", tmp_path)
    journal = Slow(tmp_path)
    running = Capture(shop.address, journal, pace=Pace(look_s=600, wait_s=0.01))
    before: list[int] = []
    told: list[int] = []

    def stop(drained: bool) -> bool:
        if running.progress.mode is not Mode.TAIL:
            return False
        if not before:
            journal.waits = True
            before.append(insert(shop, 2))
        elif hasattr(journal, "answer") and journal.waits:
            told.append(confirmed(shop))
            if len(told) == 30:
                journal.go_on()
        return not journal.waits and running.progress.durable > before[0]

    running.run(stop)
    journal.close()
    assert max(told) <= before[0]


class Sent:
    """A connection that keeps what it is given to send."""

    def __init__(self) -> None:
        self.statuses: list[bytes] = []

    def put_copy_data(self, data: bytes) -> int:
        self.statuses.append(data)
        return 1

    def flush(self) -> int:
        return 0


def test_a_server_that_asks_is_told_what_was_durable_before() -> None:
    """Its question names how far it has sent, which is not what we have."""
    tail, sent = object.__new__(Tail), Sent()
    vars(tail).update(_pg=sent, _server=0, _told=100, _told_s=0.0)
    assert tail._keepalive(memoryview(struct.pack(">cQqB", b"k", 500, 0, 1))) == 500
    assert tail._keepalive(memoryview(struct.pack(">cQqB", b"k", 600, 0, 0))) == 600
    assert [struct.unpack(">cQQQqB", one)[1:4] for one in sent.statuses] == [(100, 100, 100)]


@pytest.mark.parametrize(("messages_max", "log_bytes_max"), [(4, 1 << 30), (7, 1 << 30), (10**6, 700)])
def test_a_gulp_that_is_cut_short_releases_no_more_than_it_had(
    server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages_max: int,
    log_bytes_max: int,
) -> None:
    """By its messages, also where their number is met exactly, or by bytes of the log."""
    shop = begun(server, f"cut_short_{messages_max}", tmp_path)
    for id in range(2, 12):
        insert(shop, id)
    monkeypatch.setattr(backlog, "MESSAGES_MAX", messages_max)
    monkeypatch.setattr(backlog, "LOG_BYTES_MAX", log_bytes_max)
    journal = LocalJournal(tmp_path)
    Capture(shop.address, journal).run(lambda drained: drained)
    journal.close()
    assert pgoutput.difference(journaled(tmp_path), shop.committed()) is None
    assert len(journaled(tmp_path)) == 11
