"""What a server keeps for us, and for how long, as `status` tells it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from tests.patience import PATIENCE_S
from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.cli.status import command
from truecut.runtime.capture_start import capture
from truecut.sources.postgres import capture as capture_module

SETTINGS = ("fsync=off", "wal_level=logical", "max_slot_wal_keep_size=2GB", "min_wal_size=32MB")
LIMIT = 2 << 30


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(settings=SETTINGS, version=request.param) as running:
        yield running


@pytest.fixture
def piped(server: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    conninfo = server.create_database("standing")
    with Piped(tmp_path, conninfo, {}).connect() as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    document = pipeline_document("standing", conninfo, [{"name": "public.t"}], lease={"duration": "2s"})
    made = Piped(tmp_path, conninfo, document)
    yield made
    made.close()


@contextmanager
def capturing(piped: Piped) -> Iterator[None]:
    stop = threading.Event()
    arguments = {"owner": "test", "stop": stop}
    thread = threading.Thread(target=capture, args=(piped.pipeline(),), kwargs=arguments)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def status(piped: Piped, *options: str) -> str:
    """What `truecut status` prints."""
    found = CliRunner().invoke(command, [str(piped.folder / "pipeline.yaml"), *options])
    assert found.exit_code == 0, found.output
    return found.stdout


def safe(piped: Piped) -> int:
    with piped.connect() as connection:
        ((found,),) = connection.execute("SELECT safe_wal_size FROM pg_replication_slots").fetchall()
    return int(found)


def wait_for(
    piped: Piped, holds: Callable[[dict[str, Any]], bool], busy: psycopg.Connection[Any] | None = None
) -> dict[str, Any]:
    """What `status` tells once that holds; meanwhile somebody writes."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(found := json.loads(status(piped, "--json"))["source"]):
        assert time.monotonic() < deadline, found
        if busy is not None:
            busy.execute("SELECT pg_logical_emit_message(true, 'wide', repeat('x', 10000))")
        time.sleep(0.1)
    return dict(found)


def test_when_the_server_lets_go_of_the_slot(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transaction keeps the log back while others write: `status` tells how much is kept, by how much
    it grows, and when the server's own limit is reached at that pace, of the room that the server tells."""
    monkeypatch.setattr(capture_module, "Pace", partial(capture_module.Pace, look_s=0.2))
    with capturing(piped), piped.connect() as busy, piped.connect() as idle:
        wait_for(piped, lambda source: source["captured_by"] == "tail")
        idle.execute("BEGIN")
        idle.execute("INSERT INTO t VALUES (0, '')")
        told = wait_for(piped, lambda source: source["slot_lost_in_s"] is not None, busy)
        left = safe(piped)
        words = status(piped)
    grows, lost_s = told["retained_bytes_per_s"], told["slot_lost_in_s"]
    assert told["retained_bytes"] > 0
    assert left - told["retained_bytes"] <= grows * lost_s <= LIMIT + (16 << 20)  # limits are whole files
    assert "more each second: at this pace it lets go of the slot in" in " ".join(words.split())
    assert "disk" not in words
