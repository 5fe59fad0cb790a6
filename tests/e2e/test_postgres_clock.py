"""A source whose clock jumps, forwards and back by years, between one commit and the next."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from tests.e2e.test_postgres_source import COLUMNS, MADE, texts, work
from tests.e2e.world import World
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import pipeline_document
from truecut.runtime.capture_start import CaptureThread
from truecut.sources.postgres import messages as wire
from truecut.sources.postgres.reassembly import Whole
from truecut.sources.postgres.transactions import Transactions

TOLD_FROM = datetime(2000, 1, 1, tzinfo=UTC)
YEARS = (-31, 0, 0, 26, 27, 99)
MORE = (
    "CREATE TABLE log (id int PRIMARY KEY, n int)",
    "ALTER DATABASE clock_from SET logical_decoding_work_mem = '64kB'",  # large transactions are streamed
)
LOG = "SELECT _truecut_position, _truecut_committed_at, _truecut_seq, _truecut_op, id, n FROM {}"


class Clock:
    """What it says at a place of the server's log is the same whenever the log is read."""

    def __init__(self) -> None:
        self.said: dict[int, datetime] = {}

    def at(self, lsn: int) -> int:
        """Microseconds since 2000."""
        drawn = random.Random(lsn)
        passed = timedelta(days=365 * drawn.choice(YEARS), microseconds=drawn.randrange(10**12))
        self.said[lsn] = TOLD_FROM + passed
        return passed // timedelta(microseconds=1)

    def told(self, message: bytes) -> bytes:
        """The message as a server with this clock sends it."""
        if message[0] == wire.BEGIN:
            begin = wire.begin(message)
            return begin._replace(committed_us=self.at(begin.commit_lsn)).message()
        if message[0] == wire.COMMIT:
            commit = wire.commit(message)
            return commit._replace(committed_us=self.at(commit.commit_lsn)).message()
        return message


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of the server, as capture hears it: in gulps, in the stream, in large transactions."""
    jumping, take = Clock(), Transactions.take

    def told(self: Transactions, come: Sequence[bytes] | Whole) -> Iterator[Any]:
        if isinstance(come, Whole):
            heard = replace(come, begin=jumping.told(come.begin), commit=jumping.told(come.commit))
            return take(self, heard)
        return take(self, [jumping.told(one) for one in come])

    monkeypatch.setattr(Transactions, "take", told)
    return jumping


@contextmanager
def captured(world: World) -> Iterator[None]:
    capture = CaptureThread(world.pipeline(), owner="test").start()
    try:
        yield
    finally:
        capture.stop()


def test_a_clock_that_jumps_changes_nothing_but_what_is_told(
    make_world: Callable[[dict[str, Any]], World], postgres: PostgresServer, clock: Clock
) -> None:
    """Mirrors are the source; the append tables tell every change once and in the order of commits, each with
    the time that the server said, be it before that of the one before. No lag is below zero."""
    source, target = postgres.create_database("clock_from"), postgres.create_database("clock_to")
    with psycopg.connect(source, autocommit=True) as connection:
        for statement in (*MADE, *MORE):
            connection.execute(statement.encode())
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data",
         "mode": "append"},
        {"name": "warehouse", "type": "postgres", "dsn": target, "schema": "shop"},
        {"name": "log", "type": "postgres", "dsn": target, "schema": "log", "mode": "append"},
    ]  # fmt: skip
    tables = [{"name": "public.*", "backfill": "none"}]
    document = pipeline_document("clock", source, tables, sinks=sinks, batch={"rows_max": 40})
    world = make_world(document)
    with dropped_slots(source), captured(world):
        for seed in range(3):
            assert world.catch_up().reached
            work(random.Random(seed), source, 20)
            _count(source, seed)
        assert world.catch_up().reached
    with psycopg.connect(source) as there, psycopg.connect(target) as here:
        for table, columns in {"orders": COLUMNS, "lines": "order_id, n, price", "log": "id, n"}.items():
            assert texts(here, f"shop.{table}", columns) == texts(there, table, columns)
        logged = here.execute(LOG.format("log.log").encode()).fetchall()
    assert sorted(logged) == sorted(world.sink_rows("lake", LOG.format("lake.public.log")))
    _assert_in_order(logged, clock)
    lags = {sink.lag_ms for view in world.views for sink in view.sinks.values()}
    assert min(lag for lag in lags if lag is not None) == 0


def _count(source: str, seed: int) -> None:
    """Rows that tell in which order they committed, also those of one large transaction."""
    with psycopg.connect(source, autocommit=True) as connection:
        for n in range(30):
            connection.execute("INSERT INTO log VALUES (%s, %s)", (seed * 10_000 + n, n))
        connection.execute(
            "INSERT INTO log SELECT i, 0 FROM generate_series(%s::int, %s) i",
            (seed * 10_000 + 30, seed * 10_000 + 9_000),
        )


def _assert_in_order(logged: Sequence[tuple[Any, ...]], clock: Clock) -> None:
    ids = [row[4] for row in sorted(logged, key=lambda row: (row[0], row[2]))]
    assert ids == sorted(ids)
    assert len(ids) == 3 * 9_001
    times = {row[0]: row[1] for row in logged}
    assert len(times) == 3 * 31
    assert set(times.values()) <= set(clock.said.values())
    told = [times[place] for place in sorted(times)]
    assert sum(one > other for one, other in pairwise(told)) > 9, "it went back"
