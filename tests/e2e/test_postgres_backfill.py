"""A live PostgreSQL with content, by the command as a user runs it: copied while it changes, killed on the
way; compared by psycopg and DuckDB with what psycopg reads at the source."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import run, running, started, truecut
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer
from truecut.failpoint import KILLED

BIG = "(SELECT string_agg(md5(n::text), '') FROM generate_series(i, i + 90) n)"  # stored apart
COLUMNS = {"items": "id, n, md5(big)", "pairs": "a, b, n"}


def make_world(folder: Path, source: str, target: str) -> World:
    """Two tables into a lake and another PostgreSQL."""
    document = {
        "apiVersion": "truecut/v1",
        "kind": "Pipeline",
        "metadata": {"name": "shop"},
        "spec": {
            "source": {"type": "postgres", "dsn": source},
            "tables": [
                {"name": "public.items", "key": ["id"]},
                {"name": "public.pairs", "key": ["a", "b"]},
            ],
            "sinks": [
                {
                    "name": "lake",
                    "type": "ducklake",
                    "catalog": "./lake.ducklake",
                    "data_path": "./lake-data",
                },
                {"name": "warehouse", "type": "postgres", "dsn": target, "schema": "shop"},
            ],
            "batch": {"interval": "200ms"},
            "state": "./state",
        },
    }
    world = World(folder, None, document)
    world.save()
    return world


def fill(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n int, big text)")
        connection.execute("ALTER TABLE items ALTER big SET STORAGE EXTERNAL")
        connection.execute("CREATE TABLE pairs (a text, b int, n int, PRIMARY KEY (a, b))")
        connection.execute(f"INSERT INTO items SELECT i, 0, {BIG} FROM generate_series(1, 2000) i")
        connection.execute("INSERT INTO pairs SELECT 'k' || i % 9, i, 0 FROM generate_series(1, 3000) i")


@contextmanager
def changing(dsn: str) -> Iterator[None]:
    """Somebody writes all the time."""
    over = threading.Event()

    written: list[int] = []

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            step = 0
            while not over.wait(0.02):
                step += 1
                with connection.transaction():
                    connection.execute("UPDATE items SET n = n + 1 WHERE id %% 97 = %s", (step % 97,))
                    connection.execute("UPDATE items SET id = -id WHERE id = %s", (step,))
                    connection.execute("DELETE FROM pairs WHERE b = %s", (step,))
                    connection.execute("INSERT INTO pairs VALUES ('new', %s, 1)", (100_000 + step,))
                written.append(step)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        still = thread.is_alive()
        over.set()
        thread.join()
    assert still
    assert len(written) > 10


def rows(dsn: str, table: str, columns: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return sorted(connection.execute(f"SELECT {columns} FROM {table}").fetchall())


def test_tables_with_content_are_copied_while_they_change(tmp_path: Path, postgres: PostgresServer) -> None:
    """Killed -9 while it copies and run again: both sinks hold what the source holds, and units that had
    been read were not read again."""
    source, target = postgres.create_database("backfill_from"), postgres.create_database("backfill_to")
    fill(source)
    world = make_world(tmp_path, source, target)
    units = tmp_path / "state" / "units"
    with changing(source):
        with running(world) as process:
            eventually(lambda: any(units.glob("*/*/*.json")), what="a plan")
            eventually(lambda: any(units.glob("*/*/0*.json")) or process.is_dead(), what="a unit")
            process.kill()
        read = {path: path.read_text() for path in units.glob("*/*/0*.json")}
        finished = run(world, "--until-caught-up")
        assert finished.code == 0, finished.stderr
    assert read
    assert {path: path.read_text() for path in read} == read
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    for table, columns in COLUMNS.items():
        held = rows(source, f"public.{table}", columns)
        assert rows(target, f"shop.{table}", columns) == held
        lake = world.sink_rows("lake", f"SELECT {columns} FROM lake.public.{table}")
        assert sorted(map(tuple, lake)) == held


LOG = (
    "SELECT _truecut_op, id, n, _truecut_position, _truecut_seq FROM shop.items "
    'ORDER BY _truecut_position COLLATE "C", _truecut_seq COLLATE "C"'
)


def replayed(log: list[tuple[Any, ...]]) -> dict[int, int]:
    """What an append table makes of it, one row after another. Wherever it was read again, its `read` rows
    are what the changes before had come to."""
    held: dict[int, int] = {}
    first = next(row[3] for row in log if row[0] == "read")
    for place in sorted({row[3] for row in log}):
        changes = [row for row in log if row[3] == place and row[0] != "read"]
        for op, key, n, *_ in changes:
            held.update({key: n}) if op != "delete" else held.pop(key)
        read = {row[1]: row[2] for row in log if row[3] == place and row[0] == "read"}
        if place == first:
            held = {**read, **held}
        elif read:
            assert read == held, place
    return held


@pytest.mark.soak
def test_a_table_is_read_again_while_it_changes(tmp_path: Path, postgres: PostgresServer) -> None:
    """For a running pipeline: a mirror that somebody has spoilt is the source again, and the append table
    gets all rows once more between the changes, none of which is missing or there twice. Then by itself,
    killed -9 between request and answer: the next run answers it, with the units that were planned."""
    source, target = postgres.create_database("again_from"), postgres.create_database("again_to")
    fill(source)
    world = make_world(tmp_path, source, target)
    world.document["spec"]["sinks"][1]["tables"] = [{"name": "public.items", "mode": "append"}]
    world.document["spec"]["lease"] = {"duration": "5s"}
    world.document["spec"]["source"]["slot"] = "truecut_again"  # slots are of the whole server
    arguments = ("backfill", world.save(), "--json", "--table", "public.items")
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    world.tenant("lake", "DELETE FROM lake.public.items WHERE id % 7 = 3")
    with changing(source):
        with running(world) as runner:
            told = world.traces / f"{runner.popen.pid}.jsonl"
            eventually(lambda: told.exists() and "Recovered" in told.read_text(), what="it has its sinks")
            answer = truecut(*arguments)
        assert answer.code == 0, answer.stderr
        assert json.loads(answer.stdout)["outcome"] == "reached"
        env = {"TRUECUT_FAILPOINT": "units_planned", "TRUECUT_TRACE": str(world.traces)}
        with started(*arguments, env=env) as command:
            eventually(command.is_dead, what="it dies once the units are planned")
            assert command.popen.returncode == KILLED
    asked = tmp_path / "state" / "backfill" / "table=public.items"
    assert asked.exists()
    planned = max((tmp_path / "state" / "units").glob("public%2Eitems*/*/plan.json"))
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    assert not asked.exists()
    assert max((tmp_path / "state" / "units").glob("public%2Eitems*/*/plan.json")) == planned
    held = rows(source, "public.items", COLUMNS["items"])
    lake = world.sink_rows("lake", f"SELECT {COLUMNS['items']} FROM lake.public.items")
    assert sorted(map(tuple, lake)) == held
    pairs = world.sink_rows("lake", f"SELECT {COLUMNS['pairs']} FROM lake.public.pairs")
    assert sorted(map(tuple, pairs)) == rows(source, "public.pairs", COLUMNS["pairs"]), (
        "the other table goes on"
    )
    with psycopg.connect(target) as connection:
        log = connection.execute(LOG).fetchall()
    assert len({row[3:] for row in log}) == len(log)
    assert len({row[3] for row in log if row[0] == "read"}) == 3
    assert replayed(log) == {key: n for key, n, _ in held}
