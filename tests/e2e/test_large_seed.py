"""A large seed on a real cluster: both workers write it, one is killed in the middle, and it is exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import psutil
import psycopg

from tests.e2e.cluster import Cluster, spark_cluster
from tests.e2e.process import running
from tests.e2e.test_certificates import certified
from tests.e2e.world import World, eventually, tenants_document
from tests.postgres_server import PostgresServer

ROWS = 240_000
PARTS = 8  # files of the source, which tasks share
COLUMNS = "id, tenant, value, ratio"
MADE = "CREATE TABLE lake.main.events (id BIGINT, tenant VARCHAR, value VARCHAR, ratio DOUBLE)"


def test_both_workers_write_and_one_may_die(tmp_path: Path, postgres: PostgresServer) -> None:
    """The first task that has staged its piece hangs, and its worker is killed with all it runs. The seed is
    staged by whoever is left; lake and database hold every row once, as their own clients read them, and what
    the dead have left is in neither."""
    (tmp_path / "cluster").mkdir()
    dsn = postgres.create_database("large_seed")
    with spark_cluster(tmp_path / "cluster", workers=2) as cluster:
        world = _world(tmp_path, cluster, dsn)
        with running(world) as process:
            hung = tmp_path / "hits" / "after_piece_staged"
            eventually(lambda: hung.exists() and bool(hung.read_text()), what="a piece was staged")
            eventually(lambda: len(_writers(tmp_path, cluster)) == 2, what="both workers have written files")
            cluster.kill_worker(_worker_of(cluster, int(hung.read_text())))
            expected = world.source_rows(f"SELECT {COLUMNS} FROM lake.main.events ORDER BY id")
            eventually(lambda: _copied(dsn) == len(expected), what="the database has the seed")
            eventually(lambda: _seeded(world), what="the lake has the seed")
            stopped = process.stop()
            assert stopped.code == 0, stopped.stderr
        found = world.sink_rows("lake", f"SELECT {COLUMNS} FROM lake.main.events ORDER BY id")
        assert found == expected
    with psycopg.connect(dsn) as connection:
        rows: Any = connection.execute(f"SELECT {COLUMNS} FROM main.events ORDER BY id".encode()).fetchall()
        assert rows == expected
        left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'truecut-%'").fetchall()
    assert len(left) <= PARTS  # of the tasks that died; the next owner removes them
    assert _registered(world) >= 2, "the lake's rows are in files of their own tasks"
    _assert_certified(world)


def _world(folder: Path, cluster: Cluster, dsn: str) -> World:
    (folder / "hits").mkdir()
    conf = {
        "spark.executor.memory": "700m",
        "spark.executor.cores": "2",
        "spark.cores.max": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors, before anything is planned
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.executorEnv.TRUECUT_FAILPOINT": "after_piece_staged:hang",
        "spark.executorEnv.TRUECUT_FAILPOINT_HITS": str(folder / "hits"),
    }
    document = tenants_document(
        tenants=["lake"], catalog="sqlite:{tenant}.db", spark={"master": cluster.url, "conf": conf}
    )
    (lake,) = document["spec"]["sinks"]
    del lake["route"], document["spec"]["tables"][0]["route_by"]
    document["spec"]["sinks"].append({"name": "database", "type": "postgres", "dsn": dsn})
    document["spec"]["certificate"] = {"path": "certificates", "interval": "1s"}
    world = World(folder, None, document)
    step = ROWS // PARTS
    world.source(
        MADE,
        *(
            f"INSERT INTO lake.main.events SELECT n, 't' || n % 5, 'v' || n, n / 7.0::DOUBLE "
            f"FROM range({first}, {first + step}) r(n)"
            for first in range(0, ROWS, step)
        ),
    )
    world.save()
    return world


def _assert_certified(world: World) -> None:
    """Whoever staged the rows has told their digests, too: of both copies the same."""
    _, copies = certified(world)
    assert {(one["sink"], one["verdict"], one["rows"]) for one in copies} == {
        ("lake", "certified", ROWS),
        ("database", "certified", ROWS),
    }
    assert len({one["root"] for one in copies}) == 1
    evidence = world.folder / "certificates" / "evidence"
    by_copy = [len(list(copy.glob("*.piece.parquet"))) for copy in evidence.iterdir()]
    assert len(by_copy) == len(copies)
    assert min(by_copy) >= 2, "of several tasks each"


def _writers(folder: Path, cluster: Cluster) -> set[int]:
    """Workers whose processes have written files of the lake: each file tells its writer."""
    files = [str(path) for path in folder.rglob("truecut-*.parquet") if path.stat().st_size]
    workers: set[int | None] = set()
    with duckdb.connect() as plain:
        for file in files:
            try:
                found = plain.execute("SELECT value FROM parquet_kv_metadata(?)", [file]).fetchone()
            except duckdb.Error:  # not whole yet
                continue
            assert found is not None
            workers.add(_worker_of(cluster, int(found[0].decode().rpartition("/")[2]), or_none=True))
    return {worker for worker in workers if worker is not None}


def _worker_of(cluster: Cluster, pid: int, *, or_none: bool = False) -> Any:
    for number, worker in enumerate(cluster.workers):
        try:
            below = psutil.Process(worker.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        if pid in {process.pid for process in below}:
            return number
    assert or_none, f"no worker runs {pid}"
    return None


def _copied(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        made = connection.execute("SELECT to_regclass('main.events') IS NOT NULL").fetchone()
        if made != (True,):
            return 0
        found = connection.execute("SELECT count(*) FROM main.events").fetchone()
        return 0 if found is None else int(found[0])


def _seeded(world: World) -> bool:
    try:
        return len(world.sink_rows("lake", "SELECT id FROM lake.main.events")) == ROWS
    except duckdb.Error:
        return False


def _registered(world: World) -> int:
    found = world.sink_rows(
        "lake",
        "SELECT count(*) FROM __ducklake_metadata_lake.ducklake_data_file WHERE path LIKE '%truecut-%'",
    )
    return int(found[0][0])
