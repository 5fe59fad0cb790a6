"""A journal that has reached its size: capture waits, says so, and goes on by itself when there is room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.runtime.test_trimming import tell
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.errors import TruecutError
from truecut.runtime.capture_report import captured
from truecut.runtime.capture_start import capture
from truecut.sources.postgres import capture as capture_module

ROWS, BYTES_MAX = 1000, 400 << 10


@pytest.fixture
def piped(tmp_path: Path, postgres: PostgresServer) -> Iterator[Piped]:
    conninfo = postgres.create_database("full_journal")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sinks = [
        {
            "name": name,
            "type": "ducklake",
            "catalog": f"sqlite:{name}.db",
            "data_path": f"{name}-data",
            "hold": {"bytes_max": "1GiB"},
        }
        for name in ("quick", "slow")
    ]
    spec = {"journal": {"bytes_max": "400KiB"}, "lease": {"duration": "2s"}}
    tables = [{"name": "public.t", "backfill": "none"}]
    made = Piped(tmp_path, conninfo, pipeline_document("full_journal", conninfo, tables, sinks=sinks, **spec))
    yield made
    made.close()


@contextmanager
def capturing(piped: Piped) -> Iterator[None]:
    failed: list[TruecutError] = []

    def run() -> None:
        try:
            capture(piped.pipeline(), owner="test", stop=piped.stop)
        except TruecutError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        piped.stop.set()
        thread.join()
    assert failed == []


def comes(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_full_journal_is_waited_for_and_told(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has taken what is in it: nothing more is taken, nothing dropped, and whoever asks is told what
    capture waits for. Once the sinks have it, what they have makes room, and everything that committed
    meanwhile comes, each change once."""
    small = partial(capture_module.Pace, append_bytes=20_000, block_bytes=4_000)
    monkeypatch.setattr(capture_module, "Pace", small)
    pipeline, source = piped.pipeline(), piped.source()
    after = piped.begin(source)
    identity = source.observe().identity
    tell(pipeline, identity, {"quick": after, "slow": after})
    with capturing(piped):
        with piped.connect() as connection:
            for n in range(ROWS):
                connection.execute("INSERT INTO t VALUES (%s, repeat(md5(%s), 30))", (n, str(n)))
        comes(lambda: "has reached its" in (captured(pipeline).waits_for or ""), "it says so")
        found: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < ROWS:
            while (head := source.observe().head) == after:
                assert time.monotonic() < deadline, f"no more than {len(found)} rows"
                time.sleep(0.05)
            window = piped.window(source, after, head)
            assert not window.faults
            for task in window.tasks:
                for _, batch in task.read():
                    came = batch.column("id").to_pylist()
                    assert not found & set(came)
                    found |= set(came)
            after = window.upto
            tell(pipeline, identity, {"quick": after, "slow": after})
        comes(lambda: captured(pipeline).waits_for is None, "it no longer waits")
        assert captured(pipeline).state != "stopped"
    assert found == set(range(ROWS))
    stored = sum(path.stat().st_size for path in (pipeline.state / "journal").rglob("*"))
    assert stored <= BYTES_MAX + (64 << 10)  # beside what is kept for other purposes
