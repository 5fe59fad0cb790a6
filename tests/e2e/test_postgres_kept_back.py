"""What is kept for sinks that do not come, by the journal and by the server, and what happens where that is
too much: by the command as a user runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import run, running, truecut
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import pipeline_document

BIG = "(SELECT string_agg(md5((i * 100 + n)::text), '') FROM generate_series(1, 60) n)"  # 1,920 bytes
PORTIONS, ROWS = 15, 1_000


@dataclass(frozen=True)
class Kept:
    """A table at a source, and its copies."""

    world: World
    source: str
    target: str

    def do(self, *statements: str) -> None:
        """One transaction each."""
        with psycopg.connect(self.source, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def arrived(self) -> bool:
        """Whether the warehouse has what the source has."""
        asked = "SELECT count(*), sum(hashtext(ROW(id, n, big)::text)) FROM {}things"
        with psycopg.connect(self.source) as source, psycopg.connect(self.target) as sink:
            there = "SELECT to_regclass('shop.things') IS NOT NULL"
            if sink.execute(there.encode()).fetchone() != (True,):
                return False
            found = sink.execute(asked.format("shop.").encode()).fetchone()
            return bool(found == source.execute(asked.format("").encode()).fetchone())

    def arrived_in_lake(self) -> bool:
        with psycopg.connect(self.source) as source:
            expected = source.execute("SELECT id, n, big FROM things ORDER BY id").fetchall()
        return (
            self.world.sink_rows("lake", "SELECT id, n, big FROM lake.public.things ORDER BY id") == expected
        )

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(truecut("status", self.world.file, "--json").stdout)
        return found


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Iterator[Kept]:
    name = f"kept_{request.function.__name__.rpartition('_')[2]}"
    source, target = postgres.create_database(name), postgres.create_database(f"{name}_to")
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "./lake-data"},
        {"name": "warehouse", "type": "postgres", "dsn": target, "schema": "shop"},
    ]
    document = pipeline_document(name, source, [{"name": "public.things"}], sinks=sinks)
    document["spec"] |= {"batch": {"interval": "100ms"}, "lease": {"duration": "5s"}, "state": "./state"}
    made = Kept(World(tmp_path, None, document), source, target)
    made.do(
        "CREATE TABLE things (id int PRIMARY KEY, n int, big text)",
        "INSERT INTO things SELECT i, 0, 'first' FROM generate_series(1, 50) i",
    )
    with dropped_slots(source):
        yield made


@pytest.mark.soak
def test_a_journal_that_is_full(kept: Kept) -> None:
    """Both sinks are paused, and more comes than the journal may hold: capture waits, and `status` says so.
    One sink makes room by taking what is there, and capture goes on; the other may hold back little, is let
    go, and is copied anew when it returns. Both are the source at the end."""
    world = kept.world
    world.document["spec"]["journal"] = {"bytes_max": "16MiB"}
    lake, warehouse = world.document["spec"]["sinks"]
    lake["hold"], warehouse["hold"] = {"bytes_max": "1GiB"}, {"bytes_max": "1MiB"}
    world.save()
    with running(world) as process:
        eventually(kept.arrived, what="it is copied")
        eventually(kept.arrived_in_lake, what="it is copied")
        for sink in ("lake", "warehouse"):
            assert truecut("pause", world.file, "--sink", sink).code == 0
        eventually(lambda: {one["state"] for one in kept.status()["sinks"]} == {"paused"}, what="both rest")
        for n in range(PORTIONS):
            rows = f"FROM generate_series({1000 * n + 100}, {1000 * n + 99 + ROWS}) i"
            kept.do(f"INSERT INTO things SELECT i, {n}, {BIG} {rows}", f"DELETE FROM things WHERE id = {n}")
        full = "has reached its 16,777,216 bytes"
        eventually(lambda: full in (kept.status()["source"]["waits_for"] or ""), what="it is said")
        assert full in truecut("status", world.file).stdout
        kept.do("UPDATE things SET n = -1 WHERE id % 10 = 0")
        assert truecut("resume", world.file, "--sink", "lake").code == 0
        eventually(kept.arrived_in_lake, what="the one that was waited for has it all")
        eventually(lambda: kept.status()["source"]["waits_for"] is None, what="it no longer waits")
        assert not kept.arrived()
        assert truecut("resume", world.file, "--sink", "warehouse").code == 0
        eventually(kept.arrived, what="the one that was let go is copied anew")
        stopped = process.stop()
    assert stopped.code == 0, stopped.stderr
    assert "warehouse holds back more of the journal than it may" in stopped.stderr
    assert "lake holds back more" not in stopped.stderr
    assert "TC3042" in stopped.stderr


@pytest.mark.soak
def test_a_slot_that_is_given_up(kept: Kept) -> None:
    """By `wal_budget` in the file: a transaction that stays open keeps the log back. The run ends with
    the reason, the server keeps nothing for us any more; the next run says that there is a gap, copies anew,
    and both sinks are the source."""
    world = kept.world
    world.document["spec"]["source"]["wal_budget"] = {"bytes_max": "32MiB", "then": "give_up"}
    world.save()
    with running(world) as process:
        eventually(kept.arrived, what="it is copied")
        eventually(kept.arrived_in_lake, what="it is copied")
        with psycopg.connect(kept.source) as idle:
            idle.execute("INSERT INTO things VALUES (777, 7, 'open')")
            kept.do(*["SELECT pg_logical_emit_message(false, 'wide', repeat('x', 1000000))"] * 40)
            eventually(process.is_dead, what="the slot is given up")
            idle.rollback()
        ended = process.stop()
    assert ended.code == 1, ended.stderr
    assert "TC2115" in ended.stderr
    assert "was given up" in ended.stderr
    with psycopg.connect(kept.source) as connection:
        slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots.encode()).fetchone() == (0,)
    kept.do("UPDATE things SET n = 5 WHERE id < 20", "DELETE FROM things WHERE id > 40")
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    assert kept.arrived()
    assert kept.arrived_in_lake()
    assert "gap at the source: the slot truecut_kept_up is gone" in finished.stderr, kept.status()
