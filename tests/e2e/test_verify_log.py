"""V3: the source's log, kept by a witness slot and read by the independent verifier, beside the evidence."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import run, truecut
from tests.e2e.test_postgres_source import MADE, work
from tests.e2e.world import World
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document


@pytest.fixture
def shop(tmp_path: Path, postgres: PostgresServer) -> Iterator[Piped]:
    """Tables with content, two sinks, and a witness."""
    dsn = postgres.create_database("witnessed")
    target = postgres.create_database("witnessed_target")
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"},
        {"name": "log", "type": "postgres", "dsn": target, "schema": "log", "mode": "append"},
    ]
    certificate = {"path": "certificates", "interval": "1s", "witness": "witness"}
    document = pipeline_document(
        "witnessed", dsn, [{"name": "public.*"}], sinks=sinks, certificate=certificate
    )
    made = Piped(tmp_path, dsn, document)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(statement.encode())
    yield made
    made.close()


def verified(world: World) -> tuple[int, dict[tuple[str, str], tuple[str, str]]]:
    """Exit code; copy → (verdict, detail) of V3. The levels below pass."""
    done = truecut("verify", world.file, "--level", "log", "--json")
    checks = json.loads(done.stdout)["checks"]
    below = [one for one in checks if one["level"] != "V3"]
    odd = [one for one in below if one["verdict"] != "pass"]
    assert not odd, odd
    found = {(c["table"], c["sink"]): (c["verdict"], c["detail"]) for c in checks if c["level"] == "V3"}
    return done.code, found


@pytest.mark.soak
def test_honest_copies_pass_again_and_again_until_the_slot_is_gone(shop: Piped, tmp_path: Path) -> None:
    """Mirrors and append tables, with large values left out, keys that change and truncates: pass. Each pass
    lets the server forget what was compared. Without the slot it is unknown, and stays so when it is made
    anew; `drop` takes it away."""
    rng = random.Random(11)
    world = World(tmp_path, None, shop.document)
    world.save()
    work(rng, shop.conninfo, 30)
    names = {(f"public.{table}", sink) for table in ("orders", "lines") for sink in ("lake", "log")}
    moved = [0]
    for _ in range(2):
        assert run(world, "--until-caught-up").code == 0
        work(rng, shop.conninfo, 40)
        with shop.connect() as owner:
            owner.execute("UPDATE lines SET order_id = order_id + 1000 WHERE order_id < 60")
            owner.execute("DELETE FROM lines WHERE n = 2")
            owner.execute("TRUNCATE lines")
        work(rng, shop.conninfo, 20)
        finished = run(world, "--until-caught-up")
        assert finished.code == 0, finished.stderr
        code, found = verified(world)
        assert code == 0, found
        assert {name: verdict for name, (verdict, _) in found.items()} == dict.fromkeys(names, "pass")
        assert all("0 changes" not in detail for _, detail in found.values())
        moved.append(place_of(shop))
    assert moved == sorted(set(moved))
    with shop.connect() as owner:
        owner.execute("SELECT pg_drop_replication_slot('witness')")
    code, found = verified(world)
    assert code == 5
    assert {verdict for verdict, _ in found.values()} == {"unknown"}
    assert all("is gone" in detail for _, detail in found.values())
    work(rng, shop.conninfo, 5)
    assert run(world, "--until-caught-up").code == 0  # it is made again, after what nobody kept
    work(rng, shop.conninfo, 5)
    assert run(world, "--until-caught-up").code == 0
    code, found = verified(world)
    assert (code, {verdict for verdict, _ in found.values()}) == (5, {"unknown"})
    dropped = truecut("drop", world.file)
    assert "witness slot witness" in dropped.stdout
    with shop.connect() as owner:
        left = owner.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'witness'")
        assert left.fetchone() == (0,)


def place_of(shop: Piped) -> Any:
    with shop.connect() as owner:
        told = owner.execute(
            "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = 'witness'"
        ).fetchone()
    assert told is not None
    return told[0]
