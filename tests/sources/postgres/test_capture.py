"""A live PostgreSQL into the journal: every committed transaction, once, whole, in the order of commits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer, postgres_server
from tests.sources.postgres import pgoutput
from tests.sources.postgres.processes import Process, place, wait_until_captured
from tests.sources.postgres.shop import Shop, generations, journaled
from truecut.core.capture import Mode
from truecut.journal.local import LocalJournal
from truecut.sources.postgres.capture import Capture, Pace
from truecut.sources.postgres.server import beat

SETTINGS = ("fsync=off", "wal_level=logical", "logical_decoding_work_mem=64kB", "max_prepared_transactions=5")


@pytest.fixture(scope="module", params=[18, 16])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


def capture(shop: Shop, folder: Path) -> None:
    """Until everything that is there is in the journal."""
    journal = LocalJournal(folder)
    try:
        Capture(shop.address, journal).run(lambda drained: drained)
    finally:
        journal.close()


def test_a_backlog_is_captured(server: PostgresServer, tmp_path: Path) -> None:
    """In several runs, compared with a second slot message for message."""
    shop = Shop(server, f"backlog{server.version}")
    rng = random.Random(7)
    capture(shop, tmp_path)
    for _ in range(3):
        shop.work(rng, 60)
        capture(shop, tmp_path)
    assert pgoutput.difference(journaled(tmp_path), shop.committed()) is None
    assert len(shop.committed()) > 20
    assert generations(tmp_path) == [1]


def test_live_changes_are_captured(server: PostgresServer, tmp_path: Path) -> None:
    """As a stream, large transactions while they run."""
    shop = Shop(server, f"live{server.version}")
    running = Process(shop, tmp_path)
    wait_until_captured(shop, tmp_path, running)
    rng = random.Random(3)
    for _ in range(4):
        shop.work(rng, 40)
        wait_until_captured(shop, tmp_path, running)
    running.stop()
    assert pgoutput.difference(journaled(tmp_path / "journal"), shop.committed()) is None
    assert generations(tmp_path / "journal") == [1]


def test_what_follows_a_heartbeat_at_once_is_captured(server: PostgresServer, tmp_path: Path) -> None:
    """The boundary: a heartbeat's place is where the next record of the log begins."""
    shop = Shop(server, f"beat{server.version}")
    capture(shop, tmp_path)
    for _ in range(3):
        _stream_a_heartbeat(shop, tmp_path)
        with shop.connect() as connection:
            connection.execute("SELECT pg_logical_emit_message(false, 'note', 'hello')")
        shop.flush()
        capture(shop, tmp_path)
    assert len(journaled(tmp_path)) == 3
    assert pgoutput.difference(journaled(tmp_path), shop.committed()) is None


def _stream_a_heartbeat(shop: Shop, folder: Path) -> None:
    """Written while it streams, confirmed, and then it ends."""
    journal = LocalJournal(folder)
    running = Capture(shop.address, journal, pace=Pace(look_s=600, wait_s=0.01))
    target: list[int] = []

    def stop(drained: bool) -> bool:
        if running.progress.mode is Mode.TAIL and not target:
            with shop.connect() as connection:
                beat(connection, shop.address)
                target.append(place(connection))
        return bool(target) and running.progress.durable >= target[0]

    running.run(stop)
    journal.close()


def test_prepared_transactions_come_when_they_commit(server: PostgresServer, tmp_path: Path) -> None:
    """In the order of their commits, across a run that saw only the preparation; rolled back ones never."""
    shop = Shop(server, f"prepared{server.version}")
    capture(shop, tmp_path)
    with shop.connect() as connection:
        for name in ("kept", "gone"):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO lines VALUES (%s, 'prepared')", (len(name) + ord(name[0]),))
            connection.execute(f"PREPARE TRANSACTION '{name}'")
        connection.execute("INSERT INTO lines VALUES (1, 'meanwhile')")
        capture(shop, tmp_path)
        connection.execute("COMMIT PREPARED 'kept'")
        connection.execute("ROLLBACK PREPARED 'gone'")
    capture(shop, tmp_path)
    assert len(journaled(tmp_path)) == 2
    assert pgoutput.difference(journaled(tmp_path), shop.committed()) is None
