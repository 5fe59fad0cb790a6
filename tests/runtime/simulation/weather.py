"""What goes wrong in a life. `storm`: some of everything. `hang`: one sink hangs for good, little else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.runtime.simulation.jobs import Troubles
from tests.runtime.simulation.pipeline import TABLES
from tests.runtime.simulation.store import Store, StoreTroubles
from tests.runtime.simulation.world import World

Span = tuple[int, int]
RARELY: Span = (2_000, 25_000)
NEVER_MS = 1 << 60
HELD = TABLES[0]


def storm(world: World) -> None:
    """Each life has some kinds of trouble, not all."""
    rng = world.clockwork.rng

    def some(high: float, chance: float = 0.5) -> float:
        return rng.uniform(0, high) if rng.random() < chance else 0.0

    world.cluster.troubles = Troubles(
        busy=some(0.2),
        answer_lost=some(0.2),
        twice=some(0.3),
        stop=some(0.1, 0.3),
        job_lost=some(0.2),
        slow=some(0.1, 0.3),
    )
    world.store.troubles = StoreTroubles(kill=some(0.01, 0.3), answer_lost=some(0.02, 0.3))
    again(world, world.history.commit, (200, rng.choice([2_000, 6_000])))
    kinds = (
        _hang,
        _freeze,
        _kill,
        _store_down,
        _store_lost,
        _source_down,
        _unread,
        _away,
        _expire,
        _damage,
        _unfit,
        _replace,
    )
    for happens in (*kinds, _users, _users):
        if rng.random() < 0.4:
            again(world, partial(happens, world), RARELY)
    if rng.random() < 0.1:
        again(world, partial(_store_split, world), RARELY)


def hang(world: World) -> str:
    """One sink hangs from some moment on, for ever; now and then a job fails as a whole. Who hangs."""
    clockwork = world.clockwork
    world.pace_ms = (50, 300)
    name = clockwork.rng.choice(sorted(world.cluster.sinks))
    again(world, world.history.commit, (200, 2_000))

    def begin() -> None:
        clockwork.say(f"{name} hangs")
        world.cluster.hang(name)
        world.cluster.troubles = Troubles(job_lost=clockwork.rng.choice([0.0, 0.1]))

    clockwork.after_ms(clockwork.between(10_000, 15_000), begin)
    return name


def limp(world: World) -> str:
    """The same, and each of the others refuses now and then, at once. Who hangs."""
    name = hang(world)
    others = sorted(world.cluster.sinks.keys() - {name})
    again(world, lambda: world.cluster.refusing.add(world.clockwork.rng.choice(others)), (3_000, 9_000))
    return name


def unread(world: World) -> str:
    """One table cannot be read by anybody from some moment on, for ever. Which one."""
    clockwork = world.clockwork
    world.pace_ms = (50, 300)
    table = clockwork.rng.choice(TABLES)
    again(world, world.history.commit, (200, 2_000))

    def begin() -> None:
        clockwork.say(f"{table} cannot be read")
        world.history.unread_until_ms[table] = NEVER_MS

    clockwork.after_ms(clockwork.between(10_000, 15_000), begin)
    return table


def edits(world: World) -> None:
    """A storm, and somebody who edits the file all the time: sinks come and go, one for the first time."""
    storm(world)
    names = [sink.name for sink in world.whole.sinks]
    world.edit(world.clockwork.rng.choice(names))
    again(world, lambda: world.edit(world.clockwork.rng.choice(names)), (500, 12_000))


def read_again(world: World) -> None:
    """A storm, and somebody who wants tables read again all the time."""
    storm(world)
    again(world, world.users.read_again, (1_000, 10_000))


def held(world: World) -> None:
    """A table of one sink has to stop, and stays so; then the source rests."""
    again(world, world.history.commit, (200, 1_000))
    world.clockwork.after_ms(10_000, lambda: world.cluster.stop_once("a", HELD))
    world.clockwork.after_ms(30_000, world.calm)


def hanging_seed(world: World) -> None:
    """A table of one sink has to stop; somebody resumes it; the sink hangs in its seed. Others go on."""
    clockwork = world.clockwork
    again(world, world.history.commit, (200, 1_000))
    clockwork.after_ms(10_000, lambda: world.cluster.stop_once("a", TABLES[0]))
    clockwork.after_ms(20_000, lambda: world.users.resume_table(TABLES[0]))
    clockwork.after_ms(20_000, lambda: _hang_in_seed(world, "a"))
    clockwork.after_ms(35_000, world.calm)


def _hang_in_seed(world: World, sink: str) -> None:
    """As soon as its seed is under way."""
    waves = [wave for process in world.processes for wave in process.runner._running.values()]
    if any(wave.kind == "seed" and sink in wave.sinks for wave in waves):
        world.clockwork.say(f"{sink} hangs in its seed")
        world.cluster.hang(sink)
    else:
        world.clockwork.after_ms(1, lambda: _hang_in_seed(world, sink))


def again(world: World, act: Callable[[], None], span: Span) -> None:
    """Now and then, as long as there is trouble."""

    def happen() -> None:
        if world.troubled:
            act()
            again(world, act, span)

    world.clockwork.after_ms(world.clockwork.between(*span), happen)


def _users(world: World) -> None:
    world.users.act()


def _hang(world: World) -> None:
    name = world.clockwork.rng.choice(sorted(world.cluster.sinks))
    world.clockwork.say(f"{name} hangs")
    world.cluster.hang(name)
    world.clockwork.after_ms(world.clockwork.between(1_000, 40_000), lambda: world.cluster.release(name))


def _freeze(world: World) -> None:
    if world.processes:
        process = world.clockwork.rng.choice(world.processes)
        world.clockwork.say(f"{process.name} is stopped")
        process.freeze(world.clockwork.between(1_000, 30_000))


def _kill(world: World) -> None:
    if world.processes:
        world.clockwork.rng.choice(world.processes).kill()


def _store_down(world: World) -> None:
    world.clockwork.say("the store is down")
    world.store.down_until_ms = world.clockwork.now_ms + world.clockwork.between(500, 15_000)


def _store_lost(world: World) -> None:
    world.clockwork.say("the store is lost")
    world.store.lose()


def _store_lost_in_trouble(world: World) -> None:
    """Not after everything has healed: whoever then winds down could not make durable what is known."""
    if world.troubled:
        _store_lost(world)


def _store_split(world: World) -> None:
    """The file was moved away: whoever starts from now on uses another store than those who run."""
    world.clockwork.say("there is another store")
    world.stores.append(Store(world.clockwork))
    world.birth()


def _source_down(world: World) -> None:
    world.clockwork.say("the source is down")
    world.history.down_until_ms = world.clockwork.now_ms + world.clockwork.between(500, 15_000)


def _replace(world: World) -> None:
    """Another source at the same address, a few times in a life at most; often the store is lost then."""
    history, clockwork = world.history, world.clockwork
    if len(history.begins) < 5:
        history.replace()
        clockwork.say(f"the source is replaced by {history.identity}")
        if clockwork.happens(0.5):
            clockwork.after_ms(clockwork.between(0, 20_000), partial(_store_lost_in_trouble, world))


def _unread(world: World) -> None:
    table = world.clockwork.rng.choice(TABLES)
    world.clockwork.say(f"{table} cannot be read for a while")
    world.history.unread_until_ms[table] = world.clockwork.now_ms + world.clockwork.between(500, 15_000)


def _expire(world: World) -> None:
    history = world.history
    history.oldest = world.clockwork.between(history.oldest, history.head)
    world.clockwork.say(f"expired before {history.oldest}")


def _damage(world: World) -> None:
    table = world.clockwork.rng.choice(TABLES)
    world.history.damaged[table] = world.clockwork.between(0, world.history.head)
    world.clockwork.say(f"{table} is damaged before {world.history.damaged[table]}")


def _away(world: World) -> None:
    table = world.clockwork.rng.choice(TABLES)
    world.history.away[table] = world.clockwork.between(0, world.history.head)
    world.clockwork.say(f"{table} was away before {world.history.away[table]}")


def _unfit(world: World) -> None:
    table = world.clockwork.rng.choice(TABLES)
    world.history.unfit[table] = world.history.head + 1
    world.clockwork.say(f"{table} is unfit at {world.history.unfit[table]}")
