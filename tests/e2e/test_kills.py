"""kill -9 anywhere, any time: after the next run every sink equals its share, nothing twice, nothing lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e.process import Process, run, running
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document
from truecut.runtime.failpoint import NAMES

DRIVER_POINTS = ("after_claim", "before_wave", "after_wave")
TENANTS = ["t0", "t1", "t2", "t3"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two mirrors and two append tables on a source that is being written to."""
    document = tenants_document(tenants=TENANTS, lease={"duration": "2s"})
    for sink in document["spec"]["sinks"][2:]:
        sink["mode"] = "append"
    world = World(tmp_path, None, document)
    world.source(CREATE, fill(400, 4))
    return world


@contextmanager
def load(world: World, *, seed: int) -> Iterator[None]:
    """Somebody writes to the source all the time."""
    done = threading.Event()

    def write() -> None:
        rng = random.Random(seed)
        fresh = 10_000 * (seed + 1)
        while not done.wait(0.2):
            low = rng.randint(0, 400)
            fresh += 10
            world.source(
                f"UPDATE lake.main.events SET v = v + 1 WHERE id BETWEEN {low} AND {low + 20}",
                f"BEGIN; DELETE FROM lake.main.events WHERE id = {low};"
                f" INSERT INTO lake.main.events SELECT i, 't' || (i % 4), 0"
                f" FROM range({fresh}, {fresh + 9}) r(i); COMMIT",
                f"UPDATE lake.main.events SET tenant = 't{rng.randint(0, 3)}'"
                f" WHERE id BETWEEN {low} AND {low + 3}",
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def assert_equal(world: World) -> None:
    """Mirrors row for row; append tables: replaying the log gives the mirror, no change is there twice."""
    finished = run(world, "--until-caught-up", "--timeout", "2m")
    assert finished.code == 0, finished.stderr
    for tenant in TENANTS:
        expected = world.source_rows(f"FROM lake.main.events WHERE tenant = '{tenant}' ORDER BY ALL")
        if tenant in TENANTS[:2]:
            assert world.sink_rows(tenant) == expected, tenant
        else:
            assert replayed(world, tenant) == expected, tenant


def replayed(world: World, tenant: str) -> list[tuple[object, ...]]:
    """A table made by replaying an append log in order; every step must fit the one before."""
    log = world.sink_rows(
        tenant,
        "SELECT _truecut_op, id, tenant, v, _truecut_position, _truecut_seq FROM lake.main.events"
        " ORDER BY _truecut_position, _truecut_seq",
    )
    names = [(entry[4], entry[5], entry[1]) for entry in log]
    assert len(names) == len(set(names)), "a change is there twice"
    table: dict[object, tuple[object, ...]] = {}
    for op, *row, _, _ in log:
        assert (row[0] in table) == (op in ("update", "delete")), f"{op} does not follow"
        if op == "delete":
            del table[row[0]]
        else:
            table[row[0]] = tuple(row)
    return sorted(table.values(), key=str_key)


def str_key(row: tuple[object, ...]) -> int:
    assert isinstance(row[0], int)
    return row[0]


def test_every_crash_point_is_hit_and_survived(world: World, tmp_path: Path) -> None:
    """A crash at each durable step, of the driver or of a worker, under load; content compared in the end."""
    hits = tmp_path / "hits"
    hits.mkdir()
    for number, point in enumerate(sorted(NAMES)):
        env = {"TRUECUT_FAILPOINT": point, "TRUECUT_FAILPOINT_HITS": str(hits)}
        with load(world, seed=number), running(world, **env) as process:
            eventually((hits / point).exists, timeout_s=90, what=f"{point} is reached")
            if point in DRIVER_POINTS:
                eventually(process.is_dead, what="the driver is dead")
    assert {path.name for path in hits.iterdir()} == set(NAMES)
    assert_equal(world)


def test_random_kills_under_load(world: World) -> None:
    """The driver or a worker's Python, at random moments once waves flow; not each falls into an open one."""
    _kill_at_random(world, kills=6, seed=1)
    assert_equal(world)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_many_random_kills_under_load(world: World, seed: int) -> None:
    """Twenty kills for each seed, content compared after every recovery."""
    for round_number in range(10):
        _kill_at_random(world, kills=2, seed=100 * seed + round_number)
        assert_equal(world)


def _kill_at_random(world: World, *, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    done = 0
    with load(world, seed=seed):
        while done < kills:
            with running(world) as process:
                _wait_for_waves(world, process)
                while done < kills:
                    time.sleep(rng.uniform(0.1, 1.0))
                    done += 1
                    if rng.random() < 0.5 or not _kill_worker(process, rng):
                        process.kill()
                        break


def _kill_worker(process: Process, rng: random.Random) -> bool:
    workers = process.workers()
    if not workers:
        return False
    try:
        rng.choice(workers).kill()
    except psutil.NoSuchProcess:
        return False
    return True


def _wait_for_waves(world: World, process: Process) -> None:
    """Until something is being delivered: a position moves at a sink."""

    def cursor() -> object:
        try:
            return world.sink_rows("t0", "SELECT max(position) FROM lake._truecut.cursor")
        except Exception:  # noqa: BLE001 - the lake is still being made
            return None

    before = cursor()
    eventually(lambda: cursor() != before or process.is_dead(), timeout_s=90, what="a first wave")
