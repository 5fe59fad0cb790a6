"""A random life of one sink against a plain model of what it promises.

The source is a dict of keys that changes from place to place. Orders carry its windows, seed again, run
twice, come from stale owners or from the wrong place, break off before their commit; tenants run their
maintenance; owners change. After every step the lake, read by plain duckdb, must equal the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from unittest.mock import patch

from tests.sinks.world import (
    MAINTENANCE,
    Change,
    Wish,
    changes,
    cursor_of,
    held,
    order_of,
    packets,
    persisted,
    places_of,
    position,
    read,
    seed,
    sink,
    tenant,
)
from truecut.lake import LakeAddress
from truecut.model.change import DELETE, INSERT, OP_NAMES, READ, UPDATE
from truecut.model.cursor import Version
from truecut.model.order import Order, Receipt

KEYS = range(6)
BOTH = {"t": changes(), "log": changes("append")}
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
    """What the sink must hold: a mirror `t`, an append table `log`, each at its own place, and its owner."""

    token: int = 1
    position: int | None = None
    versions: dict[str, Version] = field(default_factory=dict)  # by table
    mirror: dict[int, str] = field(default_factory=dict)
    log: list[tuple[str, str, int, str]] = field(default_factory=list)  # op, position, id, value
    last: tuple[Order, dict[str, list[Change]]] | None = None

    def append(self, found: list[Change]) -> None:
        self.log += [(OP_NAMES[op], str(position(place)), key, value) for op, place, key, value in found]

    def at(self, table: str) -> int:
        return self.versions[table].at.place


def live(address: LakeAddress, random: Random, steps: int) -> None:
    """One life; AssertionError where the sink is not what the model says."""
    source, model = Source(), Model()
    recover(address, model)
    compare(address, model)
    for _ in range(steps):
        for _ in range(random.randint(1, 3)):
            source.advance(random)
        step = random.choice(STEPS if model.versions else [seeds])
        step(address, random, source, model)
        compare(address, model)


def recover(address: LakeAddress, model: Model) -> None:
    receipt = sink(address).recover(epoch=1, token=model.token)
    assert receipt.cursor is not None, receipt.fault
    assert receipt.cursor.token == model.token


def compare(address: LakeAddress, model: Model) -> None:
    """Everything the tenant can see."""
    place = None if model.position is None else str(position(model.position))
    assert cursor_of(address) == (place, model.token)
    if not model.versions:
        return
    assert places_of(address) == {
        f"main.{table}": [str(version.at), version.edition, version.hold, version.resumed]
        for table, version in model.versions.items()
    }
    assert read(address, "t") == sorted(model.mirror.items())
    columns = "_truecut_op, _truecut_position, id, value"
    assert read(address, "log", columns) == sorted(model.log)


def wanted_of(
    model: Model, upto: int, tables: Mapping[str, Wish], *, token: int | None = None, shift: int = 0
) -> Order:
    """An order from where the model says that the copies are, or from a place beside it."""
    named = {}
    for name, wish in tables.items():
        before = model.versions.get(name)
        if before is not None:
            at = replace(before.at, place=before.at.place + shift)
            resumed = max(before.resumed, wish.resumed)
            wish = replace(wish, before=replace(before, at=at), resumed=resumed)
        named[name] = wish
    return order_of(named, None, upto, token=model.token if token is None else token)


def carry_out(
    address: LakeAddress, source: Source, model: Model, wanted: Order, found: dict[str, list[Change]]
) -> None:
    """The order must go through; then the model is where it leaves its copies."""
    assert send(address, wanted, found).outcome == "applied"
    alone = not model.versions.keys() - {name.removeprefix("main.") for name in wanted.tables}
    for name, one in wanted.tables.items():
        table = name.removeprefix("main.")
        model.versions[table] = one.leaves
        if alone or one.kind != "replace":
            model.position = max(model.position or 0, one.leaves.at.place)
        if one.kind in ("changes", "replace"):
            if table == "log":
                model.append(found["log"])
            else:
                model.mirror = dict(source.live)
    model.last = wanted, found


def send(address: LakeAddress, wanted: Order, found: dict[str, list[Change]]) -> Receipt:
    return sink(address).apply(wanted, packets(**found))


def seeds(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """Both tables for the first time; later the mirror anew, wherever the append table stands."""
    if model.versions:
        carry_out(address, source, model, wanted_of(model, source.place, {"t": seed()}), {"t": source.seed()})
        return
    wanted = wanted_of(model, source.place, {"t": seed(), "log": seed("append")})
    carry_out(address, source, model, wanted, {"t": source.seed(), "log": source.seed()})


def streams(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The next window of both tables, each from its own place."""
    wanted = wanted_of(model, source.place, BOTH)
    carry_out(address, source, model, wanted, windows(source, model))


def streams_one(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The next window of one table; the other stays where it is."""
    table = random.choice(["t", "log"])
    wish = changes() if table == "t" else changes("append")
    wanted = wanted_of(model, source.place, {table: wish})
    carry_out(address, source, model, wanted, {table: windows(source, model)[table]})


def windows(source: Source, model: Model) -> dict[str, list[Change]]:
    return {table: source.window(model.at(table)) for table in ("t", "log")}


def holds_and_releases(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The append table is held, then a request lifts that; the hold, run late, is refused."""
    stops = wanted_of(model, model.at("log"), {"log": held("TC2999", "stopped", "append")})
    carry_out(address, source, model, stops, {})
    compare(address, model)
    asked = model.versions["log"].resumed + 1
    lifts = wanted_of(model, model.at("log"), {"log": replace(persisted("append"), resumed=asked)})
    carry_out(address, source, model, lifts, {})
    assert send(address, stops, {}).outcome == "failed"


def breaks_off(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The next window fails at each point of its way, then goes through."""
    wanted = wanted_of(model, source.place, BOTH)
    for point in ("before_sink_transaction", "after_sink_data", "before_sink_commit"):
        with patch.dict(os.environ, {"TRUECUT_FAILPOINT": f"{point}:error"}):
            assert send(address, wanted, windows(source, model)).outcome == "failed"
        compare(address, model)
    streams(address, random, source, model)


def runs_twice(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The last order again."""
    if model.last is None or model.last[0].token != model.token:
        return
    assert send(address, *model.last).outcome == "already"


def stale_owner(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """A takeover; then the old owner goes on as if nothing had happened."""
    older, model.token = model.token, model.token + random.randint(1, 3)
    recover(address, model)
    wanted = wanted_of(model, source.place, BOTH, token=older)
    assert send(address, wanted, windows(source, model)).fenced_by == model.token
    assert sink(address).recover(epoch=1, token=older).fenced_by == model.token


def wrong_place(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """An order of the owner's that expects another place of one of its tables."""
    found = [(INSERT, source.place + 5, 99, "x")]
    wanted = wanted_of(model, source.place + 5, BOTH)
    shifted = wanted_of(model, source.place + 5, {"log": changes("append")}, shift=random.choice([-1, 1]))
    wanted = replace(wanted, tables={**wanted.tables, **shifted.tables})
    assert send(address, wanted, {"t": found, "log": found}).outcome == "failed"


def maintains(address: LakeAddress, random: Random, source: Source, model: Model) -> None:
    """The tenant's own maintenance, some of it."""
    tenant(address, *(statement for statement in MAINTENANCE if random.random() < 0.6))


STEPS: list[Step] = [
    streams,
    streams,
    streams,
    seeds,
    streams_one,
    streams_one,
    holds_and_releases,
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
    yield from (maintains, streams_one, streams_one, runs_twice, holds_and_releases, seeds, streams)
    yield from (stale_owner, runs_twice, streams)
