"""A network that falls silent for minutes under a run: nothing breaks, nothing comes through, and what was
under way arrives when nobody waits for it any more."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.e2e.process import Process, running
from tests.e2e.test_postgres_source import COLUMNS, MADE, texts, work
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.cable import Cable
from tests.sources.postgres.piped import pipeline_document

SILENCE_S = 130.0  # longer than any party waits for the other
TABLES = {"orders": COLUMNS, "lines": "order_id, n, price"}


@dataclass(frozen=True)
class Setting:
    """The same server twice, each time at the end of a cable; and as everybody else reaches it."""

    world: World
    source: str
    target: str
    cables: dict[str, Cable]

    def arrived(self) -> bool:
        """The source stands still: whether the sink has every row as the source has it."""
        with psycopg.connect(self.source) as source, psycopg.connect(self.target) as sink:
            there = "SELECT to_regclass('shop.orders') IS NOT NULL AND to_regclass('shop.lines') IS NOT NULL"
            return sink.execute(there.encode()).fetchone() == (True,) and all(
                texts(sink, f"shop.{table}", columns) == texts(source, table, columns)
                for table, columns in TABLES.items()
            )

    def lake_arrived(self) -> bool:
        with psycopg.connect(self.source) as source:
            rows = source.execute("SELECT id, note, amount, big FROM orders ORDER BY id").fetchall()
        sql = "SELECT id, note, amount, big FROM lake.public.orders ORDER BY id"
        return self.world.sink_rows("lake", sql) == rows


@pytest.fixture
def setting(tmp_path: Path, postgres: PostgresServer) -> Iterator[Setting]:
    source, target = postgres.create_database("silent_from"), postgres.create_database("silent_to")
    with psycopg.connect(source, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(statement.encode())
    cables = {"source": Cable(postgres.port), "sink": Cable(postgres.port)}
    by = {
        name: dsn.replace(f"port={postgres.port}", f"port={cables[name].port}")
        for name, dsn in (("source", source), ("sink", target))
    }
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"},
        {"name": "warehouse", "type": "postgres", "dsn": by["sink"], "schema": "shop"},
    ]
    document = pipeline_document("silent", by["source"], [{"name": "public.*"}], sinks=sinks)
    world = World(tmp_path, None, document)
    world.save()
    with dropped_slots(source):
        yield Setting(world, source, target, cables)
        for cable in cables.values():
            cable.close()


@contextmanager
def writing(setting: Setting) -> Iterator[None]:
    over = threading.Event()

    def write() -> None:
        rng = random.Random(7)
        while not over.wait(0.05):
            work(rng, setting.source, 2)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.soak
def test_a_silence_of_minutes(setting: Setting) -> None:
    """At the source's side, then at the sink's, while orders change: the run goes on by itself, and both
    sinks are the source once everybody rests. What an abandoned session had sent arrives late, and changes
    nothing."""
    with running(setting.world) as process:
        work(random.Random(1), setting.source, 20)
        eventually(setting.arrived, what="the copies begin")
        for side in ("source", "sink"):
            _fall_silent(setting, side, process)
            eventually(setting.arrived, what=f"the sink has it all after a silence of the {side}")
            eventually(setting.lake_arrived, what=f"the lake has it all after a silence of the {side}")
        assert not process.is_dead()
        finished = process.stop()
    assert finished.code == 0, finished.stderr


def _fall_silent(setting: Setting, side: str, process: Process) -> None:
    cable = setting.cables[side]
    with writing(setting):
        cable.fall_silent()
        threading.Event().wait(SILENCE_S)
        assert cable.swallowed.is_set()
        cable.mend()
    assert not process.is_dead()
