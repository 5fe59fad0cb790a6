"""Sinks are added, removed, paused, and fall out of the source's history."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.e2e.process import hold_at, run, running, started, truecut
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.world import Rows, World, eventually, tenants_document
from truecut.lake import parse_address
from truecut.model.position import Position
from truecut.runtime.control import open_control
from truecut.runtime.pauses import pause, read_pauses, resume
from truecut.runtime.status_document import status_document

MakeWorld = Callable[[dict[str, Any]], World]
# A row that a tenant adds by itself: changes of other keys leave it alone, a seed replaces it.
MARK = "INSERT INTO lake.main.events VALUES (-1, 'mark', 0)"
MARKED = "SELECT count(*) FROM lake.main.events WHERE id = -1"
TABLES = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake' AND table_name = 'events'"
TOKEN = "SELECT max(token) FROM lake._truecut.cursor"
FORGET = "CALL ducklake_expire_snapshots('lake', older_than => now())"


@pytest.mark.soak
def test_a_tenant_added_later_is_seeded_while_others_go_on(tmp_path: Path) -> None:
    """Its seed is stuck just before it is written; the others get changes meanwhile, and are not seeded."""
    world = World(tmp_path, None, tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(300))
    assert run(world, "--until-caught-up").code == 0
    world.tenant("t0", MARK)
    world.document = tenants_document(tenants=["t0", "t1", "t2"])
    world.save()
    hits = tmp_path / "hits"
    hits.mkdir()
    stuck = {"TRUECUT_FAILPOINT": "before_sink_transaction:hang", "TRUECUT_FAILPOINT_HITS": str(hits)}
    with running(world, **stuck):
        eventually((hits / "before_sink_transaction").exists, what="the seed is stuck")
        world.source("UPDATE lake.main.events SET v = -1 WHERE id < 10")
        eventually(lambda: _is_equal(world, "t0") and _is_equal(world, "t1"), what="the others go on")
        assert world.sink_rows("t2", TABLES) == [], "nothing of the new one is there yet"
    assert world.sink_rows("t0", MARKED) == [(1,)], "t0 was not seeded again"
    world.tenant("t0", "DELETE FROM lake.main.events WHERE id = -1")
    assert run(world, "--until-caught-up").code == 0
    world.assert_mirrors()


def test_tenants_come_and_go_while_it_runs(tmp_path: Path) -> None:
    """A line added to the `for_each` file is seeded beside the others, which go on while its seed stands
    still and are not seeded again; so is a sink that is added in the pipeline file itself; a line taken out
    ends its lease, and its data stays; what waits for a restart is said by log, status and plan; a file that
    cannot be used changes nothing. All in one run."""
    world = World(tmp_path, None, tenants_document(tenants=["{tenant}"]))
    world.document["spec"]["sinks"][0]["for_each"] = {"file": "tenants.csv"}
    csv, log = tmp_path / "tenants.csv", tmp_path / "run.log"
    armed = tmp_path / "armed"
    armed.mkdir()
    csv.write_text("tenant\nt0\nt1\n")
    world.source(CREATE, fill(300))
    options = ("--log-format", "json", "--log-file", log)
    env = {"TRUECUT_TRACE": str(world.traces), "TRUECUT_FAILPOINT": f"@{armed}"}
    with started("run", world.save(), *options, env=env) as process:
        eventually(
            lambda: _is_there(world, "t0") and _is_there(world, "t1"), what="the first ones are seeded"
        )
        world.tenant("t0", MARK)
        held = hold_at(armed, "before_sink_transaction")
        csv.write_text("tenant\nt0\nt1\nt2\n")
        eventually(held.exists, what="the seed stands still")
        world.source("UPDATE lake.main.events SET v = -1 WHERE id < 10")
        eventually(lambda: _is_equal(world, "t0") and _is_equal(world, "t1"), what="the others go on")
        assert not _is_there(world, "t2"), "nothing of the new one is there yet"
        held.unlink()
        eventually(lambda: _is_there(world, "t2"), what="the new one is seeded")
        world.source("UPDATE lake.main.events SET v = -3 WHERE id < 10")
        eventually(lambda: all(_is_equal(world, t) for t in ("t0", "t1", "t2")), what="all go on")
        assert world.sink_rows("t0", MARKED) == [(1,)], "t0 was not seeded again"
        csv.write_text("tenant\nt0\nt1;t2\n")
        csv.write_text("tenant\n")
        eventually(lambda: "TC1161" in log.read_text(), what="the file that cannot be used is told")
        csv.write_text("tenant\nt0\nt2\n")
        eventually(lambda: _status(world)["t1"] == "retired", what="t1 is retired")
        kept = _rows_of(world, "t1")
        world.source("INSERT INTO lake.main.events VALUES (1000, 't3', 3)")
        world.document["spec"]["sinks"].append(_tenant("t3"))
        world.save()
        eventually(lambda: _is_there(world, "t3"), what="the sink of the pipeline file is seeded")
        world.document["spec"]["batch"] = {"interval": "200ms"}
        world.save()
        eventually(lambda: "restart to apply: batch" in _said(world, "status"), what="status names it")
        assert "restart to apply: batch" in _said(world, "plan")
        world.source("UPDATE lake.main.events SET v = -2 WHERE id < 10")
        world.source("UPDATE lake.main.events SET v = -2 WHERE id = 1000")
        eventually(lambda: all(_is_equal(world, t) for t in ("t0", "t2", "t3")), what="those that stay go on")
        assert process.stop().code == 0
    said = log.read_text()
    assert all(words in said for words in ("taken up", "retired", "restart to apply: batch"))
    assert _rows_of(world, "t1") == kept != []


def _tenant(name: str) -> dict[str, Any]:
    (sink,) = tenants_document(tenants=[name])["spec"]["sinks"]
    assert isinstance(sink, dict)
    return sink


def _is_there(world: World, tenant: str) -> bool:
    try:
        return world.sink_rows(tenant, TABLES) != [] and _is_equal(world, tenant)
    except duckdb.Error:  # its lake is being made
        return False


def _rows_of(world: World, tenant: str) -> Rows:
    """Also when the file does not name it any more."""
    with world._attached(parse_address(f"sqlite:{tenant}.db", f"{tenant}-data", base=world.folder)) as lake:
        return lake.execute("FROM lake.main.events ORDER BY ALL").fetchall()


def _status(world: World) -> dict[str, str]:
    document = json.loads(truecut("status", world.file, "--json").stdout)
    return {sink["name"]: sink["state"] for sink in document["sinks"]}


def _said(world: World, command: str) -> str:
    return truecut(command, world.file).stdout


def _is_equal(world: World, tenant: str) -> bool:
    """But for the mark."""
    held = world.sink_rows(tenant, "FROM lake.main.events WHERE id <> -1 ORDER BY ALL")
    return held == world.source_rows(f"FROM lake.main.events WHERE tenant = '{tenant}' ORDER BY ALL")


def test_a_removed_tenant_is_retired_and_keeps_its_data(make_world: MakeWorld) -> None:
    """Its lake is not touched any more; `status` says retired."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(20, 2))
    assert world.catch_up().reached
    kept = world.sink_rows("t1")
    both = world.document
    world.document = tenants_document(tenants=["t0"])
    world.source("DELETE FROM lake.main.events")
    assert world.catch_up().reached
    pipeline = world.pipeline()
    control = open_control(pipeline.control, pipeline=pipeline.name)
    document = status_document(pipeline, control.reports(), read_pauses(pipeline.state))
    control.close()
    assert {s["name"]: s["state"] for s in document["sinks"]}["t1"] == "retired"
    world.document = both
    assert world.sink_rows("t1") == kept != []


def test_a_mirror_that_fell_out_of_the_history_is_seeded_again(make_world: MakeWorld) -> None:
    """Snapshots between the cursor and now are gone: the copy is made anew, by itself."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(50, 2))
    assert world.catch_up().reached
    world.tenant("t0", MARK)
    world.source("DELETE FROM lake.main.events WHERE id < 10", "UPDATE lake.main.events SET v = 0", FORGET)
    assert world.catch_up().reached
    world.assert_mirrors()  # so the mark is gone: it was made anew


def test_a_gap_stops_the_table_where_the_pipeline_says_so(make_world: MakeWorld) -> None:
    """`on_gap: stop` holds the table; `resume --table` seeds it anew."""
    document = tenants_document(tenants=["t0"])
    document["spec"]["tables"][0]["on_gap"] = "stop"
    world = make_world(document)
    world.source(CREATE, fill(50, 1))
    assert world.catch_up().reached
    kept = world.sink_rows("t0")
    world.source("DELETE FROM lake.main.events WHERE id < 10", FORGET)
    outcome = world.catch_up()
    assert not outcome.reached
    assert "no longer has its history" in outcome.stragglers["t0"]
    assert world.sink_rows("t0") == kept
    resume(world.pipeline().state, table="main.events")
    assert world.catch_up().reached
    world.assert_mirrors()


def test_an_append_table_always_stops_at_a_gap(make_world: MakeWorld) -> None:
    """An unproved gap in a log of changes is never papered over."""
    world = make_world(tenants_document(tenants=["t0"], mode="append"))
    world.source(CREATE, fill(10, 1))
    assert world.catch_up().reached
    kept = world.sink_rows("t0")
    world.source("DELETE FROM lake.main.events WHERE id < 5", FORGET)
    assert "no longer has its history" in world.catch_up().stragglers["t0"]
    assert world.sink_rows("t0") == kept


def test_idle_sinks_do_not_fall_out_of_the_history(make_world: MakeWorld) -> None:
    """A sink without rows advances without commits, and a clean stop makes its position durable."""
    world = make_world(tenants_document(tenants=["t0", "idle"]))
    world.source(CREATE, fill(5, 1))
    assert world.catch_up().reached
    world.source("UPDATE lake.main.events SET v = 1")
    assert world.catch_up().reached
    world.source(FORGET, "UPDATE lake.main.events SET v = 2")
    world.tenant("idle", MARK)
    assert world.catch_up().reached
    assert world.sink_rows("t0") == world.source_rows("FROM lake.main.events ORDER BY ALL")
    newest = "SELECT max(position) FROM lake._truecut.cursor"
    assert world.sink_rows("idle", newest) == world.sink_rows("t0", newest)
    assert world.sink_rows("idle", MARKED) == [(1,)], "it was seeded again"


def test_a_paused_sink_waits_and_the_others_go_on(make_world: MakeWorld) -> None:
    """Pause and resume take effect while the pipeline runs."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(20, 2))
    assert world.catch_up().reached
    state = world.pipeline().state
    kept = world.sink_rows("t1")
    pause(state, sink="t1")
    with world.running():
        world.source("UPDATE lake.main.events SET v = 100")
        expected = world.source_rows("FROM lake.main.events WHERE tenant = 't0' ORDER BY ALL")
        eventually(lambda: world.sink_rows("t0") == expected, what="t0 goes on")
        assert world.sink_rows("t1") == kept
        resume(state, sink="t1")
        expected = world.source_rows("FROM lake.main.events WHERE tenant = 't1' ORDER BY ALL")
        eventually(lambda: world.sink_rows("t1") == expected, what="t1 catches up")
    world.assert_mirrors()


def test_a_paused_table_is_an_exception_in_the_cursor(make_world: MakeWorld) -> None:
    """Other tables advance; afterwards the table goes on from its own place, nothing lost."""
    document = tenants_document(tenants=["t0"], batch={"interval": "100ms", "rows_max": 5})
    document["spec"]["tables"].append({"name": "main.other", "key": ["id"], "broadcast": True})
    world = make_world(document)
    world.source(CREATE, "CREATE TABLE lake.main.other (id INTEGER, v INTEGER)", fill(10, 1))
    assert world.catch_up().reached
    state = world.pipeline().state
    kept = world.sink_rows("t0")
    pause(state, table="main.events")
    world.source(*(f"UPDATE lake.main.events SET v = {n}" for n in range(5)))
    world.source("INSERT INTO lake.main.other VALUES (1, 1)")
    assert not world.catch_up().reached
    assert world.sink_rows("t0") == kept
    world.assert_mirrors_whole("main.other")
    # The other table holds still meanwhile: a window of a few rows must not take the sink back.
    pause(state, table="main.other")
    assert not world.catch_up().reached
    resume(state, table="main.events")
    assert not world.catch_up().reached
    world.assert_mirrors()
    resume(state, table="main.other")
    assert world.catch_up().reached
    world.assert_mirrors()


def lose_the_store(world: World) -> None:
    for file in world.pipeline().state.parent.rglob("control.db*"):
        file.unlink()
    shutil.rmtree(world.pipeline().state, ignore_errors=True)


def test_losing_the_control_store_loses_nothing(make_world: MakeWorld) -> None:
    """Leases, tokens and reports are gone, and with the state folder all that Spark may keep (no checkpoint
    is used); cursors and fences in the sinks are not."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(50, 2))
    assert world.catch_up().reached
    tokens = [world.sink_rows("t0", TOKEN)]
    for _ in range(2):
        lose_the_store(world)
        world.source("UPDATE lake.main.events SET v = v + 1 WHERE id % 3 = 0")
        assert world.catch_up().reached
        world.assert_mirrors()
        tokens.append(world.sink_rows("t0", TOKEN))
    assert tokens == sorted(tokens)
    assert len({token[0] for token in tokens}) == 3, "tokens grow across the loss"


def test_another_source_at_the_same_address_is_a_new_generation(make_world: MakeWorld) -> None:
    """A re-created source shares nothing with the old one: everything is seeded anew. The sinks know its
    generation when the control store has forgotten it, and what follows is not taken to be there already."""
    world = make_world(tenants_document(tenants=["t0"]))
    world.source(CREATE, fill(50, 1))
    assert world.catch_up().reached
    replace_source(world)
    assert generation_after_catching_up(world) == 2
    lose_the_store(world)
    world.source("INSERT INTO lake.main.events VALUES (2, 't0', 2)")
    assert generation_after_catching_up(world) == 2
    lose_the_store(world)
    replace_source(world)
    assert generation_after_catching_up(world) == 3


def replace_source(world: World) -> None:
    for file in world.folder.glob("source.db*"):
        file.unlink()
    world.source(CREATE, "INSERT INTO lake.main.events VALUES (1, 't0', 1)")


def generation_after_catching_up(world: World) -> int:
    assert world.catch_up().reached
    world.assert_mirrors()
    (newest,) = world.sink_rows("t0", "SELECT max(position) FROM lake._truecut.cursor")
    return Position.parse(newest[0]).generation


def test_a_table_that_left_the_pipeline_goes_on_where_it_stood_when_it_is_back(make_world: MakeWorld) -> None:
    """Meanwhile its copy is not touched; afterwards nothing of the time between is missing."""
    document = tenants_document(tenants=["t0"])
    document["spec"]["tables"].append({"name": "main.other", "key": ["id"], "broadcast": True})
    world = make_world(document)
    world.source(CREATE, "CREATE TABLE lake.main.other (id INTEGER, v INTEGER)", fill(10, 1))
    world.source("INSERT INTO lake.main.other VALUES (1, 1)")
    assert world.catch_up().reached
    other = document["spec"]["tables"].pop()
    world.source("UPDATE lake.main.events SET v = 1", "INSERT INTO lake.main.other VALUES (2, 2)")
    assert world.catch_up().reached
    assert world.sink_rows("t0", "FROM lake.main.other") == [(1, 1)]
    document["spec"]["tables"].append(other)
    world.source("UPDATE lake.main.events SET v = 2", "UPDATE lake.main.other SET v = 3 WHERE id = 1")
    assert world.catch_up().reached
    world.assert_mirrors()
    world.assert_mirrors_whole("main.other")


def test_changed_settings_replace_a_copy_only_when_accepted(make_world: MakeWorld) -> None:
    """Another route for a tenant that already holds rows: refused, until the user says --accept."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, fill(40, 4))
    assert world.catch_up().reached
    kept = world.sink_rows("t1")
    world.document["spec"]["sinks"][1]["route"] = "t2"
    outcome = world.catch_up()
    assert "was changed" in outcome.stragglers["t1"]
    assert world.sink_rows("t1") == kept
    assert world.catch_up(accept=True).reached
    world.assert_mirrors()
