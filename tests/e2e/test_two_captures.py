"""Two processes that may read one PostgreSQL's log: one of them does, the other takes over while it sleeps,
and what it had begun has no effect when it wakes up. An append table would show a change that was lost, or
told twice, for ever: its rows are compared with what was committed, in the order of the commits."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import Process, run, running, started, truecut
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import pipeline_document

LEASES = "SELECT owner FROM truecut_lease WHERE pipeline LIKE '%/capture' AND owner IS NOT NULL"
BEGUN = "SELECT count(*) FROM truecut_lease WHERE owner IS NOT NULL"
LOG = (
    "SELECT _truecut_op, id, n FROM log.counts "
    'ORDER BY _truecut_position COLLATE "C", _truecut_seq COLLATE "C"'
)
TWICE = "SELECT count(*) - count(DISTINCT (_truecut_position, _truecut_seq)) FROM log.counts"
PAUSES = 2
BUSY = 40  # commits that must arrive through whoever has taken over

Committed = list[tuple[str, int, int]]


class Counts:
    """A table that is followed from its beginning, its mirror in a lake, its log in a PostgreSQL."""

    def __init__(self, folder: Path, postgres: PostgresServer, name: str, *, control: str) -> None:
        self.postgres, self.target = postgres, f"{name}_to"
        self.dsn, out = postgres.create_database(f"{name}_from"), postgres.create_database(self.target)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE counts (id int PRIMARY KEY, n int)")
        sinks = [
            {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"},
            {"name": "log", "type": "postgres", "dsn": out, "schema": "log", "mode": "append"},
        ]
        tables = [{"name": "public.counts", "backfill": "none"}]
        document = pipeline_document(name, self.dsn, tables, sinks=sinks, lease={"duration": "4s"})
        document["spec"] |= {"batch": {"interval": "100ms"}, "state": "./state"}
        self.store = control
        if control == "postgres":
            self.store = document["spec"]["control"] = _url(
                postgres, postgres.create_database(f"{name}_store")
            )
        self.world = World(folder, None, document)
        self.world.save()

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """Of the control store, by its own client."""
        if self.store == "sqlite":
            path = self.world.folder / "state" / "control.db"
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            try:
                return connection.execute(question).fetchall()
            finally:
                connection.close()
        with psycopg.connect(self.store) as store:
            return store.execute(question.encode()).fetchall()

    def captures(self, process: Process) -> bool:
        return self._asked(LEASES, lambda rows: any(f"-{process.popen.pid}-" in owner for (owner,) in rows))

    def wait_for(self, process: Process, *, what: str) -> None:
        eventually(lambda: self.captures(process), what=what)

    def is_followed(self) -> bool:
        """At every sink: whoever begins later never gets what was before."""
        told = json.loads(truecut("status", self.world.file, "--json").stdout)
        return all(sink["cursor"] for sink in told["sinks"])

    def log(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.postgres.conninfo(self.target)) as connection:
            assert connection.execute(TWICE.encode()).fetchone() == (0,)
            return connection.execute(LOG.encode()).fetchall()

    def _asked(self, question: str, holds: Callable[[list[tuple[Any, ...]]], bool]) -> bool:
        try:
            return holds(self.ask(question))
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):  # the store is still being made
            return False


def _url(postgres: PostgresServer, conninfo: str) -> str:
    database = conninfo.rpartition("dbname=")[2]
    return f"postgresql://postgres@127.0.0.1:{postgres.port}/{database}"


@contextmanager
def counting(counts: Counts) -> Iterator[Committed]:
    """Somebody commits a row all the time, and remembers what."""
    over, committed = threading.Event(), list[tuple[str, int, int]]()

    def write() -> None:
        held: dict[int, int] = {}
        step = 0
        with psycopg.connect(counts.dsn, autocommit=True) as connection:
            while not over.wait(0.02):
                step += 1
                key = step * 7 % 23
                if key not in held:
                    held[key] = step
                    connection.execute("INSERT INTO counts VALUES (%s, %s)", (key, step))
                    committed.append(("insert", key, step))
                elif step % 5:
                    held[key] = step
                    connection.execute("UPDATE counts SET n = %s WHERE id = %s", (step, key))
                    committed.append(("update", key, step))
                else:
                    connection.execute("DELETE FROM counts WHERE id = %s", (key,))
                    committed.append(("delete", key, 0))
                    del held[key]

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield committed
    finally:
        alive = thread.is_alive()
        over.set()
        thread.join()
    assert alive


def exactly(counts: Counts, committed: Committed) -> None:
    """The log is what was committed, in that order; the mirror what it comes to."""
    finished = run(counts.world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    told = [(op, key, 0 if op == "delete" else n) for op, key, n in counts.log()]
    assert told == committed
    held: dict[int, int] = {}
    for op, key, n in committed:
        held.pop(key, None) if op == "delete" else held.update({key: n})
    lake = counts.world.sink_rows("lake", "SELECT id, n FROM lake.public.counts ORDER BY id")
    assert lake == sorted(held.items())


@pytest.mark.parametrize(
    ("alone", "control"),
    [
        (True, "sqlite"),
        pytest.param(False, "postgres", marks=pytest.mark.soak),
    ],
    ids=["run and capture, SQLite", "two runs, PostgreSQL"],
)
def test_a_capture_that_slept_through_a_takeover(
    tmp_path: Path, postgres: PostgresServer, alone: bool, control: str
) -> None:
    """Whoever captures is stopped past its lease, with all it runs, while rows are committed; the other one
    takes over, and changes arrive; it wakes up: by turns. Every change is in the append table once, in the
    order of the commits."""
    name = f"captures_{'alone' if alone else 'two'}_{control}"
    counts = Counts(tmp_path, postgres, name, control=control)
    with dropped_slots(counts.dsn), running(counts.world) as first:
        eventually(counts.is_followed, what="the table is followed")
        with counting(counts) as committed:
            other = started("capture", counts.world.file) if alone else running(counts.world)
            with other as second:
                told: list[Process] = []
                for _ in range(PAUSES):
                    sleeper, heir = (first, second) if counts.captures(first) else (second, first)
                    counts.wait_for(sleeper, what="one of them captures")
                    _stop(counts, sleeper)
                    counts.wait_for(heir, what="the other one takes over")
                    _arrives(counts, committed, awake=heir if not alone or heir is first else None)
                    sleeper.signal(signal.SIGCONT)
                    told.append(sleeper)
                    _arrives(counts, committed, awake=sleeper)
                assert second.stop().code == 0
                assert len(told) == PAUSES
        assert first.stop().code == 0
        exactly(counts, committed)


def _arrives(counts: Counts, committed: Committed, *, awake: Process | None) -> None:
    """What is committed from now on does; if there is somebody awake who delivers."""
    since = len(committed)
    eventually(lambda: len(committed) > since + BUSY, what="somebody writes")
    if awake is not None:
        eventually(lambda: len(counts.log()) > since + BUSY, what="changes arrive")


def _stop(counts: Counts, process: Process) -> None:
    """Not while it writes to a SQLite file: that would keep everybody else out of it."""
    while True:
        process.signal(signal.SIGSTOP)
        if counts.store != "sqlite":
            return
        path = counts.world.folder / "state" / "control.db"
        connection = sqlite3.connect(path, timeout=2, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.signal(signal.SIGCONT)
            time.sleep(0.2)
        else:
            return
        finally:
            connection.close()
