"""One seeded life of a pipeline: several runners, as they are, in a world that does what it likes.

    python -m tests.runtime.simulation.life SEED [storm|hang|limp|edit|unread|stop|relay|gone|again]

A time of trouble, then everything heals; then every copy has to become current within bounded virtual time,
a clean stop has to end, and a run until caught up has to get there. The laws (`laws`) are checked at every
answer of a sink.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.runtime.simulation import weather
from tests.runtime.simulation.clockwork import Broken
from tests.runtime.simulation.laws import HEED_MS, Laws
from tests.runtime.simulation.world import World
from truecut.runtime.until import Until

TROUBLE_MS = (10_000, 40_000)
HANGING_MS = (60_000, 120_000)
LIMP_MS = 3_000  # two refusals in a row are tried again that late
HEALING_MS = 900_000  # a seed without an answer is given up after ten minutes
STOPPING_MS = 120_000
QUIET_MS = 40_000
LOOK_STEPS = 50

Log = Callable[[str], None]


def _silent(_: str) -> None:
    pass


def storm(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """Some of everything goes wrong."""
    return _live(seed, folder, log, _storm)


def hang(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """One sink hangs for good: the others are delayed by at most one deadline, once."""
    return _live(seed, folder, log, _hang, brisk=True)


def limp(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """One sink hangs for good, the others fail now and then: what they are late by is no other's deadline."""
    return _live(seed, folder, log, _limp, brisk=True)


def edit(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """Sinks come and go while the pipeline runs, and everything else goes wrong."""
    return _live(seed, folder, log, _edit, edited=True)


def unread(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """One table cannot be read any more: the others are not delayed, and the view says which and why."""
    return _live(seed, folder, log, _unread, brisk=True)


def stop(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """A clean stop while a seed hangs: what is known of the other sinks becomes durable all the same."""
    with _world(seed, folder, log) as world:
        world.birth()
        weather.hanging_seed(world)
        _until(world, QUIET_MS)
        _require_stop(world)
        return world.laws


def relay(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """A table is held; perhaps somebody resumes it; perhaps its run is killed at about that time, perhaps
    another run goes on. A run until caught up that starts at once says the truth about it."""
    with _world(seed, folder, log, brisk=True) as world:
        coin = world.clockwork.happens
        for _ in range(world.clockwork.rng.choice([1, 2])):
            world.birth()
        weather.held(world)
        _until(world, QUIET_MS)
        if coin(0.7):
            world.users.resume_table(weather.HELD)
            _until(world, world.clockwork.between(0, 1_500))
        world.stopping = True
        for process in [process for process in world.processes if coin(0.7)]:
            process.kill()
        _require_caught_up(world)
        return world.laws


def gone(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """A table cannot be read any more: a run until caught up ends all the same, with everything else, and
    says which one it is; also when another run goes on and has its sinks."""
    with _world(seed, folder, log, brisk=True) as world:
        world.birth()
        table = weather.unread(world)
        _until(world, QUIET_MS)
        world.calm()
        world.stopping = True
        if world.clockwork.happens(0.5):
            world.processes[0].kill()
        world.birth(Until(caught_up=True))
        process = world.processes[-1]
        _until(world, HEALING_MS, lambda: process.over)
        world.laws.others_are_there(world.cluster.sinks.values(), without=table)
        outcome = process.outcome
        if outcome is None or outcome.reached or any(table not in why for why in outcome.stragglers.values()):
            raise Broken(f"WhatIsGoneIsNamed: {table}, {outcome}")
        return world.laws


def again(seed: int, folder: Path, *, log: Log = _silent) -> Laws:
    """Tables are read again while everything goes wrong: each sink that does not hold the table shows the
    last request that was meant for it."""
    with _world(seed, folder, log) as world:
        for _ in range(world.clockwork.rng.choice([1, 2])):
            world.birth()
        weather.read_again(world)
        _until(world, world.clockwork.between(*TROUBLE_MS))
        world.heal()
        _require_current(world)
        _until(world, HEALING_MS, lambda: not world.laws.unread_again(world.cluster.sinks.values()))
        if left := world.laws.unread_again(world.cluster.sinks.values()):
            raise Broken(f"RequestsAreAnswered: {left}")
        _require_current(world)
        _require_stop(world)
        return world.laws


@contextmanager
def _world(
    seed: int, folder: Path, log: Log, *, brisk: bool = False, edited: bool = False
) -> Iterator[World]:
    shutil.rmtree(folder, ignore_errors=True)
    world = World(seed, folder, log=log, brisk=brisk, edited=edited)
    try:
        yield world
    finally:
        world.close()


def _live(
    seed: int,
    folder: Path,
    log: Log,
    trouble: Callable[[World], None],
    *,
    brisk: bool = False,
    edited: bool = False,
) -> Laws:
    with _world(seed, folder, log, brisk=brisk, edited=edited) as world:
        for _ in range(world.clockwork.rng.choice([1, 2, 2, 3])):
            world.birth()
        trouble(world)
        world.heal()
        _require_current(world)
        _require_stop(world)
        if world.clockwork.happens(0.3):
            _require_caught_up(world)
        for store in world.stores:
            world.laws.counted_once(store.rows_counted())
        return world.laws


def _storm(world: World) -> None:
    weather.storm(world)
    _until(world, world.clockwork.between(*TROUBLE_MS))


def _edit(world: World) -> None:
    weather.edits(world)
    _until(world, world.clockwork.between(*TROUBLE_MS))


def _hang(world: World) -> None:
    name = weather.hang(world)
    _until(world, world.clockwork.between(*HANGING_MS))
    world.laws.one_deadline_once(sink for sink in world.cluster.sinks.values() if sink.name != name)


def _limp(world: World) -> None:
    name = weather.limp(world)
    _until(world, world.clockwork.between(*HANGING_MS))
    others = (sink for sink in world.cluster.sinks.values() if sink.name != name)
    world.laws.one_deadline_once(others, own_ms=LIMP_MS)


def _unread(world: World) -> None:
    table = weather.unread(world)
    _until(world, world.clockwork.between(*HANGING_MS))
    world.laws.others_go_on(world.cluster.sinks.values(), without=table)
    world.laws.aborted_waits()
    world.laws.trouble_is_told(world.processes, table)


def _until(world: World, duration_ms: int, reached: Callable[[], bool] = lambda: False) -> None:
    clockwork, steps = world.clockwork, 0
    end_ms = clockwork.now_ms + duration_ms
    while clockwork.now_ms < end_ms and clockwork.step():
        steps += 1
        if steps % LOOK_STEPS == 0 and reached():
            return


def _require_current(world: World) -> None:
    _until(world, HEALING_MS, lambda: not world.lacking())
    if lacking := world.lacking():
        raise Broken(f"EveryCopyBecomesCurrent: {'; '.join(lacking)}")
    if world.edited:
        _until(world, HEED_MS, lambda: not world.leased_in_vain())
    if leased := world.leased_in_vain():
        raise Broken(f"RetiredStandsStill: somebody has a lease of {leased}")


def _require_stop(world: World) -> None:
    world.stopping = True
    for process in world.processes:
        process.stop()
    _until(world, STOPPING_MS, lambda: not world.processes)
    if world.processes:
        raise Broken(f"AStopEnds: {world.processes[0].name} still runs")


def _require_caught_up(world: World) -> None:
    """A run until caught up reaches the head with everything that is not held."""
    for _ in range(world.clockwork.between(0, 3)):
        world.history.commit()
    world.birth(Until(caught_up=True))
    process = world.processes[-1]
    _until(world, HEALING_MS, lambda: process.over)
    held = any(s.holds() for s in world.cluster.sinks.values() if s.name not in world.removed_ms)
    lacking = world.lacking(rows_only=bool(world.processes))  # a run that goes on may have let go of a sink
    if process.outcome is None or process.outcome.reached == held or lacking:
        raise Broken(f"CaughtUpIsReached: {process.outcome}, {lacking}")
    if world.users.unanswered():
        raise Broken(f"RequestsAreAnswered: {world.users.unanswered()} is still asked for")


if __name__ == "__main__":
    kinds = {
        "storm": storm,
        "hang": hang,
        "limp": limp,
        "edit": edit,
        "unread": unread,
        "stop": stop,
        "relay": relay,
        "gone": gone,
        "again": again,
    }
    how = kinds[(sys.argv[2:] or ["storm"])[0]]
    with tempfile.TemporaryDirectory() as scratch:
        how(int(sys.argv[1]), Path(scratch) / "state", log=print)
