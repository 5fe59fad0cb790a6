"""Lakes in an object store, end to end: what holds on a disk holds there, and the secret stays one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.canaries import assert_silent
from tests.e2e.process import Finished, Process, run, running, truecut
from tests.e2e.test_faults import go_on, tries
from tests.e2e.test_kills import assert_equal, load
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.test_two_runners import owners_or_none
from tests.e2e.world import World, eventually, in_store, tenants_document
from tests.s3_quota import quota_of
from tests.s3_server import S3Server

MakeWorld = Callable[[dict[str, Any]], World]
TENANTS = ["t0", "t1", "t2", "t3"]


@pytest.fixture(autouse=True)
def secret(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pipeline files take it from."""
    monkeypatch.setenv("S3_SECRET", s3.secret)


def test_a_source_in_a_store_is_routed_to_tenants_in_a_store(make_world: MakeWorld, s3: S3Server) -> None:
    """Seed, updates, deletes, changed routes, compaction; the catalogs are DuckDB files here."""
    document = tenants_document(tenants=TENANTS, source="source.db", catalog="{tenant}.db")
    world = make_world(in_store(document, s3, "routes", "source", *TENANTS))
    world.store = s3
    world.source(CREATE, fill(800, 4))
    assert world.catch_up().reached
    world.assert_mirrors()
    world.source(
        "UPDATE lake.main.events SET v = v + 1 WHERE id % 3 = 0",
        "DELETE FROM lake.main.events WHERE id < 90",
        "UPDATE lake.main.events SET tenant = 't0' WHERE id BETWEEN 100 AND 160",
        "CALL ducklake_merge_adjacent_files('lake')",
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
        fill(900, 4).replace("range(900)", "range(1000, 1100)"),
    )
    assert world.catch_up().reached
    world.assert_mirrors()
    for lake in ("source", *TENANTS):
        assert list((s3.data / "routes" / lake).rglob("*.parquet")), f"{lake} has its files there"
    assert not list(world.folder.rglob("*.parquet"))


def test_a_store_that_hangs_or_is_full_stops_its_own_sink_alone(make_world: MakeWorld, s3: S3Server) -> None:
    """It takes connections and does not answer: the sink is late and tried again, the others go on, and it
    recovers by itself. It refuses to take more: the same, and that is what is told."""
    document = tenants_document(tenants=["t0", "t1"], batch={"interval": "100ms", "deadline": "5s"})
    in_store(document, s3, "hanging", "t1")
    with quota_of(s3) as quota:
        document["spec"]["sinks"][1]["storage"]["endpoint"] = quota.endpoint
        world = make_world(document)
        world.store = s3
        world.source(CREATE, fill(200, 2))
        assert world.catch_up().reached
        with world.running():
            stopped_ns = time.time_ns()
            with s3.hanging():
                go_on(world, ["t0"], rounds=1)
                eventually(lambda: tries(world, "t1", since_ns=stopped_ns) >= 2, what="it is tried again")
                go_on(world, ["t0"], rounds=1)
            go_on(world, ["t0", "t1"], rounds=1)
            hung, quota.used_up = _told(world, "t1"), True
            go_on(world, ["t0"], rounds=1)
            eventually(lambda: quota.refused >= 2 and "TC4065" in _told(world, "t1"), what="it is told")
            go_on(world, ["t0"], rounds=1)
            quota.used_up = False
            go_on(world, ["t0", "t1"], rounds=1)
        assert hung <= {"TC4101", "TC4063", "TC5024"}
        world.assert_mirrors()


def _told(world: World, sink: str) -> set[str]:
    """The codes that were shown for it."""
    return {str(error["code"]) for view in world.views[:] if (error := view.sinks[sink].error)}


def test_kills_and_two_runners_leave_nothing_twice_and_tell_no_secret(tmp_path: Path, s3: S3Server) -> None:
    """Two runners under load; a worker that writes to the store is killed, then a whole runner, and started
    anew. Mirrors equal, append tables replay. The secret is in no output, plan, trace, log or file."""
    document = tenants_document(tenants=TENANTS, lease={"duration": "5s"})
    for sink in document["spec"]["sinks"][2:]:
        sink["mode"] = "append"
    world = World(tmp_path, None, in_store(document, s3, "kills", "source", *TENANTS), store=s3)
    world.source(CREATE, fill(800, 4))
    outputs: list[Finished] = []
    with running(world) as first, running(world) as second:
        with load(world, seed=7):
            eventually(lambda: len(set(owners_or_none(world).values())) == 2, what="both have sinks")
            eventually(lambda: _kill_a_worker(first), what="a worker of the first is at work")
            eventually(lambda: _arrived(world, after=1), what="it goes on")
            first.kill()
            pid = str(second.popen.pid)
            eventually(lambda: all(pid in owner for owner in owners_or_none(world).values()), what="takeover")
        outputs.append(second.stop())
    outputs.append(run(world, "--until-caught-up", "--log-level", "debug", "--json"))
    assert [done.code for done in outputs] == [0, 0], outputs[-1].stderr
    assert_equal(world, TENANTS)
    outputs += [
        truecut(command, world.file, "--json") for command in ("plan", "doctor", "status", "validate")
    ]
    assert_silent(*(text for done in outputs for text in (done.stdout, done.stderr)))
    assert_silent(*(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()))


def _kill_a_worker(process: Process) -> bool:
    """One of those that write to sinks, while it computes."""
    for worker in process.workers(role="sinks"):
        try:
            if worker.cpu_percent(interval=0.05) > 0:
                worker.send_signal(signal.SIGKILL)
                return True
        except psutil.NoSuchProcess:
            continue
    return False


def _arrived(world: World, *, after: int) -> bool:
    """Whether every sink has a cursor past this snapshot."""
    newest = [world.sink_rows(t, "SELECT max(position) FROM lake._truecut.cursor")[0][0] for t in TENANTS]
    return all(at is not None and int(at.split("-")[1], 16) > after for at in newest)
