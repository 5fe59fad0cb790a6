"""`truecut plan`: what a run would do, told without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.commands import truecut
from tests.cli.inside import call, seed, untouched
from tests.e2e.world import World, tenants_document
from truecut.lake import attach_sql, connect, lake_of
from truecut.runtime.control import open_control

CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR, v VARCHAR)"
CANARY = "canary-4711"


def _fill(start: int, count: int) -> str:
    return (
        f"INSERT INTO lake.main.events SELECT i, 't' || (i % 3), '{CANARY}'"
        f" FROM range({start}, {start + count}) r(i)"
    )


def _plan(world: World) -> dict[str, Any]:
    """The plan as JSON; nothing in the folder may change, and no row may be told."""
    world.save()
    with untouched(world.folder):
        answer = call("plan", world.file, "--json")
    assert (answer.code, answer.stderr) == (0, "")
    assert CANARY not in answer.stdout
    assert answer.json["schema"] == "truecut.plan/v1"
    return answer.json


def _document(kind: str, tenants: list[str]) -> dict[str, Any]:
    prefix = "sqlite:" if kind == "sqlite" else ""
    return tenants_document(tenants=tenants, source=f"{prefix}source.db", catalog=prefix + "{tenant}.db")


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_first_run_makes_everything_and_seeds_every_sink(kind: str, tmp_path: Path) -> None:
    """Sizes are the source's own; catalogs, cursors and tables are listed; nothing is made."""
    world = World(tmp_path, None, _document(kind, ["t0", "t1"]))
    world.source(CREATE, _fill(0, 90))
    sizes = world.source_rows(
        "SELECT sum(data_file_size_bytes)::BIGINT FROM ducklake_list_files('lake', 'events')"
    )
    plan = _plan(world)
    assert plan["pipeline"] == "tenants"
    assert plan["source"] == {
        "type": "ducklake",
        "head": "00000001-0000000000000002",
        "oldest": "00000001-0000000000000000",
    }
    facts = {"rows": 90, "bytes": sizes[0][0], "units": None, "left_out": []}
    assert plan["tables"] == [{"name": "main.events", **facts, "error": None}]
    state = tmp_path / ".truecut" / "tenants"
    expected: list[tuple[str, str, str | None]] = [
        ("state", str(state), None),
        ("control", str(state / "control.db"), None),
        ("catalog", f"{kind}:{tmp_path}/t0.db", "t0"),
        ("table", "_truecut.cursor", "t0"),
        ("catalog", f"{kind}:{tmp_path}/t1.db", "t1"),
        ("table", "_truecut.cursor", "t1"),
        ("table", "main.events", "t0"),
        ("table", "main.events", "t1"),
    ]
    assert [(c["kind"], c["name"], c["sink"]) for c in plan["creates"]] == expected
    assert plan["seeds"] == [
        {"table": "main.events", "sink": tenant, "reason": "new", "needs_accept": False}
        for tenant in ("t0", "t1")
    ]
    assert [(sink["name"], sink["action"], sink["cursor"]) for sink in plan["sinks"]] == [
        ("t0", "seed", None),
        ("t1", "seed", None),
    ]
    assert (plan["stops"], plan["retires"]) == ([], [])


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_later_runs_carry_changes_and_ask_before_they_replace(kind: str, tmp_path: Path) -> None:
    """Behind, current, new, of another shape, foreign, paused, retired: each sink for itself."""
    document = _document(kind, ["t0", "t1", "t2", "new", "foreign", "idle"])
    world = World(tmp_path, None, document)
    world.source(CREATE, _fill(0, 90))
    seed(world.pipeline(), "t0", "t1", "idle")
    world.source(_fill(90, 30), _fill(120, 10))
    seed(world.pipeline(), "t2")
    document["spec"]["sinks"][1]["mode"] = "append"  # t1: another shape
    pipeline = world.pipeline()
    _make_foreign(world)
    control = open_control(pipeline.control, pipeline=pipeline.name)
    control.claim("somebody", ["t0", "gone"], duration_ms=1, count_max=2)
    control.close()
    assert call("pause", world.file, "--sink", "idle").code == 0

    plan = _plan(world)
    assert [(s["table"], s["sink"], s["reason"], s["needs_accept"]) for s in plan["seeds"]] == [
        ("main.events", "t1", "settings changed", True),
        ("main.events", "new", "new", False),
    ]
    assert [(s["sink"], s["code"]) for s in plan["stops"]] == [("t1", "TC3004"), ("foreign", "TC4013")]
    assert all(stop["fix"] for stop in plan["stops"])
    assert plan["retires"] == ["gone"]
    assert [(c["kind"], c["sink"]) for c in plan["creates"]] == [
        ("catalog", "new"),
        ("table", "new"),
        ("table", "foreign"),
        ("table", "new"),
    ]
    sinks = {sink["name"]: sink for sink in plan["sinks"]}
    assert {name: sink["action"] for name, sink in sinks.items()} == {
        "t0": "changes",
        "t1": "held",
        "t2": "none",
        "new": "seed",
        "foreign": "held",
        "idle": "paused",
    }
    assert sinks["t0"]["cursor"] == "00000001-0000000000000002"
    assert sinks["t0"]["outstanding"]["snapshots"] == 2
    assert sinks["t0"]["outstanding"]["changes_estimate"] == 40
    assert sinks["t2"]["outstanding"] == {"snapshots": 0, "changes_estimate": 0, "bytes_estimate": 0}


def _make_foreign(world: World) -> None:
    """A table of somebody else's in the sink `foreign`."""
    address = next(lake_of(sink.address) for sink in world.pipeline().sinks if sink.name == "foreign")
    connection = connect()
    connection.execute(attach_sql(address, "lake", create=True))
    connection.execute("CREATE TABLE lake.main.events AS SELECT 42 AS answer")
    connection.close()


def test_a_cursor_behind_the_oldest_snapshot_is_told(tmp_path: Path) -> None:
    """A mirror would be read whole again, an append table would stop; `doctor` says the same."""
    document = tenants_document(tenants=["t0", "t1"])
    document["spec"]["sinks"][1]["mode"] = "append"
    world = World(tmp_path, None, document)
    world.source(CREATE, _fill(0, 90))
    seed(world.pipeline(), "t0", "t1")
    world.source(_fill(90, 30), "CALL ducklake_expire_snapshots('lake', older_than => now())")
    plan = _plan(world)
    assert [(s["sink"], s["reason"]) for s in plan["seeds"]] == [("t0", "gap")]
    assert [(s["sink"], s["code"]) for s in plan["stops"]] == [("t1", "TC3001")]
    doctor = call("doctor", world.file, "--json")
    assert doctor.code == 3
    assert [(f["object"], f["code"], f["severity"]) for f in doctor.json["findings"]] == [
        ("t0", "TC2024", "warning"),
        ("t1", "TC2023", "error"),
    ]


def test_another_source_in_the_old_ones_place_is_told(tmp_path: Path) -> None:
    """A source with another identity has another history: mirrors would be read whole."""
    world = World(tmp_path, None, tenants_document(tenants=["t0"]))
    world.source(CREATE, _fill(0, 90))
    seed(world.pipeline(), "t0")
    control = open_control(world.pipeline().control, pipeline="tenants")
    control.generation(_identity(world))
    control.close()
    world.document["spec"]["source"]["catalog"] = "sqlite:other.db"
    world.document["spec"]["source"]["data_path"] = "other-data"
    world.source(CREATE, _fill(0, 9))
    plan = _plan(world)
    assert plan["source"]["head"] == "00000002-0000000000000002"
    assert [(s["sink"], s["reason"]) for s in plan["seeds"]] == [("t0", "source replaced")]


def _identity(world: World) -> str:
    found = world.source_rows(
        "SELECT schema_uuid::VARCHAR FROM __ducklake_metadata_lake.ducklake_schema ORDER BY schema_id"
    )
    return str(found[0][0])


def test_the_plan_as_people_read_it(tmp_path: Path) -> None:
    """A process of its own: counts, the first ten of each list, exit 0."""
    document = tenants_document(tenants=[f"t{i}" for i in range(12)])
    world = World(tmp_path, None, document)
    world.source(CREATE, _fill(0, 90))
    world.save()
    with untouched(tmp_path):
        answer = truecut("plan", "pipeline.yaml", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[1].startswith("  table main.events: 90 rows, ")
    assert "would create: 38" in lines
    assert "  and 28 more (--json lists all)" in lines
    assert "would read whole: 12" in lines
    assert "  main.events to sink t0 (new)" in lines
    assert lines[-1] == "sinks: 12 would be seeded"


def test_a_sink_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    """The rest is planned; the exit code says that the plan has a hole."""
    world = World(tmp_path, None, tenants_document(tenants=["t0", "t1"], catalog="{tenant}.db"))
    world.source(CREATE, _fill(0, 90))
    (tmp_path / "t1.db").write_text("this is no catalog")
    world.save()
    with untouched(tmp_path):
        answer = call("plan", world.file, "--json")
    assert answer.code == 3
    sinks = {sink["name"]: sink for sink in answer.json["sinks"]}
    assert sinks["t0"]["action"] == "seed"
    assert (sinks["t1"]["action"], sinks["t1"]["error"]["code"]) == ("unknown", "TC4008")


def test_the_plan_knows_what_cannot_be_copied(tmp_path: Path) -> None:
    """A table that the source does not have is an error of that table, and stops at each sink."""
    document = tenants_document(tenants=["t0"])
    document["spec"]["tables"].append({"name": "main.nope", "key": ["id"], "broadcast": True})
    world = World(tmp_path, None, document)
    world.source(CREATE, _fill(0, 9))
    plan = _plan(world)
    assert [(t["name"], t["error"] and t["error"]["code"]) for t in plan["tables"]] == [
        ("main.events", None),
        ("main.nope", "TC2002"),
    ]
    assert [(s["table"], s["sink"]) for s in plan["seeds"]] == [("main.events", "t0")]
    assert [(s["table"], s["code"]) for s in plan["stops"]] == [("main.nope", "TC2002")]


def test_a_sqlite_source_of_any_journal_mode_is_read(tmp_path: Path) -> None:
    """A catalog made by plain DuckLake, in SQLite's default mode, is a source like any other."""
    world = World(tmp_path, None, tenants_document(tenants=["t0"]))
    connection = connect()
    connection.execute(
        f"ATTACH 'ducklake:sqlite:{tmp_path / 'source.db'}' AS lake (DATA_PATH '{tmp_path / 'source-data'}')"
    )
    connection.execute(CREATE)
    connection.execute(_fill(0, 9))
    connection.close()
    assert yaml.safe_load(world.save().read_text())["spec"]["source"]["catalog"] == "sqlite:source.db"
    assert _plan(world)["tables"][0]["rows"] == 9
    doctor = call("doctor", world.file, "--json")
    assert doctor.code == 0
    assert [(f["code"], f["severity"]) for f in doctor.json["findings"]] == [("TC2020", "warning")]
