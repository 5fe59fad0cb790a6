"""The same pipeline on a real cluster: executors in other processes, one of them lost in the middle."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import spark_cluster
from tests.e2e.process import run, running
from tests.e2e.test_kills import load
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document

TENANTS = ["t0", "t1", "t2", "t3"]
CURSOR = "SELECT max(position) FROM lake._truecut.cursor"


def test_a_worker_killed_in_the_middle_of_a_wave_changes_nothing(tmp_path: Path) -> None:
    """Spark runs the lost tasks again, also those that had committed; every sink still equals its share."""
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster", workers=2) as cluster:
        spark = {
            "master": cluster.url,
            "conf": {"spark.executor.memory": "700m", "spark.executor.cores": "2"},
        }
        world = World(tmp_path, None, tenants_document(tenants=TENANTS, spark=spark))
        world.source(CREATE, fill(4000, 4))
        finished = run(world, "--until-caught-up", "--timeout", "3m")
        assert finished.code == 0, finished.stderr
        world.assert_mirrors()
        with running(world) as process:
            with load(world, seed=3):
                before = world.sink_rows("t0", CURSOR)
                eventually(lambda: world.sink_rows("t0", CURSOR) > before, timeout_s=180, what="waves flow")
                assert cluster.executors() >= 2, "both workers run an executor"
                assert cluster.kill_worker(0) >= 2, "a worker and its executor"
                before = world.sink_rows("t0", CURSOR)
                eventually(lambda: world.sink_rows("t0", CURSOR) > before, timeout_s=180, what="waves go on")
            stopped = process.stop()
            assert stopped.code == 0, stopped.stderr
        finished = run(world, "--until-caught-up", "--timeout", "3m")
        assert finished.code == 0, finished.stderr
        world.assert_mirrors()
