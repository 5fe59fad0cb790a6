"""The same pipeline on a real cluster: executors in other processes, some of them lost in the middle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.canaries import assert_silent
from tests.e2e.cluster import Cluster
from tests.e2e.process import hold_at, running
from tests.e2e.test_kills import assert_recovered, load
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.watch import Moment, Watch, moment_of
from tests.e2e.world import World, eventually, in_store, tenants_document
from tests.s3_server import S3Server

TENANTS = ["t0", "t1", "t2", "t3"]
EXECUTORS_LOST = 2


def test_a_worker_killed_in_the_middle_of_a_wave_changes_nothing(
    tmp_path: Path, cluster_of_two: Cluster, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has committed runs again, because its Python died right after; then executors are lost in
    the middle of waves, and a worker. Every sink still equals its share. The source and half of the sinks
    lie in a store whose credentials are known to the command alone: every executor gets them from it."""
    cluster = cluster_of_two
    monkeypatch.setenv("S3_SECRET", s3.secret)
    world = _world(tmp_path, cluster, s3)
    with running(world) as process:
        watch = Watch.over(process, world)
        assert_recovered(world, watch, TENANTS)
        assert not (tmp_path / "armed" / "after_sink_commit").exists(), "no task died after its commit"
        with load(world, seed=3):
            eventually(lambda: "wave" in watch.look().open, what="waves flow")
            assert cluster.executors() >= 2, "both workers run an executor"
            struck = [_kill_executor(cluster, watch) for _ in range(EXECUTORS_LOST)]
            lost = _kill_worker(cluster, tmp_path / "armed")
            eventually(lambda: watch.look().delivers(since_ns=lost.until_ns), what="waves go on")
        assert_recovered(world, watch, TENANTS)
        stopped = process.stop()
        assert stopped.code == 0, stopped.stderr
    world.assert_mirrors()
    for lake in ("source", "t0", "t1"):
        assert list((s3.data / "cluster" / lake).rglob("*.parquet")), f"{lake} has its files there"
    assert_silent(*(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()))
    assert _ran_twice(tmp_path / "events"), "Spark ran no task again"
    spans = watch.look().spans
    assert any(span.covers(lost) for span in spans), "when the worker was killed, no wave was open"
    assert any(span.covers(moment) for span in spans for moment in struck), "nor for any executor"


def _world(folder: Path, cluster: Cluster, store: S3Server) -> World:
    """Spark keeps a log of its tasks, and the first that has committed dies."""
    (folder / "events").mkdir()
    (folder / "armed").mkdir()
    (folder / "armed" / "after_sink_commit").touch()
    conf = {
        "spark.executor.memory": "700m",
        "spark.executor.cores": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder / 'events'}",
        "spark.executorEnv.TRUECUT_FAILPOINT": f"@{folder / 'armed'}",
    }
    spark = {"master": cluster.url, "conf": conf}
    document = in_store(
        tenants_document(tenants=TENANTS, spark=spark), store, "cluster", "source", "t0", "t1"
    )
    world = World(folder, None, document, store=store)
    world.source(CREATE, fill(4000, 4))
    return world


def _kill_executor(cluster: Cluster, watch: Watch) -> Moment:
    """kill -9 an executor while a wave is open; its worker starts another."""
    eventually(lambda: "wave" in watch.look().open, pause_s=0.005, what="a wave is open")
    struck = moment_of(cluster.kill_executor)
    eventually(lambda: watch.look().delivers(since_ns=struck.until_ns), what="waves go on")
    return struck


def _kill_worker(cluster: Cluster, armed: Path) -> Moment:
    """kill -9 a worker and all that it runs, while a sink stands before its commit."""
    held = hold_at(armed, "before_sink_commit")
    eventually(held.exists, pause_s=0.005, what="a sink is about to commit")
    lost = moment_of(lambda: cluster.kill_worker(0))
    held.unlink()
    return lost


def _ran_twice(events: Path) -> bool:
    """Whether Spark's own log tells of a task that failed and, tried again, succeeded."""
    ended = [
        (event["Stage ID"], event["Task Info"]["Index"], event["Task Info"]["Failed"])
        for path in sorted(events.rglob("events_*"))
        for line in path.read_text().splitlines()
        if (event := json.loads(line))["Event"] == "SparkListenerTaskEnd"
    ]
    failed = {(stage, index) for stage, index, has_failed in ended if has_failed}
    return any((stage, index) in failed and not has_failed for stage, index, has_failed in ended)
