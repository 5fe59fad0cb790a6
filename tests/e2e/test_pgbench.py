"""pgbench, which never rests, at the source of a run that is killed and started again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.e2e.process import run, running, truecut
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import frontier, pipeline_document

SCALE, CLIENTS = 2, 4
TABLES = ("accounts", "branches", "tellers", "history")
# All that was paid, told four times: equal at every commit, and in no half of one.
BALANCES = (
    "SELECT (SELECT sum(abalance) FROM {0}pgbench_accounts), (SELECT sum(bbalance) FROM {0}pgbench_branches),"
    " (SELECT sum(tbalance) FROM {0}pgbench_tellers), (SELECT sum(delta) FROM {0}pgbench_history)"
)


@pytest.fixture
def bank(tmp_path: Path, postgres: PostgresServer) -> Iterator[World]:
    source, target = postgres.create_database("bank"), postgres.create_database("bank_copy")
    _bench(postgres, source, "-i", "-q", "-s", str(SCALE)).wait()
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("ALTER TABLE pgbench_history ADD id bigserial PRIMARY KEY")
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"},
        {"name": "warehouse", "type": "postgres", "dsn": target, "schema": "shop"},
    ]
    tables = [{"name": "public.pgbench_*"}]
    document = pipeline_document("bank", source, tables, sinks=sinks, lease={"duration": "5s"})
    world = World(tmp_path, None, document)
    world.save()
    with dropped_slots(source):
        yield world


def _bench(server: PostgresServer, *arguments: str) -> subprocess.Popen[bytes]:
    conninfo, *options = arguments
    return subprocess.Popen(
        [server.program("pgbench"), *options, conninfo],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )


@contextmanager
def paying(server: PostgresServer) -> Iterator[None]:
    """As fast as it can, from beginning to end."""
    bench = _bench(server, server.conninfo("bank"), "-n", "-c", str(CLIENTS), "-T", "86400")
    try:
        yield
        assert bench.poll() is None, "it went on all the time"
    finally:
        bench.terminate()
        bench.wait()


@pytest.mark.soak
def test_a_bank_that_never_rests(bank: World, postgres: PostgresServer) -> None:
    """Copied and followed while pgbench pays; killed -9 in the copy, and again in the stream; stopped at a
    place of the log: both sinks are what a snapshot of that place shows, and no payment is there by half."""
    with paying(postgres):
        for wanted in (_is_read, _streams):
            with running(bank) as process:
                eventually(partial(wanted, bank), pause_s=0.2, what=wanted.__name__)
                process.kill()
        with frontier(postgres.conninfo("bank")) as (lsn, seen):
            stopped = run(bank, "--until-position", lsn)
            assert stopped.code == 0, stopped.stderr
            told = seen.execute("SELECT pg_export_snapshot()").fetchone()
            assert told is not None
            _judge(bank, postgres, told[0], seen)


def _is_read(world: World) -> bool:
    """A unit, or more; not all is delivered."""
    return any(world.folder.glob(".truecut/bank/units/*/*/0*.json"))


def _streams(world: World) -> bool:
    """All tables are there, and have gone on since."""
    tables = json.loads(truecut("status", world.file, "--json").stdout)["tables"]
    if {table["state"] for table in tables} != {"streaming"}:
        return False
    history = world.sink_rows("lake", "SELECT count(*) FROM lake.public.pgbench_history")
    assert isinstance(history[0][0], int)
    return history[0][0] > 1000


def _judge(world: World, server: PostgresServer, snapshot: str, seen: psycopg.Connection) -> None:
    there = f"BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}';"
    for table in TABLES:
        name = f"pgbench_{table}"
        digest = "SELECT count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {0}.{1} t"
        expected = server.psql(f"{there} {digest.format('public', name)}; COMMIT", database="bank")
        assert server.psql(digest.format("shop", name), database="bank_copy") == expected, table
        rows = seen.execute(f"SELECT * FROM {name} ORDER BY 1".encode()).fetchall()
        lake = world.sink_rows("lake", f"SELECT * FROM lake.public.{name} ORDER BY ALL")
        assert sorted(lake, key=repr) == sorted(rows, key=repr), table
    (paid,) = {*server.psql(BALANCES.format("shop."), database="bank_copy").split("|")}
    assert int(paid) == world.sink_rows("lake", BALANCES.format("lake.public."))[0][0]
