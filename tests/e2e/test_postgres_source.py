"""A live PostgreSQL into a lake and into PostgreSQL, by the command as a user runs it: what stands at the
sinks is compared, by psycopg and DuckDB, with what the source shows at the very same place."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import run, running, truecut
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, frontier, pipeline_document

COLUMNS = "id, tenant, note, amount, doc, stamp, big"
MADE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, tenant text, note text, amount numeric(12,3), doc jsonb, "
    "stamp timestamptz, big text)",
    "ALTER TABLE orders ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE lines (order_id bigint, n int, price numeric, PRIMARY KEY (order_id, n))",
)


@pytest.fixture
def shop(tmp_path: Path, postgres: PostgresServer) -> Iterator[Piped]:
    dsn, target = postgres.create_database("live_shop"), postgres.create_database("live_target")
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(statement.encode())
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"},
        {"name": "warehouse", "type": "postgres", "dsn": f"{target} password=hush"},
        {"name": "log", "type": "postgres", "dsn": target, "schema": "log", "mode": "append"},
    ]
    document = pipeline_document(
        "live", f"{dsn} password=hush", [{"name": "public.*", "backfill": "none"}], sinks=sinks
    )
    made = Piped(tmp_path, dsn, document)
    yield made
    made.close()


def work(rng: random.Random, conninfo: str, steps: int) -> None:
    """Orders come with their lines in one transaction, change, and go."""
    with psycopg.connect(conninfo) as one:
        for _ in range(steps):
            key = rng.randrange(200)
            one.execute("DELETE FROM lines WHERE order_id = %s", (key,))
            match rng.randrange(4):
                case 0:
                    one.execute("DELETE FROM orders WHERE id = %s", (key,))
                case 1:
                    one.execute("UPDATE orders SET note = %s WHERE id = %s", (str(rng.random()), key))
                case _:
                    one.execute(
                        "INSERT INTO orders VALUES"
                        " (%s, 'acme', 'new', %s, '{\"a\": 1}', now(), repeat('x', 3000))"
                        " ON CONFLICT (id) DO UPDATE SET amount = excluded.amount",
                        (key, rng.randrange(1000) / 8),
                    )
            one.execute(
                "INSERT INTO lines SELECT id, n, id / 8.0 FROM orders, generate_series(1, 2) n WHERE id = %s",
                (key,),
            )
            one.commit()


def texts(connection: psycopg.Connection[Any], table: str, columns: str) -> list[str]:
    rows = connection.execute(f"SELECT ROW({columns})::text FROM {table} ORDER BY 1".encode())
    return [row[0] for row in rows]


def judge(shop: Piped, target: str, world: World, source: psycopg.Connection[Any]) -> None:
    """Both mirrors are the source, row for row, as each side's own client tells them; what the append table
    tells last of each order is it, too, and each change once."""
    with psycopg.connect(target) as sink:
        for table, columns in (("orders", COLUMNS), ("lines", "order_id, n, price")):
            assert texts(sink, f"public.{table}", columns) == texts(source, table, columns)
        once = "SELECT count(*) - count(DISTINCT (_truecut_position, _truecut_seq)) FROM log.orders"
        assert sink.execute(once.encode()).fetchone() == (0,)
        last = (
            "(SELECT DISTINCT ON (id) * FROM log.orders"
            " ORDER BY id, _truecut_position DESC, _truecut_seq DESC) l WHERE _truecut_op <> 'delete'"
        )
        ids = sink.execute(f"SELECT id, note, amount FROM {last} ORDER BY id".encode()).fetchall()
    assert ids == source.execute("SELECT id, note, amount FROM orders ORDER BY id").fetchall()
    lake = world.sink_rows("lake", "SELECT id, note, amount, big FROM lake.public.orders ORDER BY id")
    assert lake == source.execute("SELECT id, note, amount, big FROM orders ORDER BY id").fetchall()


def test_a_live_server_flows_into_a_lake_and_a_server(
    tmp_path: Path, postgres: PostgresServer, shop: Piped
) -> None:
    """Checked and planned before; run while orders change, killed -9 in the middle, run again up to a place
    of the server's log: every sink is the source as its snapshot shows it there, and what committed behind is
    not in it. Then to the head. `drop` leaves nothing at the source, and nobody ever saw a password."""
    rng = random.Random(5)
    target = postgres.conninfo("live_target")
    world = World(tmp_path, None, shop.document)
    world.save()
    checked = [truecut(command, world.file) for command in ("validate", "doctor", "plan")]
    assert [one.code for one in checked] == [0, 0, 0], checked
    with running(world) as process:
        seeded = "SELECT to_regclass('public.lines') IS NOT NULL AND to_regclass('log.orders') IS NOT NULL"
        eventually(
            lambda: psycopg.connect(target).execute(seeded).fetchone() == (True,),
            what="the tables at the sink",
        )
        eventually(
            lambda: bool(_cursors(world)) and all(_cursors(world)), what="every sink is where it begins"
        )
        work(rng, shop.conninfo, 40)
        process.kill()
    work(rng, shop.conninfo, 40)
    with frontier(shop.conninfo) as (lsn, snapshot):
        work(rng, shop.conninfo, 20)
        stopped = run(world, "--until-position", lsn)
        assert stopped.code == 0, stopped.stderr
        judge(shop, target, world, snapshot)
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    with shop.connect() as now:
        judge(shop, target, world, now)
    with shop.connect() as owner:
        owner.execute("CREATE TABLE elsewhere AS SELECT 1 AS a FROM generate_series(1, 1000)")
        owner.execute("DROP TABLE elsewhere")  # the server's log moves on, and nothing is for any copy
    nothing = truecut("run", world.file, "--until-caught-up", "--json", env={"JAVA_HOME": "/nowhere"})
    assert nothing.code == 0, nothing.stderr
    assert {sink["state"] for sink in json.loads(nothing.stdout)["sinks"]} == {"current"}
    status = truecut("status", world.file, "--json")
    assert {sink["lag_ms"] for sink in json.loads(status.stdout)["sinks"]} == {0}
    told = json.loads(status.stdout)["source"]
    assert told["captured_by"] == "stopped"
    assert told["released"] <= told["captured"]
    dropped = truecut("drop", world.file)
    assert dropped.code == 0, dropped.stderr
    left = "SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'truecut_live'), count(*)"
    assert postgres.psql(f"{left} FROM pg_publication", database="live_shop") == "0|0"
    assert not (tmp_path / ".truecut" / "live").exists()
    said = "".join(one.stdout + one.stderr for one in (*checked, stopped, finished, nothing, status, dropped))
    assert "hush" not in said


def _cursors(world: World) -> list[str | None]:
    told = truecut("status", world.file, "--json")
    return [sink["cursor"] for sink in json.loads(told.stdout)["sinks"]]
