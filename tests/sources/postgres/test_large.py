"""A transaction of any size, in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres import pgoutput
from tests.sources.postgres.processes import Process, wait_until_captured
from tests.sources.postgres.shop import Shop, journaled
from truecut.journal.reader import LocalReader

SIZE = 40_000 * 2048


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param) as running:
        yield running


@pytest.mark.parametrize("way", ["drain", "stream"])
def test_a_large_transaction_stays_out_of_memory(server: PostgresServer, tmp_path: Path, way: str) -> None:
    """It waits for its commit on disk, and goes to the journal in parts; as a backlog and while it runs."""
    shop = Shop(server, f"large_{way}")
    first = Process(shop, tmp_path, "drain", SIZES="usual")
    small = first.peak_bytes()
    running = Process(shop, tmp_path, SIZES="usual") if way == "stream" else None
    if running is not None:
        wait_until_captured(shop, tmp_path, running)
    with shop.connect() as connection:
        connection.execute(
            "INSERT INTO lines SELECT i, repeat(md5(i::text), 64) FROM generate_series(1, 40000) i"
        )
    if running is None:
        running = Process(shop, tmp_path, "drain", SIZES="usual")
    else:
        wait_until_captured(shop, tmp_path, running)
        (tmp_path / "stop").touch()
    assert running.peak_bytes() - small < SIZE // 2
    assert pgoutput.difference(journaled(tmp_path / "journal"), shop.committed()) is None
    assert LocalReader(tmp_path / "journal").size() > SIZE
