"""One transaction of two million rows through a whole run, in bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import duckdb
import psutil
import psycopg
import pytest

from tests.e2e.process import Process, running
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import pipeline_document

ROWS = 2_000_000
BYTES_MAX = 2_500_000_000  # of the driver, its JVM and all Python workers
TOLD = (
    "SELECT count(*), count(DISTINCT id), sum(id::numeric), sum(length(note)), min(note), max(note) FROM {}"
)


class Peak:
    """What a run and everything that it has started held in memory at most; shared pages count once."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.bytes = 0

    def look(self) -> None:
        self.bytes = max(self.bytes, sum(map(_share, self._process.tree())))


def _share(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # ended since, or being swapped for another program
        return 0


@contextmanager
def _measured(process: Process) -> Iterator[Peak]:
    peak, over = Peak(process), threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            peak.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


@pytest.mark.soak
def test_two_million_rows_in_one_transaction(tmp_path: Path, postgres: PostgresServer) -> None:
    """Into a lake and a PostgreSQL, mirror and append table: every row is there once, and all of Truecut's
    processes together stay below 2.5 GB."""
    source, target = postgres.create_database("heap_from"), postgres.create_database("heap_to")
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, note text)")
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"},
        {"name": "warehouse", "type": "postgres", "dsn": target, "schema": "shop"},
        {"name": "log", "type": "postgres", "dsn": target, "schema": "log", "mode": "append"},
    ]
    world = World(tmp_path, None, pipeline_document("heap", source, [{"name": "public.t"}], sinks=sinks))
    world.save()
    with dropped_slots(source), running(world) as process:
        with _measured(process) as peak:
            eventually(lambda: _both(target), what="the copies begin")
            with psycopg.connect(source) as connection:
                rows = f"SELECT i, 'note ' || i % 1000 FROM generate_series(1, {ROWS}) i"
                connection.execute(f"INSERT INTO t {rows}".encode())
            with psycopg.connect(source) as connection:
                expected = connection.execute(TOLD.format("t").encode()).fetchone()
            for table in ("shop.t", "log.t"):
                eventually(partial(_tells, target, table, expected), pause_s=2, what=table)
            eventually(lambda: _lake_tells(world) == expected, pause_s=2, what="the lake")
        stopped = process.stop()
    assert stopped.code == 0, stopped.stderr
    assert _lake_tells(world) == expected
    print(f"{peak.bytes / 1e9:.2f} GB")
    assert 0 < peak.bytes < BYTES_MAX


def _both(target: str) -> bool:
    with psycopg.connect(target) as connection:
        made = "SELECT to_regclass('shop.t') IS NOT NULL AND to_regclass('log.t') IS NOT NULL"
        return connection.execute(made.encode()).fetchone() == (True,)


def _lake_tells(world: World) -> object:
    try:
        (told,) = world.sink_rows("lake", TOLD.format("lake.public.t").replace("::numeric", ""))
    except duckdb.CatalogException:  # not there yet
        return None
    return told


def _tells(target: str, table: str, expected: object) -> bool:
    with psycopg.connect(target) as connection:
        return connection.execute(TOLD.format(table).encode()).fetchone() == expected
