"""`truecut backfill` as a user runs it: a table of a lake is read again while somebody writes to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e import process
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document
from truecut.failpoint import KILLED

MakeWorld = Callable[[dict[str, Any]], World]
LOG = "SELECT _truecut_op, id, _truecut_position, _truecut_seq FROM lake.main.events ORDER BY 3, 4"
OTHER = {"name": "main.other", "key": ["id"], "broadcast": True}


def document() -> dict[str, Any]:
    """A mirror and an append table of the same rows; the latter has them broadcast, too."""
    found = tenants_document(tenants=["mirror", "log"], lease={"duration": "5s"})
    found["spec"]["tables"] = [{"name": "main.events", "key": ["id"]}, OTHER]
    for sink in found["spec"]["sinks"]:
        del sink["route"]
    found["spec"]["sinks"][1]["mode"] = "append"
    return found


@contextmanager
def writing(world: World, *, first: int) -> Iterator[list[int]]:
    """Somebody inserts one row after another, each in a snapshot of its own."""
    over = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not over.wait(0.05):
            world.source(f"INSERT INTO lake.main.events VALUES ({first + len(written)}, 't0', 1)")
            written.append(first + len(written))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()


def asked_for(world: World) -> bool:
    return any((world.pipeline().state / "backfill").rglob("table=*"))


def test_a_table_is_read_again_while_changes_go_on(make_world: MakeWorld) -> None:
    """For a running pipeline: a mirror that somebody has spoilt is the source again; the append table beside
    it gets every row once more as `read`, and no change is missing or there twice; the other table of the
    spoilt sink is left as it is."""
    world = make_world(document())
    world.source(CREATE, fill(300, 2), "CREATE TABLE lake.main.other (id INTEGER)")
    world.source("INSERT INTO lake.main.other VALUES (1)")
    assert world.catch_up().reached
    world.tenant("mirror", "UPDATE lake.main.events SET v = -4711 WHERE id < 100")
    world.tenant("mirror", "DELETE FROM lake.main.events WHERE id BETWEEN 100 AND 150")
    world.tenant("mirror", "DELETE FROM lake.main.other")
    with world.running(), writing(world, first=10_000) as written:
        eventually(lambda: len(written) > 3, what="somebody writes")
        answer = process.truecut("backfill", world.file, "--table", "main.events", "--json")
        before = len(written)
        eventually(lambda: len(written) > before + 3, what="somebody still writes")
    assert answer.code == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert (told["schema"], told["outcome"], told["stragglers"]) == ("truecut.backfill/v1", "reached", {})
    assert set(told["sinks"]) == {"mirror", "log"}
    assert not asked_for(world)
    assert world.catch_up().reached
    expected = world.source_rows("FROM lake.main.events ORDER BY ALL")
    assert world.sink_rows("mirror", "FROM lake.main.events ORDER BY ALL") == expected
    assert world.sink_rows("mirror", "FROM lake.main.other") == []
    log = world.sink_rows("log", LOG)
    assert [row[1] for row in log if row[0] == "insert"] == written
    assert len({row[2:] for row in log}) == len(log)
    again = max(row[2] for row in log if row[0] == "read")
    upto = [row[1] for row in log if row[0] == "insert" and row[2] <= again]
    assert sorted(row[1] for row in log if row[0] == "read" and row[2] == again) == [*range(300), *upto]
    assert len([row for row in log if row[0] == "read" and row[2] != again]) == 300


def test_a_request_to_read_again_outlives_who_took_it_up(make_world: MakeWorld, tmp_path: Path) -> None:
    """Nobody runs the pipeline, so the command does, and is killed -9 between request and answer. The next
    run answers it, for the one sink that was meant."""
    world = make_world(document())
    world.source(CREATE, fill(50, 2), "CREATE TABLE lake.main.other (id INTEGER)")
    assert world.catch_up().reached
    for sink in ("mirror", "log"):
        world.tenant(sink, "DELETE FROM lake.main.events WHERE id < 10")
    spoilt = world.sink_rows("log", LOG)
    hits = tmp_path / "hits"
    hits.mkdir()
    env = {"TRUECUT_FAILPOINT": "before_wave", "TRUECUT_FAILPOINT_HITS": str(hits)}
    arguments = ("backfill", world.file, "--table", "main.events", "--sink", "mirror")
    with process.started(*arguments, env={**env, "TRUECUT_TRACE": str(world.traces)}) as command:
        eventually(command.is_dead, what="it dies with the wave that it starts")
        assert command.popen.returncode == KILLED
    assert asked_for(world)
    assert world.catch_up().reached
    assert not asked_for(world)
    expected = world.source_rows("FROM lake.main.events ORDER BY ALL")
    assert world.sink_rows("mirror", "FROM lake.main.events ORDER BY ALL") == expected
    assert world.sink_rows("log", LOG) == spoilt
