"""A random life of one sink against a plain model of what it promises.

The source is a dict of keys that changes from place to place. Orders carry its windows, seed again, run
twice, come from stale owners or from the wrong place, break off before their commit; tenants run their
maintenance; owners change. After every step the lake, read by plain duckdb, must equal the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from tests.sinks.world import (
    MAINTENANCE,
    Change,
    changes,
    cursor_of,
    order,
    packets,
    position,
    read,
    seed,
    sink,
    tenant,
)
from truecut.lake import LakeAddress
from truecut.model.change import DELETE, INSERT, OP_NAMES, READ, UPDATE
from truecut.model.order import Order, Receipt

KEYS = range(6)
Step = Callable[[LakeAddress, Random, "Source", "Model"], None]


@dataclass
class Source:
    """Rows by key, and every change that was ever made."""

    live: dict[int, str] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    place: int = 1

    def advance(self, random: Random) -> None:
        """A new place, in which some keys change once each."""
        self.place += 1
        for key in random.sample(KEYS, random.randint(0, 4)):
            value = f"{key}@{self.place}"
            if key not in self.live:
                self.log.append((INSERT, self.place, key, value))
                self.live[key] = value
            elif random.random() < 0.5:
                self.log.append((UPDATE, self.place, key, value))
                self.live[key] = value
            else:
                self.log.append((DELETE, self.place, key, self.live.pop(key)))

    def window(self, after: int) -> list[Change]:
        return [change for change in self.log if change[1] > after]

    def seed(self) -> list[Change]:
        return [(READ, self.place, key, value) for key, value in self.live.items()]


@dataclass
class Model:
    """What the sink must hold: a mirror, an append table, its cursor and its owner."""

    token: int = 1
    place: int | None = None
    mirror: dict[int, str] = field(default_factory=dict)
    log: list[tuple[str, str, int, str]] = field(default_factory=list)  # op, position, id, value
    last: tuple[Order, list[Change], list[Change]] | None = None

    def append(self, found: list[Change]) -> None:
        self.log += [(OP_NAMES[op], str(position(place)), key, value) for op, place, key, value in found]


def live(address: LakeAddress, random: Random, steps: int) -> None:
    """One life; AssertionError where the sink is not what the model says."""
    source, model = Source(), Model()
    recover(address, model)
    compare(address, model)
    for _ in range(steps):
        for _ in range(random.randint(1, 3)):
            source.advance(random)
        step = random.choice(STEPS if model.place is not None else [seeds])
        step(address, random, source, model)
        compare(address, model)


def recover(address: LakeAddress, model: Model) -> None:
    receipt = sink(address).recover(epoch=1, token=model.token)
    assert receipt.cursor is not None, receipt.fault
    assert receipt.cursor.token == model.token


def compare(address: LakeAddress, model: Model) -> None:
    """Everything the tenant can see."""
    place = None if model.place is None else str(position(model.place))
    assert cursor_of(address) == (place, model.token)
    if model.place is None:
        return
    assert read(address, "t") == sorted(model.mirror.items())
    columns = "_truecut_op, _truecut_position, id, value"
    assert read(address, "log", columns) == sorted(model.log)


def send(address: LakeAddress, wanted: Order, mirror: list[Change], log: list[Change]) -> Receipt:
    return sink(address).apply(wanted, packets(t=mirror, log=log))


def seeds(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """Both tables for the first time; later the mirror anew while the append table goes on."""
    first = model.place is None
    log = source.seed() if first else source.window(model.place or 0)
    wanted = order(
        model.place,
        source.place,
        token=model.token,
        t=seed(),
        log=seed("append") if first else changes("append"),
    )
    assert send(address, wanted, source.seed(), log).outcome == "applied"
    model.append(log)
    model.mirror, model.place, model.last = dict(source.live), source.place, (wanted, source.seed(), log)


def streams(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The next window."""
    assert model.place is not None
    found = source.window(model.place)
    wanted = order(model.place, source.place, token=model.token, t=changes(), log=changes("append"))
    assert send(address, wanted, found, found).outcome == "applied"
    model.append(found)
    model.mirror, model.place, model.last = dict(source.live), source.place, (wanted, found, found)


def breaks_off(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The next window fails at each point of its way, then goes through."""
    assert model.place is not None
    found = source.window(model.place)
    wanted = order(model.place, source.place, token=model.token, t=changes(), log=changes("append"))
    for point in ("before_sink_transaction", "after_sink_data", "before_sink_commit"):
        with patch.dict(os.environ, {"TRUECUT_FAILPOINT": f"{point}:error"}):
            assert send(address, wanted, found, found).outcome == "failed"
        compare(address, model)
    streams(address, random, source, model)


def runs_twice(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The last order again."""
    if model.last is None or model.last[0].token != model.token:
        return
    assert send(address, *model.last).outcome == "already"


def stale_owner(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """A takeover; then the old owner goes on as if nothing had happened."""
    assert model.place is not None
    older, model.token = model.token, model.token + random.randint(1, 3)
    recover(address, model)
    found = source.window(model.place)
    wanted = order(model.place, source.place, token=older, t=changes(), log=changes("append"))
    assert send(address, wanted, found, found).fenced_by == model.token
    assert sink(address).recover(epoch=1, token=older).fenced_by == model.token


def wrong_place(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """An order of the owner's that expects another place."""
    assert model.place is not None
    elsewhere = random.choice([None, model.place - 1, model.place + 1])
    found = [(INSERT, source.place + 5, 99, "x")]
    wanted = order(elsewhere, source.place + 5, token=model.token, t=changes(), log=changes("append"))
    assert send(address, wanted, found, found).outcome == "failed"


def maintains(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The tenant's own maintenance, some of it."""
    tenant(address, *(statement for statement in MAINTENANCE if random.random() < 0.6))


STEPS: list[Step] = [
    streams,
    streams,
    streams,
    seeds,
    breaks_off,
    runs_twice,
    stale_owner,
    wrong_place,
    maintains,
]


def every_step(address: LakeAddress) -> None:
    """A short life in which every kind of step happens."""
    random, source, model = Random(7), Source(), Model()
    recover(address, model)
    for step in _in_turn():
        source.advance(random)
        source.advance(random)
        step(address, random, source, model)
        compare(address, model)


def _in_turn() -> Iterator[Step]:
    yield from (seeds, streams, runs_twice, streams, breaks_off, stale_owner, streams, wrong_place, seeds)
    yield from (maintains, streams, stale_owner, runs_twice, streams)
