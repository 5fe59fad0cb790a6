"""A random life of one sink against a plain model of what it promises.

The source is a dict of keys that changes from place to place, and tells of it as a log does: one event after
another, without the values that did not change, sometimes a truncate, deletes by key alone. Orders carry its
windows, seed again, run twice, come from stale owners or from the wrong place, break off before their commit;
tenants run their maintenance; owners change. After every step the destination, read by its own plain client,
must equal the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol
from unittest.mock import patch

from tests.sinks import database, world
from truecut.lake import LakeAddress
from truecut.model.change import DELETE, INSERT, OP_NAMES, READ, TRUNCATE, UPDATE
from truecut.model.cursor import Version
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Packet, Sink
from truecut.sinks.postgres.address import PostgresAddress
from truecut.testing.orders import (
    ABSENT,
    NOTED,
    Change,
    Wish,
    changes,
    held,
    order_of,
    persisted,
    position,
    rows,
    seed,
)

KEYS = range(6)
BOTH = {"t": changes(schema=NOTED), "log": changes("append", NOTED)}
SEEDS = {"t": seed(schema=NOTED), "log": seed("append", NOTED)}
LOG = "_truecut_op, _truecut_position, id, value, note, _truecut_unchanged"
Row = tuple[str | None, ...]  # without its key
Step = Callable[["Destination", Random, "Source", "Model"], None]


class Destination(Protocol):
    """A sink, and what its own client sees of it."""

    def sink(self) -> Sink[Any]: ...

    def watched(self) -> AbstractContextManager[None]: ...

    def cursor(self) -> database.Seen: ...

    def read(self, table: str, columns: str) -> Sequence[tuple[Any, ...]]: ...

    def maintain(self, random: Random) -> None: ...


@dataclass(frozen=True)
class LakeDestination:
    """A DuckLake, seen by plain duckdb."""

    address: LakeAddress

    def sink(self) -> Sink[Any]:
        return world.sink(self.address)

    def watched(self) -> AbstractContextManager[None]:
        return world.watched(self.address) if self.address.shared else nullcontext()

    def cursor(self) -> database.Seen:
        return world.seen(self.address)

    def read(self, table: str, columns: str) -> Sequence[tuple[Any, ...]]:
        return world.read(self.address, table, columns)

    def maintain(self, random: Random) -> None:
        world.tenant(self.address, *(one for one in world.MAINTENANCE if random.random() < 0.6))


@dataclass(frozen=True)
class DatabaseDestination:
    """A PostgreSQL, seen by plain psycopg."""

    address: PostgresAddress

    def sink(self) -> Sink[Any]:
        return database.sink(self.address)

    def watched(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cursor(self) -> database.Seen:
        return database.seen(self.address)

    def read(self, table: str, columns: str) -> Sequence[tuple[Any, ...]]:
        return database.read(self.address, f"SELECT {columns} FROM main.{table}")

    def maintain(self, random: Random) -> None:
        database.owner(self.address, "VACUUM")


@dataclass
class Source:
    """Rows by key, and every event that was ever logged."""

    live: dict[int, Row] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    place: int = 1
    texts: int = 0

    def advance(self, random: Random) -> None:
        """A new place with some events, several of them perhaps of one key."""
        self.place += 1
        for _ in range(random.randint(0, 6)):
            self._event(random, random.choice(KEYS))

    def _event(self, random: Random, key: int) -> None:
        if random.random() < 0.06:
            self.live = {}
            self.log.append((TRUNCATE, self.place))
        elif key not in self.live:
            self._insert(key, tuple(self._text(random) for _ in range(2)))
        elif random.random() < 0.5:
            self._put(UPDATE, key, self.live[key], self._changed(random, self.live[key]))
        elif random.random() < 0.5:
            self._delete(random, key)
        else:
            self._move(random, key)

    def _text(self, random: Random) -> str | None:
        self.texts += 1
        return None if random.random() < 0.2 else f"text {self.texts}"

    def _changed(self, random: Random, old: Row) -> Row:
        return tuple(value if random.random() < 0.6 else self._text(random) for value in old)

    def _insert(self, key: int, row: Row) -> None:
        self.log.append((INSERT, self.place, key, *row))
        self.live[key] = row

    def _put(self, op: int, key: int, old: Row, row: Row) -> None:
        """What did not change is not sent."""
        sent = (ABSENT if new == was else new for new, was in zip(row, old, strict=True))
        self.log.append((op, self.place, key, *sent))
        self.live[key] = row

    def _delete(self, random: Random, key: int) -> Row:
        row = self.live.pop(key)
        self.log.append((DELETE, self.place, key, *(row if random.random() < 0.5 else ())))
        return row

    def _move(self, random: Random, key: int) -> None:
        """A changed key."""
        free = [other for other in KEYS if other not in self.live]
        if free:
            row = self._delete(random, key)
            self._put(INSERT, random.choice(free), row, self._changed(random, row))

    def window(self, after: int) -> list[Change]:
        return [change for change in self.log if change[1] > after]

    def seed(self) -> list[Change]:
        return [(READ, self.place, key, *row) for key, row in self.live.items()]


@dataclass
class Model:
    """What the sink must hold: a mirror `t`, an append table `log`, each at its own place, and its owner."""

    token: int = 1
    position: int | None = None
    versions: dict[str, Version] = field(default_factory=dict)  # by table
    mirror: dict[int, Row] = field(default_factory=dict)
    log: list[tuple[Any, ...]] = field(default_factory=list)  # as in LOG
    last: tuple[Order, dict[str, list[Change]]] | None = None

    def append(self, found: list[Change]) -> None:
        for op, place, *values in found:
            values += [None] * (3 - len(values))
            absent = [name for name, value in zip(NOTED.names, values, strict=True) if value is ABSENT]
            told = (None if value is ABSENT else value for value in values)
            self.log.append((OP_NAMES[op], str(position(place)), *told, absent or None))

    def at(self, table: str) -> int:
        return self.versions[table].at.place


def live(where: Destination, random: Random, steps: int) -> None:
    """One life; AssertionError where the sink is not what the model says."""
    source, model = Source(), Model()
    recover(where, model)
    with where.watched():
        compare(where, model)
        for _ in range(steps):
            for _ in range(random.randint(1, 3)):
                source.advance(random)
            step = random.choice(STEPS if model.versions else [seeds])
            step(where, random, source, model)
            compare(where, model)


def recover(where: Destination, model: Model) -> None:
    receipt = where.sink().recover(epoch=1, token=model.token)
    assert receipt.cursor is not None, receipt.fault
    assert receipt.cursor.token == model.token


def compare(where: Destination, model: Model) -> None:
    """Everything the tenant can see."""
    place = None if model.position is None else str(position(model.position))
    places = {
        f"main.{table}": [str(version.at), version.edition, version.hold, version.resumed]
        for table, version in model.versions.items()
    }
    assert where.cursor() == (place, model.token, places)
    if not model.versions:
        return
    mirror = where.read("t", "id, value, note")
    assert sorted(mirror) == sorted((key, *row) for key, row in model.mirror.items())
    assert sorted(where.read("log", LOG), key=repr) == sorted(model.log, key=repr)


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
    where: Destination, source: Source, model: Model, wanted: Order, found: dict[str, list[Change]]
) -> None:
    """The order must go through; then the model is where it leaves its copies."""
    assert send(where, wanted, found).outcome == "applied"
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


def send(where: Destination, wanted: Order, found: dict[str, list[Change]]) -> Receipt:
    """The later half of each table's changes comes first."""
    packets = [
        Packet(f"main.{name}", half)
        for name, events in found.items()
        for table in [rows(events, NOTED)]
        for half in (table.slice(len(events) // 2), table.slice(0, len(events) // 2))
    ]
    return where.sink().apply(wanted, iter(packets))


def seeds(where: Destination, random: Random, source: Source, model: Model) -> None:
    """Both tables for the first time; later the mirror anew, wherever the append table stands."""
    if model.versions:
        carry_out(
            where, source, model, wanted_of(model, source.place, {"t": SEEDS["t"]}), {"t": source.seed()}
        )
        return
    wanted = wanted_of(model, source.place, SEEDS)
    carry_out(where, source, model, wanted, {"t": source.seed(), "log": source.seed()})


def streams(where: Destination, random: Random, source: Source, model: Model) -> None:
    """The next window of both tables, each from its own place."""
    wanted = wanted_of(model, source.place, BOTH)
    carry_out(where, source, model, wanted, windows(source, model))


def streams_one(where: Destination, random: Random, source: Source, model: Model) -> None:
    """The next window of one table; the other stays where it is."""
    table = random.choice(["t", "log"])
    wanted = wanted_of(model, source.place, {table: BOTH[table]})
    carry_out(where, source, model, wanted, {table: windows(source, model)[table]})


def windows(source: Source, model: Model) -> dict[str, list[Change]]:
    return {table: source.window(model.at(table)) for table in ("t", "log")}


def holds_and_releases(where: Destination, random: Random, source: Source, model: Model) -> None:
    """The append table is held, then a request lifts that; the hold, run late, is refused."""
    stops = wanted_of(model, model.at("log"), {"log": held("TC2999", "stopped", "append")})
    carry_out(where, source, model, stops, {})
    compare(where, model)
    asked = model.versions["log"].resumed + 1
    lifts = wanted_of(model, model.at("log"), {"log": replace(persisted("append"), resumed=asked)})
    carry_out(where, source, model, lifts, {})
    assert send(where, stops, {}).outcome == "failed"


def breaks_off(where: Destination, random: Random, source: Source, model: Model) -> None:
    """The next window fails at each point of its way, then goes through."""
    wanted = wanted_of(model, source.place, BOTH)
    for point in ("before_sink_transaction", "after_sink_data", "before_sink_commit"):
        with patch.dict(os.environ, {"TRUECUT_FAILPOINT": f"{point}:error"}):
            assert send(where, wanted, windows(source, model)).outcome == "failed"
        compare(where, model)
    streams(where, random, source, model)


def runs_twice(where: Destination, random: Random, source: Source, model: Model) -> None:
    """The last order again."""
    if model.last is None or model.last[0].token != model.token:
        return
    assert send(where, *model.last).outcome == "already"


def stale_owner(where: Destination, random: Random, source: Source, model: Model) -> None:
    """A takeover; then the old owner goes on as if nothing had happened."""
    older, model.token = model.token, model.token + random.randint(1, 3)
    recover(where, model)
    wanted = wanted_of(model, source.place, BOTH, token=older)
    assert send(where, wanted, windows(source, model)).fenced_by == model.token
    assert where.sink().recover(epoch=1, token=older).fenced_by == model.token


def wrong_place(where: Destination, random: Random, source: Source, model: Model) -> None:
    """An order of the owner's that expects another place of one of its tables."""
    found: list[Change] = [(INSERT, source.place + 5, 99, "x", None)]
    wanted = wanted_of(model, source.place + 5, BOTH)
    shifted = wanted_of(model, source.place + 5, {"log": BOTH["log"]}, shift=random.choice([-1, 1]))
    wanted = replace(wanted, tables={**wanted.tables, **shifted.tables})
    assert send(where, wanted, {"t": found, "log": found}).outcome == "failed"


def maintains(where: Destination, random: Random, source: Source, model: Model) -> None:
    """The tenant's own maintenance, some of it."""
    where.maintain(random)


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


def every_step(where: Destination) -> None:
    """A short life in which every kind of step happens."""
    random, source, model = Random(7), Source(), Model()
    recover(where, model)
    with where.watched():
        for step in _in_turn():
            source.advance(random)
            source.advance(random)
            step(where, random, source, model)
            compare(where, model)


def _in_turn() -> Iterator[Step]:
    yield from (seeds, streams, runs_twice, streams, breaks_off, stale_owner, streams, wrong_place, seeds)
    yield from (maintains, streams_one, streams_one, runs_twice, holds_and_releases, seeds, streams)
    yield from (stale_owner, runs_twice, streams)
