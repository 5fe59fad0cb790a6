"""kill -9 anywhere, any time: once recovered every sink equals its share, nothing twice, nothing lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import pytest

from tests.e2e.process import Process, running
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.watch import Kind, Moment, Watch, moment_of
from tests.e2e.world import World, eventually, tenants_document
from truecut.failpoint import DELIVERY
from truecut.runtime.pauses import pause, resume

DRIVER_POINTS = ("after_claim", "before_wave", "after_wave")
# Each world's life is a few runs. A run survives whatever its workers crash at, and ends where its driver
# does; the last one finds all of it and is compared. The first point of a run is armed before it starts.
CRASHES = (
    (("after_takeover", "after_sink_commit", "after_sink_data", "after_wave"), ()),
    (("before_sink_commit", "before_sink_transaction", "before_wave"), ("after_claim",), ()),
)
APPEND = (2, 3)  # of four tenants in a row
AT_FIRST = 4  # tenants that are there from the beginning
ATTEMPTS_MAX = 4  # for one kill
KILLS_IN_A_WORLD = 5  # every answer that is lost gives TLC more to try when it judges the trace


def make_world(folder: Path, *, tenants: int) -> World:
    """Half of them mirrors, half of them append tables, on a source with rows for all."""
    folder.mkdir()
    document = tenants_document(tenants=_names(tenants), lease={"duration": "5s"})
    for number, sink in enumerate(document["spec"]["sinks"]):
        sink["mode"] = "append" if number % 4 in APPEND else "mirror"
    world = World(folder, None, document)
    world.source(CREATE, fill(100 * tenants, tenants))
    return world


def _names(tenants: int) -> list[str]:
    return [f"t{number}" for number in range(tenants)]


@contextmanager
def load(world: World, *, seed: int, tenants: int = AT_FIRST) -> Iterator[None]:
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
                f" INSERT INTO lake.main.events SELECT i, 't' || (i % {tenants}), 0"
                f" FROM range({fresh}, {fresh + 9}) r(i); COMMIT",
                f"UPDATE lake.main.events SET tenant = 't{rng.randint(0, tenants - 1)}'"
                f" WHERE id BETWEEN {low} AND {low + 3}",
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# --- comparing ----------------------------------------------------------------------------------------


def assert_recovered(world: World, watch: Watch, tenants: Sequence[str]) -> None:
    """The source stands still now: the running process catches up, by itself, and then all is compared."""
    snapshot = world.source_rows("FROM lake.current_snapshot()")[0][0]
    eventually(
        lambda: watch.look().is_at(tenants, snapshot=snapshot),
        what="every tenant catches up",
    )
    assert_equal(world, tenants)


def assert_equal(world: World, tenants: Sequence[str]) -> None:
    """Mirrors row for row; append tables: replaying the log gives the mirror, no change is there twice."""
    modes = {sink["name"]: sink["mode"] for sink in world.document["spec"]["sinks"]}
    for tenant in tenants:
        expected = world.source_rows(f"FROM lake.main.events WHERE tenant = '{tenant}' ORDER BY ALL")
        got = world.sink_rows(tenant) if modes[tenant] == "mirror" else replayed(world, tenant)
        assert got == expected, tenant


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


# --- crash points -------------------------------------------------------------------------------------


def test_every_crash_point_is_hit_and_survived(tmp_path: Path) -> None:
    """A crash at each durable step, of the driver or of a worker, under load; compared once recovered."""
    for number, runs in enumerate(CRASHES):
        world = make_world(tmp_path / f"world-{number}", tenants=AT_FIRST)
        for points in runs:
            _live_through(world, points)
    assert {point for runs in CRASHES for points in runs for point in points} == DELIVERY


def _live_through(world: World, points: Sequence[str]) -> None:
    """One run: each point is armed, reached and recovered from before the next one is."""
    armed = world.folder / "armed"
    armed.mkdir(exist_ok=True)
    for point in points[:1]:
        (armed / point).touch()
    with running(world, TRUECUT_FAILPOINT=f"@{armed}") as process:
        watch = Watch.over(process, world)
        for point in points:
            with load(world, seed=sorted(DELIVERY).index(point)):
                _crash(process, armed / point, first=point == points[0])
            if point in DRIVER_POINTS:
                return
            assert_recovered(world, watch, _names(AT_FIRST))
        if not points:
            assert_recovered(world, watch, _names(AT_FIRST))


def _crash(process: Process, armed: Path, *, first: bool) -> None:
    """Whoever comes to the point takes its file away and is dead."""
    if not first:
        armed.touch()
    eventually(lambda: not armed.exists(), what=f"{armed.name} is reached")
    if armed.name in DRIVER_POINTS:
        eventually(process.is_dead, what="the driver is dead")


# --- random kills -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kill:
    """Whom to kill, and what has to be open at that moment."""

    victim: Literal["driver", "worker"]
    inside: Kind


# A dead driver costs another start of Spark: one in a seed and one in a wave, beside the crash points.
TEN = (
    *(Kill("driver", "seed"), Kill("worker", "seed"), Kill("worker", "seed")),
    *(Kill("driver", "wave"), *(Kill("worker", "wave"),) * 6),
)
TWENTY = (
    *TEN,
    *(Kill("driver", "seed"), Kill("driver", "wave"), Kill("worker", "seed")) * 3,
    Kill("worker", "wave"),
)


def test_random_kills_under_load(tmp_path: Path) -> None:
    """Ten kills of the driver or a worker's Python, each inside an open wave or seed, each compared."""
    killed = _kill_at_random(tmp_path, TEN, seed=1)
    assert len(killed) == 10
    assert sum(kill.inside == "seed" for kill in killed) >= 3
    assert {kill.victim for kill in killed} == {"driver", "worker"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_many_random_kills_under_load(tmp_path: Path, seed: int) -> None:
    """Twenty kills for each seed, each inside an open wave or seed, content compared after every recovery."""
    assert len(_kill_at_random(tmp_path, TWENTY, seed=100 + seed)) == 20


def _kill_at_random(folder: Path, kills: Sequence[Kill], *, seed: int) -> list[Kill]:
    """These kills in a random order, a few in each world. Returns those that were inside: all of them."""
    rng = random.Random(seed)
    order = rng.sample(kills, k=len(kills))
    sieges = [
        _besiege(folder / f"world-{first}", order[first : first + KILLS_IN_A_WORLD], rng)
        for first in range(0, len(order), KILLS_IN_A_WORLD)
    ]
    counted = [kill for siege in sieges for kill in siege.counted]
    print(f"{len(counted)} kills, and {sum(siege.attempts for siege in sieges) - len(counted)} outside")
    return counted


def _besiege(folder: Path, kills: Sequence[Kill], rng: random.Random) -> Siege:
    newcomers = ATTEMPTS_MAX * sum(kill.inside == "seed" for kill in kills)  # every attempt needs a seed
    world = make_world(folder, tenants=AT_FIRST + newcomers)
    with ExitStack() as stack:
        siege = Siege(world, stack, rng)
        for kill in kills:
            siege.insist(kill)
        assert siege.process.stop().code == 0
    # All that the dead have left behind is gone by now: nothing comes late.
    assert_equal(world, siege.tenants)
    return siege


class Siege:
    """A pipeline under load that is killed and started again; tenants join it when a seed is wanted."""

    def __init__(self, world: World, stack: ExitStack, rng: random.Random) -> None:
        self.world = world
        self.attempts = 0
        self.counted: list[Kill] = []
        names = [str(sink["name"]) for sink in world.document["spec"]["sinks"]]
        self.tenants, self._waiting = names[:AT_FIRST], names[AT_FIRST:]
        self._rows_for = len(names)
        self._stack = stack
        self._rng = rng
        self._state = world.pipeline().state
        for name in self._waiting:
            pause(self._state, sink=name)
        self._start()
        assert_recovered(world, self.watch, self.tenants)

    def _start(self) -> None:
        self.process = self._stack.enter_context(running(self.world))
        self.watch = Watch.over(self.process, self.world)

    def insist(self, kill: Kill) -> None:
        """Kill until the trace shows that it was inside."""
        for _ in range(ATTEMPTS_MAX):
            self.attempts += 1
            if self._survives(kill):
                self.counted.append(kill)
                return
        pytest.fail(f"{ATTEMPTS_MAX} times in a row {kill} was not inside")

    def _survives(self, kill: Kill) -> bool:
        """Kill, recover, compare. False: it was not inside."""
        watch = self.watch
        with load(self.world, seed=self.attempts, tenants=self._rows_for):
            if kill.inside == "seed":
                self._join()
            self._wait_until_open(kill.inside)
            struck = self._kill_driver() if kill.victim == "driver" else self._kill_worker(kill.inside)
            if struck is None:
                return False
            eventually(
                lambda: self.watch.look().delivers(since_ns=struck.until_ns),
                what="something is delivered again",
            )
        assert_recovered(self.world, self.watch, self.tenants)
        # Only now: what was open may have been answered since, and the answer says when.
        hit = [span for span in watch.look().spans if span.covers(struck)]
        # The driver was the one to answer; a worker was in the wave that failed with it.
        answer = None if kill.victim == "driver" else "WaveFail"
        return any((span.kind, span.answer) == (kill.inside, answer) for span in hit)

    def _join(self) -> None:
        self.tenants.append(self._waiting.pop(0))
        resume(self._state, sink=self.tenants[-1])

    def _wait_until_open(self, kind: Kind) -> None:
        eventually(
            lambda: kind in self.watch.look().open,
            pause_s=0.005,
            what=f"a {kind} is open",
        )
        time.sleep(self._rng.uniform(0, 0.1))

    def _kill_driver(self) -> Moment:
        """The next one starts at once, while what the dead one has started has still to notice."""
        assert not self.process.is_dead(), "the driver ended by itself"
        struck = moment_of(self.process.kill)
        self._start()
        return struck

    def _kill_worker(self, kind: Kind) -> Moment | None:
        """One that computes: most of them only wait for their next task, and nobody would miss those.

        None: the seed was over before one was seen at work. Waves come again.
        """
        struck: list[Moment] = []

        def strike_or_miss() -> bool:
            victims = _at_work(self.process.workers(role="aside" if kind == "seed" else "sinks"))
            if victims:
                struck.append(moment_of(self._rng.choice(victims).kill))
            return bool(struck) or (kind == "seed" and "seed" not in self.watch.look().open)

        eventually(strike_or_miss, pause_s=0, what="a worker is at work")
        return struck[0] if struck else None


def _at_work(workers: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that compute at this moment."""
    before = {worker: _cpu_s(worker) for worker in workers}
    time.sleep(0.02)
    return [worker for worker in workers if _cpu_s(worker) > before[worker]]


def _cpu_s(worker: psutil.Process) -> float:
    try:
        times = worker.cpu_times()
    except psutil.NoSuchProcess:  # Spark ends those that it does not need
        return 0.0
    return float(times.user + times.system)
