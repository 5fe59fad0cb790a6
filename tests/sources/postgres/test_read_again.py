"""A table of a live PostgreSQL is read again: requests, machine, backfill, source and units as they are, but
without Spark. The copies are Python's, a mirror and an append table; the judge is plain SQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psycopg
import pytest

from tests.core.machine import T, commit, cursor, recovered, wave_of
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import BOTH, WIDE, Piped, pipeline_document
from truecut.core import delivery
from truecut.core.copies import wanted_whole
from truecut.core.delivery import Copy, CopySettings
from truecut.errors import TruecutError
from truecut.model import change
from truecut.model.order import Receipt
from truecut.model.table import TableName
from truecut.runtime import backfill as backfills
from truecut.runtime import pauses, requests
from truecut.runtime.backfill import Backfill
from truecut.runtime.delivery_state import Machine
from truecut.runtime.requests import Requests
from truecut.runtime.timetable import Timetable
from truecut.runtime.trace import Trace
from truecut.sources.contract import TableRead, Window
from truecut.sources.postgres.server_units import ServerUnits
from truecut.spark.backfill import Done, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = TableName.parse(T)
Log = list[tuple[int, int, int, int, int | None]]  # place, seq, op, id, n
FINISHED = 200


@pytest.fixture
def piped(tmp_path: Path, postgres: PostgresServer) -> Iterator[Piped]:
    conninfo = postgres.create_database("read_again")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA main")
        connection.execute("CREATE TABLE main.t (id int PRIMARY KEY, n int, pad text)")
        connection.execute("INSERT INTO main.t SELECT i, 0, repeat('x', 500) FROM generate_series(1, 300) i")
    made = Piped(tmp_path, conninfo, pipeline_document("again", conninfo, [{"name": T}]))
    made.capture()
    yield made
    made.close()


class Life:
    """A runner's loop in small, and what its two sinks hold."""

    def __init__(self, piped: Piped) -> None:
        self.piped = piped
        self.rng = random.Random(7)
        self.source = piped.source()
        source = piped.pipeline().source
        units = ServerUnits(source, unit_bytes=32 << 10)
        self.backfill = Backfill(cast("SparkSession", None), source, units=units)
        settings = {"mirror": CopySettings("mirror"), "log": CopySettings("append")}
        state = recovered({name: cursor(None) for name in settings}, {T: CopySettings("mirror")}, head=0)
        state = state.with_sinks(
            {n: delivery.SinkState({T: settings[n]}, "ready", 1, sink.epoch, copies=sink.copies)
             for n, sink in state.sinks.items()}
        )  # fmt: skip
        self.machine = Machine(state, Trace(None))
        self.requests = Requests(piped.folder, self.machine, Timetable(), on_again=self.backfill.ask_again)
        self.mirror: dict[int, int | None] = {}
        self.log: Log = []
        self.aborts = 0

    def turn(self) -> None:
        """Somebody writes; the source is looked at, one job of units, one seed, one wave."""
        self._write()
        self.piped.capture()
        self.requests.look_begins()
        seen = self.source.observe()
        unready = {str(name): why for name, why in seen.unready.items()}
        self.machine.become(
            delivery.observe(
                self.machine.state, identity="one", oldest=seen.oldest, head=seen.head, unready=unready
            )
        )
        self.requests.looked()
        self.requests.obey()
        whole = wanted_whole(self.machine.state.sinks.values()) | self.requests.tables_again
        self.backfill.want(whole, paused=self.requests.paused_tables)
        self._write()
        if T in whole:
            self.backfill.turn([NAME])
        while self._seed() or self._carry():
            self.requests.obey()
        self.requests.answer()

    def _write(self) -> None:
        with self.piped.connect() as connection:
            for _ in range(3):
                key = self.rng.randrange(1, 400)
                connection.execute("UPDATE main.t SET n = n + 1 WHERE id %% 40 = %s", (key % 40,))
                connection.execute("DELETE FROM main.t WHERE id = %s", (key,))
                connection.execute("UPDATE main.t SET id = -id WHERE id = %s", (key + 1,))
                connection.execute("INSERT INTO main.t VALUES (%s, 7, '') ON CONFLICT DO NOTHING", (key + 2,))

    def _seed(self) -> bool:
        state, effects = delivery.start_seed(self.machine.state, now_ms=1 << 40)
        if not effects:
            return False
        wave = wave_of(effects)
        readings = {order.tables[T].edition for name, order in wave.sinks.items() if name == "log"}
        read = TableRead(NAME, ("id",), None, max(readings, default=1))
        try:
            window = self.source.plan_seed([read], at=wave.upto_max, parallelism=2)
        except TruecutError as error:
            self.aborts += 1
            receipts = [
                Receipt(name, order.epoch, "aborted", unread={T: error.fault})
                for name, order in wave.sinks.items()
            ]
            self.machine.become(
                delivery.wave_done(state, wave.id, upto=wave.upto_max, receipts=receipts, now_ms=0)[0]
            )
            return False
        rows = _rows(window)
        if "mirror" in wave.sinks:
            self.mirror = {key: n for _, _, _, key, n in rows}
        if "log" in wave.sinks:
            self.log += sorted(rows)
        self.machine.become(commit(state, wave))
        return True

    def _carry(self) -> bool:
        state, effects = delivery.start_wave(self.machine.state, now_ms=1 << 40)
        if not effects:
            return False
        wave = wave_of(effects)
        assert wave.after is not None
        places = {NAME: (TableRead(NAME, ("id",), None), wave.after, BOTH)}
        window = self.source.plan_window(places, upto_max=wave.upto_max, limits=WIDE, parallelism=2)
        rows = sorted(_rows(window))
        for _, _, op, key, n in rows if "mirror" in wave.sinks else ():
            if op == change.DELETE:
                del self.mirror[key]
            else:
                assert (key in self.mirror) == (op == change.UPDATE)
                self.mirror[key] = n
        if "log" in wave.sinks:
            self.log += rows
        self.machine.become(commit(state, wave, upto=window.upto.place))
        return True

    def copies(self) -> list[Copy]:
        return [sink.copies[T] for sink in self.machine.state.sinks.values()]

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(FINISHED):
            self.turn()
            if reached():
                return
        raise AssertionError("not reached")

    def replayed(self) -> dict[int, int | None]:
        """What the append table makes of it: wherever it was read again, that is what it had come to."""
        held: dict[int, int | None] = {}
        begun = False
        for place in sorted({row[0] for row in self.log}):
            here = [row for row in self.log if row[0] == place]
            read = {key: n for _, _, op, key, n in here if op == change.READ}
            for _, _, op, key, n in here:
                if op == change.DELETE:
                    del held[key]
                elif op != change.READ:
                    held[key] = n
            if read and not begun:
                held, begun = read, True
            elif read:
                assert read == held, place
        return held


def _rows(window: Window) -> Log:
    return [
        (row[change.PLACE], row[change.SEQ], row[change.OP], row["id"], row["n"])
        for task in window.tasks
        for _, batch in task.read()
        for row in batch.to_pylist()
    ]


def _directly(_: object, work: Sequence[Work], *, readers: int) -> list[Done]:
    return [Done(number, one.run(), None) for number, one in enumerate(work[:2])]  # little by little


def test_a_mirror_and_an_append_table_are_read_again(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody writes between all steps: the mirror, which was spoilt, is the source again; the append
    table has every row once more at its own place, between changes none of which is missing or there twice;
    units of before the request are not used, and the copies follow the log while new ones are read."""
    monkeypatch.setattr(backfills, "run_units", _directly)
    monkeypatch.setattr(backfills, "name_job", lambda *_: None)
    monkeypatch.setattr(requests, "LOOK_MS", 0)
    monkeypatch.setattr(requests, "TRY_AGAIN_MS", 0)
    life = Life(piped)
    life.until(lambda: all(copy.status == "streaming" for copy in life.copies()))
    life.turn()
    for edition in (2, 3):
        life.mirror = dict.fromkeys(life.mirror, 4711)
        pauses.backfill(piped.folder, table=T)
        life.requests.obey()
        life.turn()
        assert [copy.status for copy in life.copies()] == ["streaming", "streaming"], "it follows the log"
        life.until(lambda: not pauses.read_pauses(piped.folder).requests)
        durable = [copy.durable for copy in life.copies()]
        assert [version.edition for version in durable if version is not None] == [edition, edition]
    life.turn()
    at = {copy.at for copy in life.copies()}
    assert len(at) == 1
    places = [(row[0], row[1]) for row in life.log]
    assert len(set(places)) == len(places)
    assert len({row[0] for row in life.log if row[2] == change.READ}) == 3
    life.rng = random.Random(0)
    monkeypatch.setattr(Life, "_write", lambda self: None)
    life.turn()
    life.turn()
    with piped.connect() as connection:
        held: dict[int, int | None] = dict(connection.execute("SELECT id, n FROM main.t").fetchall())
    assert life.mirror == held
    assert life.replayed() == held
