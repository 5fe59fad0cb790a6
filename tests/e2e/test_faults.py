"""Trouble at one sink or table stays there, and ends by itself when its cause does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil

from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document
from tests.postgres_server import PostgresServer, postgres_server

MakeWorld = Callable[[dict[str, Any]], World]
DEADLINE_S = 4


def test_a_sink_that_hangs_delays_the_others_by_one_deadline_once(make_world: MakeWorld) -> None:
    """Nine tenants keep their pace while the tenth's catalog server does not answer; then it recovers."""
    tenants = [f"t{i}" for i in range(10)]
    with postgres_server() as server:
        document = tenants_document(
            tenants=tenants, batch={"interval": "100ms", "deadline": f"{DEADLINE_S}s"}
        )
        document["spec"]["sinks"][9]["catalog"] = f"postgres:{server.conninfo()}"
        world = make_world(document)
        world.source(CREATE, fill(100, 10))
        assert world.catch_up().reached
        with world.running():
            usual = _lags_s(world, seconds=8)
            _signal_all(server, signal.SIGSTOP)
            meanwhile = _lags_s(world, seconds=5 * DEADLINE_S)
            _signal_all(server, signal.SIGCONT)
            eventually(lambda: _equal(world, "t9"), timeout_s=90, what="the tenth recovers by itself")
        world.assert_mirrors()
    normal = 2 * max(usual)
    assert max(meanwhile) < normal + 1.5 * DEADLINE_S, f"delayed by more than a deadline: {meanwhile}"
    assert _spikes(meanwhile, above=normal + DEADLINE_S / 2) <= 1, f"delayed more than once: {meanwhile}"


def _lags_s(world: World, *, seconds: float) -> list[float]:
    """The worst lag of the nine, sampled twice a second, while the source changes all the time."""
    lags = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        world.source("UPDATE lake.main.events SET v = v + 1")
        time.sleep(0.5)
        lines = world.views[-1].sinks if world.views else {}
        lags.append(max((lines[f"t{i}"].lag_ms or 0) / 1000 for i in range(9) if f"t{i}" in lines))
    return lags


def _spikes(lags: list[float], *, above: float) -> int:
    """How often it rose above the bound."""
    over = [lag > above for lag in lags]
    return sum(1 for before, now in zip([False, *over], over, strict=False) if now and not before)


def _equal(world: World, tenant: str) -> bool:
    return world.sink_rows(tenant) == world.source_rows(
        f"FROM lake.main.events WHERE tenant = '{tenant}' ORDER BY ALL"
    )


def _signal_all(server: PostgresServer, number: signal.Signals) -> None:
    """The postmaster and all its children."""
    pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        os.kill(process.pid, number)


def test_a_table_with_duplicate_keys_stops_and_the_other_table_goes_on(make_world: MakeWorld) -> None:
    """The second insert of a live key is refused with a clear hold; nothing is overwritten."""
    document = tenants_document(tenants=["t0"])
    document["spec"]["tables"].append({"name": "main.other", "key": ["id"], "broadcast": True})
    world = make_world(document)
    world.source(CREATE, "CREATE TABLE lake.main.other (id INTEGER, v INTEGER)", fill(10, 1))
    assert world.catch_up().reached
    kept = world.sink_rows("t0")
    world.source(
        "INSERT INTO lake.main.events VALUES (3, 't0', 0)", "INSERT INTO lake.main.other VALUES (1, 1)"
    )
    outcome = world.catch_up()
    assert not outcome.reached
    assert "main.events" in outcome.stragglers["t0"]
    assert world.sink_rows("t0") == kept
    world.assert_mirrors_whole("main.other")


def test_unrouted_rows_stop_the_table_where_the_pipeline_says_so(make_world: MakeWorld) -> None:
    """`unrouted: stop`: a row that nobody wants holds the table before anything of it is written."""
    document = tenants_document(tenants=["t0"])
    document["spec"]["tables"][0]["unrouted"] = "stop"
    world = make_world(document)
    world.source(CREATE, fill(10, 1))
    assert world.catch_up().reached
    kept = world.sink_rows("t0")
    world.source("INSERT INTO lake.main.events VALUES (100, 't0', 0), (101, 'nobody', 0)")
    outcome = world.catch_up()
    assert "match no sink" in outcome.stragglers["t0"]
    assert world.sink_rows("t0") == kept


def test_a_foreign_table_is_never_overwritten(make_world: MakeWorld) -> None:
    """A table that this pipeline did not make is refused, and replaced only on request."""
    world = make_world(tenants_document(tenants=["t0"]))
    world.source(CREATE, fill(10, 1))
    world.save()
    address = world.pipeline().sinks[0].address
    from truecut.lake import attach_sql, connect

    connection = connect()
    connection.execute(attach_sql(address, "lake", create=True))
    connection.execute("CREATE TABLE lake.main.events AS SELECT 42 AS answer")
    connection.close()
    outcome = world.catch_up()
    assert not outcome.reached
    assert world.sink_rows("t0") == [(42,)]
    world.document["spec"]["sinks"][0]["existing"] = "replace"
    from truecut.runtime.pauses import resume

    resume(world.pipeline().state, table="main.events")
    assert world.catch_up().reached
    world.assert_mirrors()
