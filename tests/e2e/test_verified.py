"""A run that verifies its copies by itself, while changes go on."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.e2e.process import running, truecut
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.runtime.verified import kept_of


def test_a_run_finds_a_row_that_somebody_has_changed(
    make_world: Callable[[dict[str, Any]], World], caplog: pytest.LogCaptureFixture
) -> None:
    """While changes flow from lake to lake, every copy passes at all levels, and `status` shows how far
    and when. A row that is changed behind our back makes its copy fail, loudly, without a key; not the other;
    how far it was verified stays. Put right, it passes again."""
    verify = {"level": "sink", "interval": "1s"}
    certificate = {"path": "certificates", "interval": "500ms", "verify": verify}
    world = make_world(tenants_document(tenants=["t0", "t1"], certificate=certificate))
    world.source(CREATE, fill(60))
    changed = iter(range(1_000_000))

    def verdicts(**wanted: str) -> bool:
        world.source(f"UPDATE lake.main.events SET v = v + 1 WHERE id = {2 * (next(changed) % 30)}")
        return {one.sink: one.verdict for one in kept_of(world.pipeline()).values()} == wanted

    def behind_our_back(value: str) -> None:
        def is_done() -> bool:
            with suppress(duckdb.TransactionException):  # a commit of the run came first
                world.tenant("t1", f"UPDATE lake.main.events SET v = {value} WHERE id = 31")
                return True
            return False

        eventually(is_done, what="a row is changed at the sink")

    def told() -> dict[str, dict[str, Any]]:
        done = truecut("status", world.file, "--json", "--max-lag", "1h")
        document = json.loads(done.stdout)
        return {"code": {"": done.code}, **{copy["sink"]: copy for copy in document["copies"]}}

    with world.running(), caplog.at_level(logging.INFO):
        eventually(lambda: verdicts(t0="pass", t1="pass"), pause_s=1, what="both copies pass")
        well = told()
        assert well["code"][""] == 0
        assert well["t0"]["verified_at"] is not None
        assert well["t0"]["verified_upto"] <= well["t0"]["replicated_upto"]
        behind_our_back("-1")
        eventually(lambda: verdicts(t0="pass", t1="fail"), pause_s=1, what="the changed row is found")
        wrong = told()
        assert wrong["code"][""] == 1
        assert wrong["t1"]["verification"]["verdict"] == "fail"
        assert wrong["t1"]["verified_upto"] is not None
        behind_our_back("46.5")
        eventually(lambda: verdicts(t0="pass", t1="pass"), pause_s=1, what="the copy passes again")
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    facts = {(one.facts.code, one.facts.table, one.facts.sink) for one in errors}  # type: ignore[attr-defined]
    assert facts == {("TC7060", "main.events", "t1")}
    assert not any("id=" in record.getMessage() or "46.5" in record.getMessage() for record in errors)
    assert world.catch_up().reached
    world.assert_mirrors()


@contextmanager
def written(dsn: str) -> Iterator[None]:
    """Somebody changes, adds and removes rows all the time, but those below 50."""
    ended = threading.Event()

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as shop:
            number = 1_000
            while not ended.wait(0.02):
                number += 1
                shop.execute("UPDATE orders SET note = 'n' || %s WHERE id = %s", (number, 50 + number % 100))
                shop.execute("INSERT INTO orders VALUES (%s, 'new', NULL)", (number,))
                shop.execute("DELETE FROM orders WHERE id = %s", (number - 40,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@pytest.mark.soak
def test_a_server_that_is_written_to_is_verified_beside_its_run(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """The server is read at the place of a slot, and the sinks are beyond it by then: both sides pass, V4 and
    V5, against what is certified, extended to either place; so they do for whoever asks beside the run. A row
    that is deleted at the sink fails in the run; and by its key, V5 and not V4, for whoever asks afterwards,
    when both are read at one place."""
    dsn = postgres.create_database("verified_live")
    with psycopg.connect(dsn, autocommit=True) as shop:
        shop.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text, price numeric)")
        shop.execute("INSERT INTO orders SELECT i, 'n' || i, i / 8.0 FROM generate_series(1, 150) i")
    lake = {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"}
    verify = {"level": "sink", "interval": "1s"}
    certificate = {"path": "certificates", "interval": "500ms", "verify": verify}
    document = pipeline_document(
        "live", dsn, [{"name": "public.orders"}], sinks=[lake], certificate=certificate
    )
    piped = Piped(tmp_path, dsn, document)
    world = World(tmp_path, None, document)
    world.save()

    def verdict() -> str | None:
        return next((one.verdict for one in kept_of(world.pipeline()).values()), None)

    def asked() -> tuple[int, dict[str, dict[str, Any]]]:
        done = truecut("verify", world.file, "--json")
        return done.code, {check["level"]: check for check in json.loads(done.stdout)["checks"]}

    def is_deleted() -> bool:
        with suppress(duckdb.TransactionException):
            world.tenant("lake", "DELETE FROM lake.public.orders WHERE id = 42")
            return True
        return False

    try:
        with running(world) as process:
            with written(dsn):
                eventually(lambda: verdict() == "pass", pause_s=1, what="the copy passes")
                code, checks = asked()
                assert code == 0, checks
                assert {level: check["verdict"] for level, check in checks.items()} == dict.fromkeys(
                    ("V0", "V1", "V2", "V4", "V5"), "pass"
                )
                assert checks["V4"]["frontier"] <= checks["V5"]["frontier"]
                eventually(is_deleted, what="a row is deleted at the sink")
                eventually(lambda: verdict() == "fail", pause_s=1, what="the deleted row is missed")
            assert "TC7060" in process.stop().stderr
        code, checks = asked()
        assert code == 4
        assert checks["V4"]["frontier"] == checks["V5"]["frontier"]
        assert [checks[level]["verdict"] for level in ("V4", "V5")] == ["pass", "fail"]
        assert checks["V5"]["witness"] == {"key": {"id": 42}, "at_sink": "missing"}
    finally:
        truecut("drop", world.file)
        piped.close()
