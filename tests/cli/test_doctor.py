"""`truecut doctor`: everything is connected to, everything amiss is named with its remedy."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.cli.commands import truecut
from tests.cli.inside import call, seed, untouched
from tests.cli.tenants import make_lake, make_newer
from tests.e2e.world import World, tenants_document
from tests.postgres_server import PostgresServer
from truecut.lake import attach_sql, connect, lake_of

CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR)"
FILL = "INSERT INTO lake.main.events SELECT i, 't' || (i % 3) FROM range(90) r(i)"
CANARY = "canary-0815"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, None, tenants_document(tenants=["t0", "t1"], catalog="{tenant}.db"))
    made.source(CREATE, FILL)
    return made


def _doctor(world: World, *, code: int) -> list[tuple[str, str, str]]:
    """(object, code, severity) of each finding; nothing may change, each has its remedy."""
    world.save()
    with untouched(world.folder):
        answer = call("doctor", world.file, "--json")
    assert (answer.code, answer.stderr) == (code, "")
    assert CANARY not in answer.stdout
    assert answer.json["schema"] == "truecut.doctor/v1"
    assert answer.json["fit"] == (code == 0)
    for finding in answer.json["findings"]:
        assert finding["what"]
        assert finding["fix"]
    return [(f["object"], f["code"], f["severity"]) for f in answer.json["findings"]]


def test_a_fit_pipeline_has_no_finding(world: World) -> None:
    """Before the first run and after it; every check is listed and passed."""
    assert _doctor(world, code=0) == []
    seed(world.pipeline(), "t0")
    with untouched(world.folder):
        answer = call("doctor", world.file, "--json")
    assert {check["name"]: check["outcome"] for check in answer.json["checks"]} == {
        "java": "ok",
        "duckdb": "ok",
        "control store": "ok",
        "source": "ok",
        "table main.events": "ok",
        "retention": "ok",
        "sinks": "ok",
        "data folders": "ok",
        "disk space": "ok",
    }


def test_every_table_that_cannot_be_copied_is_named(world: World) -> None:
    """Missing tables and columns, unsupported types, NULL and repeated keys: counts, never values."""
    world.source(
        "CREATE TABLE lake.main.repeated (id VARCHAR, part VARCHAR)",
        f"INSERT INTO lake.main.repeated VALUES ('{CANARY}', 'a'), ('{CANARY}', 'a'), ('{CANARY}', 'b'),"
        f" (NULL, 'a'), ('x', NULL)",
        "CREATE TABLE lake.main.huge (id INTEGER, n HUGEINT)",
        "CREATE TABLE lake.main.plain (id INTEGER)",
    )
    world.document["spec"]["tables"] += [
        {"name": "main.repeated", "key": ["id", "part"], "broadcast": True},
        {"name": "main.huge", "key": ["id"], "broadcast": True},
        {"name": "main.plain", "key": ["idd"], "broadcast": True},
        {"name": "main.nope", "key": ["id"], "broadcast": True},
    ]
    world.document["spec"]["tables"][0]["route_by"] = "tenantt"
    assert _doctor(world, code=3) == [
        ("main.events", "TC2004", "error"),
        ("main.repeated", "TC2021", "error"),
        ("main.repeated", "TC2022", "error"),
        ("main.huge", "TC2006", "error"),
        ("main.plain", "TC2004", "error"),
        ("main.nope", "TC2002", "error"),
    ]
    world.document["spec"]["tables"][-1]["name"] = "main.evnts"
    world.save()
    said = {one["object"]: one["what"] for one in call("doctor", world.file, "--json").json["findings"]}
    assert said["main.evnts"].endswith(
        '; there are main.events, main.huge, main.plain, main.repeated; did you mean "main.events"?'
    )
    assert said["main.plain"].endswith('; the table has id; did you mean "id"?')
    found = {f["code"]: f["what"] for f in call("doctor", world.file, "--json").json["findings"]}
    assert found["TC2021"] == "main.repeated: 2 rows have NULL in their key (id, part)"
    assert found["TC2022"] == "main.repeated: 1 keys (id, part) occur more than once"


def test_every_sink_that_cannot_be_written_is_named(world: World, postgres: PostgresServer) -> None:
    """A file where a folder shall be, no catalog, a newer one, a foreign table, no server; others are fit."""
    folder = world.folder
    names = ["folder", "garbage", "newer", "foreign", "down", "elsewhere", "nowhere", "server"]
    world.document = tenants_document(tenants=["t0", *names], catalog="{tenant}.db")
    sinks = {sink["name"]: sink for sink in world.document["spec"]["sinks"]}
    (folder / "folder-data").write_text("a file")
    (folder / "garbage.db").write_text("this is no catalog")
    for name in ("newer", "foreign", "elsewhere"):
        make_lake(folder, name, "CREATE TABLE lake.main.events AS SELECT 42 AS answer")
    make_newer(folder / "newer.db")
    sinks["elsewhere"]["data_path"] = "another-place"
    sinks["nowhere"]["catalog"] = "sqlite:nowhere.db"
    del sinks["nowhere"]["data_path"]
    sinks["down"]["catalog"] = f"postgres:host=127.0.0.1 port=1 user=u password={CANARY} dbname=d"
    sinks["server"]["catalog"] = f"postgres:{postgres.create_database('doctor_sink')}"
    assert _doctor(world, code=3) == [
        ("folder", "TC4007", "error"),
        ("garbage", "TC4008", "error"),
        ("newer", "TC4004", "error"),
        ("foreign", "TC4013", "error"),
        ("down", "TC4005", "error"),
        ("elsewhere", "TC4009", "error"),
        ("nowhere", "TC4015", "error"),
    ]


def test_lakes_that_share_a_folder_are_warned_of(world: World) -> None:
    """The same folder, or one inside another's: a clean-up in one lake would delete the other's files."""
    first, second = world.document["spec"]["sinks"]
    second["data_path"] = first["data_path"] + "/inside/"
    assert _doctor(world, code=0) == [("t1", "TC4020", "warning")]
    second["data_path"] = "./x/../" + first["data_path"]
    assert _doctor(world, code=0) == [("t1", "TC4020", "warning")]
    second["data_path"] = world.document["spec"]["source"]["data_path"]
    assert _doctor(world, code=0) == [("t1", "TC4020", "warning")]


def test_a_source_that_cannot_be_read_does_not_hide_the_rest(world: World) -> None:
    """Newer format, no catalog, not there: named with its remedy; sinks are checked all the same."""
    (world.folder / "t1.db").write_text("this is no catalog")
    world.document["spec"]["source"]["catalog"] = "nope.db"
    assert _doctor(world, code=3) == [("source", "TC2001", "error"), ("t1", "TC4008", "error")]
    make_lake(world.folder, "nope")
    make_newer(world.folder / "nope.db")
    world.document["spec"]["source"]["data_path"] = "nope-data"
    assert _doctor(world, code=3) == [("source", "TC4004", "error"), ("t1", "TC4008", "error")]


def test_a_state_folder_that_cannot_be_made_is_named(world: World) -> None:
    """A file stands where the folder shall be."""
    (world.folder / "state").write_text("a file")
    world.document["spec"]["state"] = "./state/here"
    assert _doctor(world, code=3) == [("control", "TC4007", "error")]


def test_a_folder_that_only_seems_to_be_writable_is_named(world: World) -> None:
    """Nothing can be made in `/proc`, whatever its permissions say: only trying tells."""
    world.document["spec"]["state"] = "/proc/none/state"
    first, second = world.document["spec"]["sinks"]
    first["catalog"], first["data_path"] = "/proc/none/t0.db", "t0-data"
    second["data_path"] = "/proc/none/data"
    found = _doctor(world, code=3)
    assert [name for name, code, _ in found if code in ("TC4003", "TC4007")] == ["control", "t0", "t1"]


def test_somebodys_own_database_is_no_place_for_a_lake(world: World) -> None:
    """A file with tables and no lake, of DuckDB or SQLite: doctor and plan name it, and write nothing."""
    first, second = world.document["spec"]["sinks"]
    first["catalog"], second["catalog"] = "own.db", "sqlite:own.sqlite"
    with closing(duckdb.connect(str(world.folder / "own.db"))) as own:
        own.execute("CREATE TABLE own (i INTEGER)")
    with closing(sqlite3.connect(world.folder / "own.sqlite")) as lite:
        lite.execute("CREATE TABLE own (i INTEGER)")
    assert _doctor(world, code=3) == [("t0", "TC4014", "error"), ("t1", "TC4014", "error")]
    with untouched(world.folder):
        answer = call("plan", world.file, "--json")
    assert [one["error"]["code"] for one in answer.json["sinks"]] == ["TC4014", "TC4014"]
    assert not [one for one in answer.json["creates"] if one["kind"] == "catalog"]


def test_without_java_nothing_else_is_hidden(world: World) -> None:
    """A process of its own: exit 3, the remedy on stdout, plain text without colours."""
    world.save()
    answer = truecut("doctor", "pipeline.yaml", cwd=world.folder, JAVA_HOME="/nonexistent")
    assert (answer.returncode, answer.stderr) == (3, "")
    lines = answer.stdout.splitlines()
    assert lines[0] == "✗ java: Spark cannot start"
    assert lines[1] == "  ✗ TC5002 Java was not found"
    assert lines[2].startswith("      fix: Install Java 17 or newer")
    assert "✓ sinks: 2 of 2 are fit" in lines
    assert lines[-1] == "tenants is not fit to run"


def test_of_many_sinks_the_ten_worst_are_shown(world: World) -> None:
    """Five hundred sinks of a `for_each` file, twelve unfit: ten lines and a count; JSON lists all."""
    tenants = [f"t{i:03}" for i in range(500)]
    (world.folder / "tenants.csv").write_text("\n".join(["tenant", *tenants]) + "\n")
    world.document["spec"]["sinks"] = [
        {
            "name": "{tenant}",
            "type": "ducklake",
            "catalog": "lakes/{tenant}.db",
            "data_path": "data/{tenant}",
            "route": "{tenant}",
            "for_each": {"file": "tenants.csv"},
        }
    ]
    (world.folder / "data").mkdir()
    for tenant in tenants[100:112]:
        (world.folder / "data" / tenant).write_text("a file")
    assert _doctor(world, code=3) == [(tenant, "TC4007", "error") for tenant in tenants[100:112]]
    lines = call("doctor", world.file).stdout.splitlines()
    assert "✗ sinks: 488 of 500 are fit" in lines
    assert sum(1 for line in lines if line.startswith("  ✗ TC4007 sink t1")) == 10
    assert "    and 2 more (--json lists all)" in lines


@pytest.fixture
def held_source(world: World) -> Iterator[tuple[World, int]]:
    """The source's catalog, a DuckDB file, open in another process, and that process."""
    from tests.cli.holder import holding

    world.document["spec"]["source"] = {"type": "ducklake", "catalog": "live.db", "data_path": "live-data"}
    world.source(CREATE, FILL)
    with holding(world.folder / "live.db") as pid:
        yield world, pid


def test_a_source_held_by_another_process_is_named(held_source: tuple[World, int]) -> None:
    """A DuckDB file has one writer: the finding says which process that is, and what helps."""
    world, pid = held_source
    assert _doctor(world, code=3) == [("source", "TC4001", "error")]
    document: dict[str, Any] = json.loads(call("doctor", world.file, "--json").stdout)
    assert "SQLite or PostgreSQL" in document["findings"][0]["fix"]
    assert document["findings"][0]["what"].endswith(f"(process {pid})")
    planned = call("plan", world.file)
    assert (planned.code, planned.stderr.split()[0]) == (3, "TC4001")
    assert f"(process {pid})" in planned.stderr


def test_a_disk_without_room_is_named(world: World) -> None:
    """As root, on a disk of one mebibyte; anybody else sees that the check reads the real disk."""
    from tests.cli.tiny_disk import tiny_disk

    if os.geteuid() != 0:
        assert _doctor(world, code=0) == []
        return
    with tiny_disk(world.folder / "tiny", mib=1):
        world.document["spec"]["sinks"][0]["data_path"] = "tiny/data"
        assert _doctor(world, code=3) == [(str(world.folder / "tiny"), "TC5030", "error")]


def test_attachments_are_read_only(world: World) -> None:
    """Looking at a lake while somebody reads it: a look asks for no writer's lock."""
    seed(world.pipeline(), "t0")
    address = lake_of(world.pipeline().sinks[0].address)
    with connect() as reader:
        reader.execute(attach_sql(address, "lake", read_only=True))
        assert _doctor(world, code=0) == []


def test_a_spark_that_is_too_slow_to_tell_is_not_said_to_be_fit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it takes the settings: a warning that says so, and no reason not to run."""
    world.document["spec"]["spark"] = {"conf": {"spark.sql.shuffle.partitions": "3"}}
    monkeypatch.setattr("truecut.spark.trial.PATIENCE_S", 0.01)
    assert _doctor(world, code=0) == [("spark", "TC5015", "warning")]
