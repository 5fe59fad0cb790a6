"""Trouble at one sink or table stays there, and ends by itself when its cause does."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psutil
import pytest

from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document
from tests.postgres_server import PostgresServer, postgres_server
from truecut.events import Facts
from truecut.runtime import runner

MakeWorld = Callable[[dict[str, Any]], World]
DEADLINE_S = 8


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
            go_on(world, tenants, rounds=1)  # all ten in one group
            stopped_ns = time.time_ns()
            _signal_all(server, signal.SIGSTOP)
            try:
                go_on(world, tenants[:9], rounds=4)
                eventually(
                    lambda: tries(world, "t9", since_ns=stopped_ns) >= 3, what="the tenth is tried again"
                )
                go_on(world, tenants[:9], rounds=2)
            finally:
                _signal_all(server, signal.SIGCONT)
            awake_ns = time.time_ns()
            eventually(lambda: _equal(world, "t9"), what="the tenth recovers by itself")
        world.assert_mirrors()
    shared = [
        wave
        for wave, sinks in _waves(world, since_ns=stopped_ns, upto_ns=awake_ns).items()
        if "t9" in sinks and len(sinks) > 1
    ]
    assert len(shared) <= 1, f"the others waited for the tenth more than once: {shared}"


def go_on(world: World, tenants: list[str], *, rounds: int) -> None:
    """The source changes, and everything arrives at these."""
    for _ in range(rounds):
        world.source("UPDATE lake.main.events SET v = v + 1")
        for tenant in tenants:
            eventually(partial(_equal, world, tenant), what=f"{tenant} goes on")


def _lines(world: World, *, since_ns: int) -> Iterator[dict[str, Any]]:
    """What the last run has said since then, in the spec's words."""
    for text in (world.traces / f"run-{world.runs}.jsonl").read_text().splitlines():
        line = json.loads(text)
        if line["at_ns"] > since_ns:
            yield line


def tries(world: World, sink: str, *, since_ns: int) -> int:
    """How often something was begun at a sink since then."""
    begins = ("StartWave", "StartRecovery")
    said = _lines(world, since_ns=since_ns)
    return sum(line["action"] in begins and line["sink"] == sink for line in said)


def _waves(world: World, *, since_ns: int, upto_ns: int) -> dict[int, set[str]]:
    """Wave → the sinks that it was for. All of them wait until each has answered, or is late."""
    waves: dict[int, set[str]] = {}
    for line in _lines(world, since_ns=since_ns):
        if line["action"] == "StartWave" and line["at_ns"] <= upto_ns:
            waves.setdefault(line["wave"], set()).add(line["sink"])
    return waves


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
    from truecut.lake import attach_sql, connect, lake_of

    address = lake_of(world.pipeline().sinks[0].address)

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


def test_an_idle_sink_becomes_durable_while_the_run_goes_on(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is in the older half of the history: nobody has to stop the run for it to be kept."""
    monkeypatch.setattr(runner, "PERSIST_MS", 500)
    world = make_world(tenants_document(tenants=["t0", "idle"]))
    world.source(CREATE, fill(5, 1))
    assert world.catch_up(timeout_s=600).reached
    before = _newest(world, "idle")
    with world.running():
        world.source(*("UPDATE lake.main.events SET v = v + 1" for _ in range(8)))
        eventually(lambda: _newest(world, "idle") > before, what="its cursor moves, without rows and a stop")
    world.assert_mirrors()


def _newest(world: World, tenant: str) -> str:
    return str(world.sink_rows(tenant, "SELECT max(position) FROM lake._truecut.cursor")[0][0])


def test_a_mirror_that_is_read_again_is_announced(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Said loudly: for whom, and why; once, not by the run that finds everything well again."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(10, 2))
    assert world.catch_up(timeout_s=600).reached
    world.source(
        "UPDATE lake.main.events SET v = 0", "CALL ducklake_expire_snapshots('lake', older_than => now())"
    )
    assert world.catch_up(timeout_s=600).reached
    assert world.catch_up(timeout_s=600).reached
    said = [record for record in caplog.records if record.__dict__.get("facts", Facts()).code == "TC3042"]
    assert len(said) == 1
    assert said[0].message.startswith("main.events is read again as a whole for t0, t1: ")
    world.assert_mirrors()
