"""Captures and servers that are killed or stopped at any step: the journal has every transaction, once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres import pgoutput
from tests.sources.postgres.capturing import LEASE_MS
from tests.sources.postgres.processes import Process, wait_until_captured
from tests.sources.postgres.shop import Shop, generations, journaled
from truecut.failpoint import CAPTURE, KILLED

SETTINGS = ("fsync=off", "wal_level=logical", "logical_decoding_work_mem=64kB")
JOURNAL = ("journal_written", "journal_synced", "journal_published")
AT_THE_START = ("capture_publication_made", "capture_slot_made", "capture_begun")


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


def judge(shop: Shop, folder: Path) -> None:
    found = journaled(folder / "journal")
    assert pgoutput.difference(found, shop.committed()) is None
    assert len(found) > 10


def test_killed_at_every_step_of_a_beginning(server: PostgresServer, tmp_path: Path) -> None:
    """Whatever was made is found by the next one; nothing that comes afterwards is missing."""
    shop = Shop(server, "beginning", publication=False)
    for point in AT_THE_START:
        assert Process(shop, tmp_path, "drain", TRUECUT_FAILPOINT=point).end() == KILLED
    assert Process(shop, tmp_path, "drain").end() == 0
    shop.witness_now()
    shop.work(random.Random(1), 60)
    assert Process(shop, tmp_path, "drain").end() == 0
    judge(shop, tmp_path)


def test_killed_at_every_step_of_a_backlog(server: PostgresServer, tmp_path: Path) -> None:
    """Also in the middle of a large transaction; also twice at the same step."""
    shop = Shop(server, "backlogkills")
    rng = random.Random(5)
    assert Process(shop, tmp_path, "drain").end() == 0
    for point in (*sorted(CAPTURE - set(AT_THE_START)), *JOURNAL, "capture_part_appended:3"):
        shop.work(rng, 40, large_rows=1500)
        assert Process(shop, tmp_path, "drain", TRUECUT_FAILPOINT=point).end() == KILLED
    assert Process(shop, tmp_path, "drain").end() == 0
    judge(shop, tmp_path)
    assert generations(tmp_path / "journal") == [1]


def test_killed_while_it_streams(server: PostgresServer, tmp_path: Path) -> None:
    """At each step, under load, and by a signal at no step at all."""
    shop = Shop(server, "streamkills")
    rng = random.Random(6)
    armed = tmp_path / "armed"
    armed.mkdir()
    for point in ("capture_read", "capture_appended", "capture_part_appended", None):
        running = Process(shop, tmp_path, TRUECUT_FAILPOINT=f"@{armed}")
        wait_until_captured(shop, tmp_path, running)
        if point is not None:
            (armed / point).touch()
        shop.work(rng, 40, large_rows=1500)
        if point is None:
            running.process.kill()
        assert running.end() == (KILLED if point else -signal.SIGKILL)
    assert Process(shop, tmp_path, "drain").end() == 0
    judge(shop, tmp_path)
    assert generations(tmp_path / "journal") == [1]


def test_the_server_crashes_while_it_streams(server: PostgresServer, tmp_path: Path) -> None:
    """Crash recovery puts the slot back; what the journal has by then is not taken again."""
    shop = Shop(server, "crashes")
    rng = random.Random(8)
    running = Process(shop, tmp_path)
    wait_until_captured(shop, tmp_path, running)
    for _ in range(3):
        shop.work(rng, 30)
        _crash(shop)
        shop.work(rng, 30)
        wait_until_captured(shop, tmp_path, running)
    running.stop()
    judge(shop, tmp_path)
    assert generations(tmp_path / "journal") == [1]


def _crash(shop: Shop) -> None:
    """kill -9 of one of its processes makes the server start all of them again, after recovery."""
    with shop.connect() as other, shop.connect() as victim:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        # The other sessions are ended once the server has noticed: until then it still lets people in.
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT pg_sleep(%s)", (PATIENCE_S,))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            shop.connect().close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def test_a_stopped_capture_that_wakes_up_does_nothing(server: PostgresServer, tmp_path: Path) -> None:
    """SIGSTOP, another takes over, SIGCONT: the first appends nothing, and leaves the slot alone."""
    shop = Shop(server, "asleep")
    rng = random.Random(9)
    first = Process(shop, tmp_path)
    wait_until_captured(shop, tmp_path, first)
    shop.work(rng, 30)
    first.process.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_MS / 1000)
    second = Process(shop, tmp_path)
    shop.work(rng, 30)
    wait_until_captured(shop, tmp_path, second)
    first.process.send_signal(signal.SIGCONT)
    shop.work(rng, 30)
    wait_until_captured(shop, tmp_path, second)
    first.wait_until_it_says("capture begins again")
    shop.work(rng, 30)
    wait_until_captured(shop, tmp_path, second)
    second.stop()
    first.stop()
    assert "begins again" not in second.said.read_text()
    judge(shop, tmp_path)
    assert generations(tmp_path / "journal") == [1]
