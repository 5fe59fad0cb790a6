"""Two runners of one pipeline share its sinks; a paused one that wakes up writes nothing."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.process import Process, run, running
from tests.e2e.test_kills import assert_equal, load
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document
from truecut.runtime.control import open_control
from truecut.runtime.pauses import pause, resume

MakeWorld = Callable[[dict[str, Any]], World]
TOKEN = "SELECT max(token) FROM lake._truecut.cursor"
TENANTS = ["t0", "t1", "t2", "t3"]
LEASE_S = 5
PAUSES = 2


def owners(world: World) -> dict[str, str]:
    """Who holds which lease, read with plain SQLite."""
    path = world.pipeline().control.reveal()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT sink, owner FROM truecut_lease WHERE owner IS NOT NULL").fetchall()
    finally:
        connection.close()
    return dict(rows)


def test_a_runner_paused_past_its_lease_has_no_effect_when_it_wakes(tmp_path: Path) -> None:
    """One of two is stopped with SIGSTOP past its lease, under load; the other takes over; it wakes up. No
    change is lost, and none is there twice, which an append table would show for ever."""
    world = World(tmp_path, None, tenants_document(tenants=TENANTS, lease={"duration": f"{LEASE_S}s"}))
    for sink in world.document["spec"]["sinks"][2:]:
        sink["mode"] = "append"
    world.source(CREATE, fill(400, 4))
    pipeline = world.pipeline()
    open_control(pipeline.control, pipeline=pipeline.name).close()
    with running(world) as first, running(world) as second:
        with load(world, seed=5):
            eventually(lambda: len(set(owners(world).values())) == 2, what="both have sinks")
            eventually(
                lambda: (
                    sorted(list(owners(world).values()).count(o) for o in set(owners(world).values()))
                    == [2, 2]
                ),
                what="an equal share each",
            )
            for _ in range(PAUSES):
                _stop_between_writes(world, first.signal)
                eventually(lambda: not _owns(world, first), what="the other one takes over")
                time.sleep(1)
                first.signal(signal.SIGCONT)
                eventually(lambda: len(set(owners(world).values())) == 2, what="they share again")
        assert second.stop().code == 0
        assert first.stop().code == 0
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    assert_equal(world, TENANTS)


def test_what_a_sleeper_had_begun_has_no_effect_when_it_wakes(make_world: MakeWorld, tmp_path: Path) -> None:
    """An order sleeps just before its transaction while the sink is taken over by a runner that does nothing
    more: the sink is as the order expects it, and the fence alone keeps the sleeper out."""
    world = make_world(tenants_document(tenants=["t0"], lease={"duration": f"{LEASE_S}s"}))
    world.source(CREATE, fill(20, 1))
    assert world.catch_up().reached
    kept, token = world.sink_rows("t0"), world.sink_rows("t0", TOKEN)
    state, hits = world.pipeline().state, tmp_path / "hits"
    hits.mkdir()
    asleep = {"TRUECUT_FAILPOINT": "before_sink_transaction:stop", "TRUECUT_FAILPOINT_HITS": str(hits)}
    world.source("UPDATE lake.main.events SET v = -1")
    with running(world, **asleep) as sleeper:
        eventually((hits / "before_sink_transaction").exists, what="the order is about to be carried out")
        _stop_between_writes(world, sleeper.popen.send_signal)
        pause(state, table="main.events")
        taken = world.sink_rows("t0", TOKEN)
        assert taken > token
        with world.running():
            eventually(lambda: world.sink_rows("t0", TOKEN) > taken, what="the sink is taken over")
            sleeper.signal(signal.SIGCONT)
            stopped = sleeper.stop()  # not before its order was answered
            assert stopped.code == 0, stopped.stderr
            assert world.sink_rows("t0") == kept, "the sleeper has written"
            resume(state, table="main.events")
            eventually(lambda: world.sink_rows("t0") != kept, what="its owner goes on")
    assert world.catch_up().reached
    world.assert_mirrors()


def _stop_between_writes(world: World, send: Callable[[signal.Signals], None]) -> None:
    """Whoever is stopped while it writes to a SQLite file keeps everybody else out of it."""
    while True:
        send(signal.SIGSTOP)
        connection = sqlite3.connect(world.pipeline().control.reveal(), timeout=2, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            send(signal.SIGCONT)
            time.sleep(0.2)
        else:
            return
        finally:
            connection.close()


def _owns(world: World, process: Process) -> bool:
    return any(f"-{process.popen.pid}-" in owner for owner in owners(world).values())


@pytest.mark.soak
def test_a_dead_runner_is_taken_over(tmp_path: Path) -> None:
    """kill -9 of one of two: the other gets all sinks and goes on."""
    world = World(tmp_path, None, tenants_document(tenants=TENANTS, lease={"duration": f"{LEASE_S}s"}))
    world.source(CREATE, fill(100, 4))
    with running(world) as first, running(world) as second:
        eventually(
            lambda: len(set(owners_or_none(world).values())) == 2,
            what="both have sinks",
        )
        first.kill()
        pid = str(second.popen.pid)
        eventually(
            lambda: len(owners(world)) == 4 and all(pid in owner for owner in owners(world).values()),
            what="the living one has everything",
        )
        world.source("UPDATE lake.main.events SET v = -1")
        head = world.source_rows("FROM lake.current_snapshot()")[0][0]
        eventually(lambda: all(_has_reached(world, t, head) for t in TENANTS), what="it goes on")
        assert second.stop().code == 0
    world.assert_mirrors()


def _has_reached(world: World, tenant: str, snapshot: int) -> bool:
    newest = world.sink_rows(tenant, "SELECT max(position) FROM lake._truecut.cursor")[0][0]
    return newest is not None and int(newest.split("-")[1], 16) >= snapshot


def owners_or_none(world: World) -> dict[str, str]:
    try:
        return owners(world)
    except sqlite3.OperationalError:  # the store is still being made
        return {}
