"""Tables of one sink that stand apart: paused, held, replaced, seeded while the others go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e import process
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import World, eventually, tenants_document
from truecut.failpoint import KILLED
from truecut.runtime.control import open_control
from truecut.runtime.pauses import Pauses, pause, resume
from truecut.runtime.status_document import status_document

MakeWorld = Callable[[dict[str, Any]], World]
OTHER = {"name": "main.other", "key": ["id"], "route_by": "tenant"}
PATIENCE_S = 600  # a process starts Spark first, and the machine may be busy
CREATE_OTHER = "CREATE TABLE lake.main.other (id INTEGER, tenant VARCHAR, v INTEGER)"


def two_tables(tenants: list[str]) -> dict[str, Any]:
    """`events` and `other`, both routed."""
    document = tenants_document(tenants=tenants, lease={"duration": "5s"})
    document["spec"]["tables"].append(dict(OTHER))
    return document


def holds(world: World, query: str, expected: list[tuple[Any, ...]]) -> bool:
    return world.sink_rows("t0", query) == expected


def requested(state: Path) -> bool:
    """Whether somebody's request to resume has still to be answered."""
    return any((state / "resume").glob("*"))


def test_rows_of_a_resumed_table_are_not_lost_at_a_clean_stop(make_world: MakeWorld) -> None:
    """Paused, passed by without a commit, resumed, and at once a clean stop that makes places durable: the
    table's own place is older, and what came since is delivered."""
    world = make_world(two_tables(["t0", "t1"]))
    world.source(CREATE, CREATE_OTHER, fill(20, 2), "INSERT INTO lake.main.other VALUES (1, 't0', 1)")
    assert world.catch_up().reached
    state = world.pipeline().state
    pause(state, table="main.other")
    with world.running():
        world.source("INSERT INTO lake.main.other VALUES (2, 't0', 2)")
        world.source("UPDATE lake.main.events SET v = 7 WHERE tenant = 't1'")
        expected = world.source_rows("FROM lake.main.events WHERE tenant = 't1' ORDER BY ALL")
        eventually(lambda: world.sink_rows("t1") == expected, what="the others go on")
        resume(state, table="main.other")
        eventually(lambda: not requested(state), what="the request is answered")
    assert world.catch_up().reached
    world.assert_mirrors()
    world.assert_mirrors(table="main.other")


def test_a_request_outlives_the_run_that_took_it_up(make_world: MakeWorld, tmp_path: Path) -> None:
    """Killed -9 between taking a request up and anything durable: the next run resumes the table, and does
    not believe that it has caught up while the killed one's leases last."""
    world = make_world(two_tables(["t0"]))
    world.source(CREATE, CREATE_OTHER, fill(20, 1))
    assert world.catch_up().reached
    world.tenant("t0", "DELETE FROM lake.main.events WHERE id = 1")
    world.source("UPDATE lake.main.events SET v = 8 WHERE id = 1")
    assert "changed keys" in world.catch_up().stragglers["t0"]
    state = world.pipeline().state
    resume(state, table="main.events")
    hits = tmp_path / "hits"
    hits.mkdir()
    env = {"TRUECUT_FAILPOINT": "before_wave", "TRUECUT_FAILPOINT_HITS": str(hits)}
    with process.running(world, **env) as run:
        eventually(run.is_dead, timeout_s=PATIENCE_S, what="it dies with the wave that it starts")
        assert run.popen.returncode == KILLED
    assert requested(state)
    assert world.catch_up().reached
    assert not requested(state)
    world.assert_mirrors()


def test_accepted_settings_replace_an_append_table_that_lacks_nothing(make_world: MakeWorld) -> None:
    """The seed ends where the copy stands: it is carried out all the same, and only once."""
    world = make_world(tenants_document(tenants=["t0"], mode="append"))
    world.source(CREATE, fill(20, 2))
    assert world.catch_up().reached
    world.document["spec"]["sinks"][0]["route"] = "t1"
    expected = world.source_rows("SELECT id, v FROM lake.main.events WHERE tenant = 't1' ORDER BY ALL")
    for _ in range(2):
        assert world.catch_up(accept=True).reached
        assert world.sink_rows("t0", "SELECT id, v FROM lake.main.events ORDER BY ALL") == expected != []


def test_the_other_tables_of_a_sink_commit_while_one_is_seeded(make_world: MakeWorld, tmp_path: Path) -> None:
    """A seed that hangs just before its transaction: changes of the other table arrive meanwhile. Killed, and
    run again, both are right."""
    world = make_world(tenants_document(tenants=["t0"], lease={"duration": "5s"}))
    world.source(CREATE, CREATE_OTHER, fill(20, 1), "INSERT INTO lake.main.other VALUES (1, 't0', 1)")
    assert world.catch_up().reached
    world.document = two_tables(["t0"])
    world.save()
    hits = tmp_path / "hits"
    hits.mkdir()
    env = {"TRUECUT_FAILPOINT": "before_sink_transaction:hang", "TRUECUT_FAILPOINT_HITS": str(hits)}
    with process.running(world, **env) as run:
        eventually(
            lambda: any(hits.iterdir()), timeout_s=PATIENCE_S, what="the seed has come to its transaction"
        )
        for value in (1, 2):
            world.source(f"UPDATE lake.main.events SET v = {value}", "UPDATE lake.main.other SET v = v + 1")
            changed = f"SELECT count(*) FROM lake.main.events WHERE v = {value}"
            arrived = partial(holds, world, changed, [(20,)])
            eventually(arrived, timeout_s=PATIENCE_S, what="the other table goes on")
        there = world.sink_rows("t0", "SELECT table_name FROM duckdb_tables() WHERE table_name = 'other'")
        assert there == [], "the seed is still under way"
        run.kill()
    assert world.catch_up().reached
    world.assert_mirrors()
    world.assert_mirrors(table="main.other")


def test_a_table_that_cannot_be_read_is_named_and_stops_no_other(make_world: MakeWorld) -> None:
    """A data file of one table is gone: the other table goes on, also the change of the same transaction; the
    view and the status say which table it is and why. When the file is back, it is read by itself."""
    world = make_world(two_tables(["t0"]))
    world.source(CREATE, CREATE_OTHER, fill(20, 1), "INSERT INTO lake.main.other VALUES (1, 't0', 1)")
    assert world.catch_up().reached
    world.source(
        "INSERT INTO lake.main.other SELECT i, 't0', i FROM range(100, 200) r(i)",
        "BEGIN; UPDATE lake.main.events SET v = 7; INSERT INTO lake.main.other VALUES (2, 't0', 2); COMMIT",
    )
    listed = "SELECT data_file FROM ducklake_list_files('lake', 'other') ORDER BY data_file_size_bytes DESC"
    file = Path(world.source_rows(listed)[0][0])
    gone = file.rename(file.with_suffix(".gone"))
    with world.running():
        changed = "SELECT count(*) FROM lake.main.events WHERE v = 7"
        eventually(lambda: holds(world, changed, [(20,)]), what="the other table goes on")
        eventually(lambda: world.views[-1].sinks["t0"].error is not None, what="it is told")
        error = world.views[-1].sinks["t0"].error
        assert error is not None
        assert (error["code"], error["retryable"]) == ("TC2012", True)
        assert str(error["message"]).startswith("main.other cannot be read now: ")
        eventually(lambda: reported(world, "main.other") == "failed", what="status tells it")
        assert reported(world, "main.events") == "streaming"
        gone.rename(file)
        expected = world.source_rows("FROM lake.main.other ORDER BY ALL")
        here = "FROM lake.main.other ORDER BY ALL"
        eventually(lambda: holds(world, here, expected), what="it is read again")
        eventually(lambda: world.views[-1].sinks["t0"].error is None, what="that, too, is told")
    world.assert_mirrors()


def reported(world: World, table: str) -> str:
    """A table's state as `status` tells it."""
    pipeline = world.pipeline()
    control = open_control(pipeline.control, pipeline=pipeline.name)
    try:
        document = status_document(pipeline, control.reports(), Pauses())
    finally:
        control.close()
    return next(str(one["state"]) for one in document["tables"] if one["name"] == table)
