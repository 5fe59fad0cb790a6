"""A pipeline with faults put into it: real source, planner, machine, waves, sinks and certifier, no Spark (a
job is carried out in this process); and for each sink one fault that changes the rows on their way.

`READING`: before evidence is gathered, so that evidence and sink agree about what is wrong. `SINK`: after it.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tests.e2e.world import World
from truecut.certificate.folding import Claim, Folding
from truecut.config.settings import Pipeline
from truecut.core.delivery import Recover, Wave
from truecut.model.change import DELETE, INSERT, OP, PLACE, READ, UPDATE
from truecut.model.order import Receipt
from truecut.runtime.control import open_control
from truecut.runtime.orders import Planner
from truecut.runtime.runner import Runner
from truecut.runtime.trace import Trace
from truecut.runtime.until import Outcome, Until
from truecut.sinks.contract import Packet
from truecut.sinks.passage import Passage
from truecut.sources.contract import Source, Window
from truecut.sources.registry import open_source
from truecut.spark.fold import folded
from truecut.spark.wave import job as waves
from truecut.spark.wave import packet
from truecut.spark.wave.apply import Takeover, run_takeovers
from truecut.spark.wave.job import WaveJob, WaveResult
from truecut.spark.wave.packet import Parcel

Row = dict[str, Any]
Locus = Literal["reading", "sink"]
Kind = Literal["changes", "seed"]
PATIENCE_MS = 600_000
FUTURE = 900  # a key that is inserted in the first round


# --- faults -----------------------------------------------------------------------------------------------

Hurt = Callable[[list[Row], random.Random, "Fault"], tuple[list[Row], set[int]] | None]


@dataclass
class Fault:
    """One, at one sink. `keys` are those that it has touched, once it has happened."""

    name: str
    locus: Locus
    kind: Kind
    hurt: Hurt
    chance: random.Random
    before: dict[int, Row] = field(default_factory=dict)  # rows as they were a round ago
    kept: list[Row] = field(default_factory=list)  # withheld until the next wave
    keys: set[int] = field(default_factory=set)
    free: set[int] = field(default_factory=set)  # keys that no other change will touch

    @property
    def is_done(self) -> bool:
        return bool(self.keys) and not self.kept

    def pass_on(self, rows: list[Row], kind: Kind) -> list[Row]:
        """The rows of a packet, as they are after the fault."""
        if self.kept and rows:
            late, self.kept = self.kept, []
            return [*late, *rows]
        if self.keys or kind != self.kind:
            return rows
        found = self.hurt(rows, self.chance, self)
        if found is None:
            return rows
        rows, self.keys = found
        return rows


def _last(rows: list[Row], *ops: int) -> list[int]:
    """Where rows stand that are the last of their key, with these operations."""
    last = {row["id"]: n for n, row in sorted(enumerate(rows), key=lambda one: one[1][PLACE])}
    return [n for n in last.values() if rows[n][OP] in ops]


def _chosen(places: Sequence[int], rows: list[Row], fault: Fault, chance: random.Random) -> int | None:
    free = [n for n in places if rows[n]["id"] in fault.free]
    return chance.choice(free) if free else None


def drop(rows: list[Row], chance: random.Random, fault: Fault) -> tuple[list[Row], set[int]] | None:
    n = _chosen(_last(rows, INSERT, UPDATE, DELETE, READ), rows, fault, chance)
    return None if n is None else ([*rows[:n], *rows[n + 1 :]], {rows[n]["id"]})


def duplicate(rows: list[Row], chance: random.Random, fault: Fault) -> tuple[list[Row], set[int]] | None:
    """Of what may be there once only."""
    n = _chosen(_last(rows, INSERT, READ), rows, fault, chance)
    return None if n is None else ([*rows, rows[n]], {rows[n]["id"]})


def reorder(rows: list[Row], chance: random.Random, fault: Fault) -> tuple[list[Row], set[int]] | None:
    """Two updates of one key change places."""
    for n in _last(rows, UPDATE):
        others = [m for m, row in enumerate(rows) if row["id"] == rows[n]["id"] and m != n]
        others = [m for m in others if rows[m][OP] in (INSERT, UPDATE) and rows[m]["v"] != rows[n]["v"]]
        if others and rows[n]["id"] in fault.free:
            m = others[-1]
            found = list(rows)
            found[n], found[m] = rows[n] | {"v": rows[m]["v"]}, rows[m] | {"v": rows[n]["v"]}
            return found, {rows[n]["id"]}
    return None


def late(rows: list[Row], chance: random.Random, fault: Fault) -> tuple[list[Row], set[int]] | None:
    """It comes with the next wave."""
    n = _chosen(_last(rows, UPDATE), rows, fault, chance)
    if n is None:
        return None
    fault.kept = [rows[n]]
    return [*rows[:n], *rows[n + 1 :]], {rows[n]["id"]}


def stale(rows: list[Row], chance: random.Random, fault: Fault) -> tuple[list[Row], set[int]] | None:
    """As it was before: a change, or a row of a unit that was read too early."""
    places = _last(rows, UPDATE, READ)
    older = [n for n in places if (fault.before.get(rows[n]["id"]) or rows[n])["v"] != rows[n]["v"]]
    n = _chosen(older, rows, fault, chance)
    if n is None:
        return None
    return [*rows[:n], rows[n] | {"v": fault.before[rows[n]["id"]]["v"]}, *rows[n + 1 :]], {rows[n]["id"]}


def null(rows: list[Row], chance: random.Random, fault: Fault) -> tuple[list[Row], set[int]] | None:
    """A value that was not sent, taken for NULL."""
    places = [n for n in _last(rows, INSERT, UPDATE, READ) if rows[n]["note"] is not None]
    n = _chosen(places, rows, fault, chance)
    return None if n is None else ([*rows[:n], rows[n] | {"note": None}, *rows[n + 1 :]], {rows[n]["id"]})


def splice(rows: list[Row], chance: random.Random, fault: Fault) -> tuple[list[Row], set[int]] | None:
    """A seed holds a row that the log will bring again: it was read later than it says."""
    return [*rows, rows[0] | {"id": FUTURE, "v": FUTURE, "note": "to come"}], {FUTURE}


FAULTS: list[tuple[str, Locus, Kind, Hurt]] = [
    ("drop", "reading", "changes", drop),
    ("drop", "sink", "changes", drop),
    ("a row of a unit dropped", "reading", "seed", drop),
    ("duplicate", "reading", "changes", duplicate),
    ("a row of a unit twice", "sink", "seed", duplicate),
    ("reorder", "reading", "changes", reorder),
    ("reorder", "sink", "changes", reorder),
    ("late", "reading", "changes", late),
    ("stale", "reading", "changes", stale),
    ("stale", "sink", "changes", stale),
    ("a stale unit", "reading", "seed", stale),
    ("absent as NULL", "reading", "changes", null),
    ("absent as NULL", "sink", "seed", null),
    ("wrong splice", "reading", "seed", splice),
]


# --- the pipeline -----------------------------------------------------------------------------------------


@dataclass
class HurtJobs:
    """What a runner asks of Spark, done here."""

    pipeline: Pipeline
    faults: dict[str, Fault]

    def of(self, pipeline: Pipeline) -> HurtJobs:
        return replace(self, pipeline=pipeline)

    def fraction_done(self, wave: Wave) -> float:
        return 0.0

    def take_over(self, effect: Recover) -> list[Receipt]:
        settings = {sink.name: sink for sink in self.pipeline.sinks}
        asked = [
            Takeover(n, self.pipeline.name, settings[name], *of_sink)
            for n, (name, of_sink) in enumerate(effect.sinks.items())
        ]
        return [receipt for _, receipt in run_takeovers(asked, threads=2, deadline_ms=PATIENCE_MS)]

    def fold(self, foldings: Sequence[Folding]) -> list[Claim]:
        return [folded(one) for one in foldings]

    def carry(
        self, wave: Wave, source: Source, *, source_identity: str, certificate: str = ""
    ) -> tuple[Window, WaveResult]:
        planner = Planner(self.pipeline, source_identity, certificate)
        window = planner.window(source, wave, parallelism=1)
        job = planner.job(wave, window, slots=2, deadline_ms=PATIENCE_MS)
        if not job.reading.pieces:
            return window, WaveResult(())
        read = job.reading.read_all(bytes_max=1 << 28)
        return window, _carried(job, self._hurt(job, read, "seed" if wave.kind == "seed" else "changes"))

    def _hurt(self, job: WaveJob, parcels: list[Parcel], kind: Kind) -> Iterator[Parcel]:
        """Consistently: what is counted is what is there."""
        found: list[Parcel] = []
        more: dict[tuple[int, int], int] = {}
        for one in parcels:
            fault = self.faults.get(job.sinks[one.sink].name) if one.sink >= 0 else None
            if fault is None or fault.locus != "reading" or not isinstance(one.content, pa.Table):
                found.append(one)
                continue
            bent = _bent(one.content, fault, kind)
            at = (one.sink, one.table)
            more[at] = more.get(at, 0) + bent.num_rows - one.content.num_rows
            found.append(replace(one, content=bent))
        for one in found:
            if one.kind == packet.COUNTS and isinstance(one.content, dict) and one.content:
                yield replace(one, content={at: n + more.pop(at, 0) for at, n in one.content.items()})
            else:
                yield one


def _bent(rows: pa.Table, fault: Fault, kind: Kind) -> pa.Table:
    return pa.Table.from_pylist(fault.pass_on(rows.to_pylist(), kind), schema=rows.schema)


def _carried(job: WaveJob, parcels: Iterable[Parcel]) -> WaveResult:
    """As the one task of a wave does it."""
    told = [
        one
        for batch in waves._apply(job, parcels, threads=2)
        for one in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]
    receipts = [pickle.loads(payload) for sink, payload in told if sink >= 0]
    counted = [pickle.loads(payload) for sink, payload in told if sink == waves._ROUTED]
    return WaveResult([*receipts, *waves._unanswered(job.reading, receipts, counted)])


def hurt_passage(faults: dict[str, Fault]) -> Callable[[Passage, Iterator[Packet]], Iterator[Packet]]:
    """In place of `Passage.watched`: rows change after they were counted and digested."""
    honest = Passage.watched

    def watched(self: Passage, packets: Iterator[Packet]) -> Iterator[Packet]:
        fault = faults.get(self.order.sink)
        kinds = {name: one.kind for name, one in self.order.tables.items()}
        for one in honest(self, packets):
            if fault is None or fault.locus != "sink" or one.rows is None:
                yield one
            else:
                kind: Kind = "seed" if kinds[one.table] == "replace" else "changes"
                yield replace(one, rows=_bent(one.rows, fault, kind))

    return watched


# --- one life ---------------------------------------------------------------------------------------------


@dataclass
class Life:
    """A source, three sinks that are served honestly, and one for each fault."""

    folder: Path
    seed: int
    chance: random.Random = field(init=False)
    faults: dict[str, Fault] = field(init=False)
    world: World = field(init=False)
    rows: dict[int, int] = field(default_factory=dict)  # what the source holds: id → v
    runs: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.faults = {
            f"s{n:02}": Fault(name, locus, kind, hurt, random.Random(f"{self.seed} {n}"))
            for n, (name, locus, kind, hurt) in enumerate(FAULTS)
        }
        sinks = [(name, "mirror") for name in ("honest", *self.faults)] + [("log", "append")]
        document = {
            "apiVersion": "truecut/v1",
            "kind": "Pipeline",
            "metadata": {"name": "hurt"},
            "spec": {
                "source": {"type": "ducklake", "catalog": "sqlite:source.db", "data_path": "source-data"},
                "tables": [{"name": "main.t", "key": ["id"]}],
                "sinks": [
                    {"name": name, "type": "ducklake", "mode": mode,
                     "catalog": f"sqlite:{name}.db", "data_path": f"{name}-data"}
                    for name, mode in sinks
                ],
                "batch": {"interval": "50ms"},
                "certificate": {"path": "certificates", "interval": "1h"},
            },
        }  # fmt: skip
        self.world = World(self.folder, None, document)

    def live(self) -> list[Outcome]:
        """A seed and two rounds of changes. Keys that a fault may touch are left alone by the other round."""
        keys = list(range(1, 61))
        early, mine, later = keys[:10], keys[10:40], keys[40:]
        self.world.source(
            "CREATE TABLE lake.main.t (id BIGINT, v BIGINT, note VARCHAR)",
            f"INSERT INTO lake.main.t SELECT i, i, 'note ' || i FROM range({keys[0]}, {keys[-1] + 1}) r(i)",
        )
        self.rows = {key: key for key in keys}
        self._at_large(early)
        self.world.source(*(self._update(key) for key in early[:3]))
        outcomes = [self._catch_up()]
        self._at_large([*mine, *range(100, 110)])
        self.world.source(*self._changes(mine, first=100))
        outcomes.append(self._catch_up())
        self._at_large([*later, *range(200, 210)])
        self.world.source(*self._changes(later, first=200))
        return [*outcomes, self._catch_up()]

    def _at_large(self, keys: Iterable[int]) -> None:
        for fault in self.faults.values():
            fault.free = set(keys)
            fault.before = {key: {"v": v} for key, v in self.rows.items()}

    def _update(self, key: int) -> str:
        self.rows[key] = self.chance.randrange(1000, 1_000_000)
        return f"UPDATE lake.main.t SET v = {self.rows[key]} WHERE id = {key}"

    def _changes(self, keys: Sequence[int], *, first: int) -> list[str]:
        """Some keys twice; each statement is a snapshot."""
        chosen = self.chance.sample(list(keys), 6)
        told = [self._update(key) for key in (*chosen[:4], *chosen[:3])]
        told.append(f"DELETE FROM lake.main.t WHERE id = {chosen[4]}")
        told += [f"INSERT INTO lake.main.t VALUES ({first + n}, {n}, 'new {n}')" for n in range(2)]
        if first == 100:
            told.append(f"INSERT INTO lake.main.t VALUES ({FUTURE}, {FUTURE}, 'to come')")
        return told

    def _catch_up(self) -> Outcome:
        pipeline = self.world.pipeline()
        self.runs += 1
        name = f"run-{self.runs}"
        runner = Runner(
            pipeline,
            name=name,
            jobs=HurtJobs(pipeline, self.faults),  # type: ignore[arg-type]
            open_source=lambda generation: open_source(pipeline.source, generation=generation),
            control=open_control(pipeline.control, pipeline=pipeline.name),
            trace=Trace(self.world.traces / f"{name}.jsonl", runner=name),
            until=Until(caught_up=True, timeout_ms=PATIENCE_MS),
        )
        return runner.run()

    def arguments(self, sinks: Iterable[str]) -> list[str]:
        """For the independent verifier: files, source and these sinks."""
        told = ["--json", "--secret", str(self.folder / "certificates/secret")]
        told += ["--source", f"ducklake:sqlite:{self.folder / 'source.db'}"]
        for name in sinks:
            told += ["--sink", f"{name}=ducklake:sqlite:{self.folder / f'{name}.db'}"]
        return [*told, str(self.folder / "certificates")]
