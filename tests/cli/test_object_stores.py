"""`truecut doctor` on lakes in an object store: whether they can be written to, and what was left in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.canaries import assert_silent
from tests.cli.inside import call, seed, untouched
from tests.e2e.world import World, in_store, tenants_document
from tests.ports import free_port
from tests.s3_server import S3Server, age

CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR)"
FILL = "INSERT INTO lake.main.events SELECT i, 't' || (i % 3) FROM range(90) r(i)"


@pytest.fixture
def world(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("S3_SECRET", s3.secret)
    document = tenants_document(tenants=["t0", "t1"], catalog="{tenant}.db")
    bucket = f"doctor-{os.urandom(4).hex()}"
    made = World(tmp_path, None, in_store(document, s3, bucket, "source", "t0", "t1"), store=s3)
    made.source(CREATE, FILL)
    return made


def _doctor(world: World, *, code: int) -> list[tuple[str, str, str]]:
    """(object, code, severity) of each finding; neither folder nor store may change."""
    world.save()
    assert world.store is not None
    with untouched(world.folder), untouched_files(world.store.data):
        answer = call("doctor", world.file, "--json")
    assert answer.code == code, answer.stdout
    assert_silent(answer.stdout, answer.stderr)
    return [(f["object"], f["code"], f["severity"]) for f in answer.json["findings"]]


class untouched_files:
    """Objects are the same after it; the folders that a store makes for their names do not count."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._before = self._files()

    def __exit__(self, *_: object) -> None:
        assert self._files() == self._before

    def _files(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self._folder.rglob("*") if path.is_file()}


def test_a_store_that_can_be_written_to_has_no_finding(world: World) -> None:
    """Before the first run and after it; the file that was tried is gone again."""
    assert _doctor(world, code=0) == []
    seed(world.pipeline(), "t0")
    assert _doctor(world, code=0) == []


def test_a_store_that_refuses_or_is_not_there_is_named(world: World, s3: S3Server) -> None:
    """Wrong secret, no bucket, nobody listening: of each sink its own, and of the source's table."""
    source, (refused, nobody) = world.document["spec"]["source"], world.document["spec"]["sinks"]
    well = s3.storage(secret="${S3_SECRET}")
    source["storage"] = {**well, "key_id": "somebody"}
    refused["data_path"] = "s3://there-is-none/t0"
    # In this order: of a file that was read once, this process keeps the content.
    assert _doctor(world, code=3) == [("main.events", "TC4060", "error"), ("t0", "TC4062", "error")]
    source["storage"] = well
    refused["storage"] = {**well, "secret": "canary-secret-93b1-not"}
    nobody["storage"] = {**well, "endpoint": f"127.0.0.1:{free_port()}"}
    assert _doctor(world, code=3) == [("t0", "TC4060", "error"), ("t1", "TC4063", "error")]


def test_two_lakes_under_one_prefix_are_told(world: World) -> None:
    """A clean-up of one would delete the other's files."""
    first, second = world.document["spec"]["sinks"]
    second["data_path"] = first["data_path"] + "/inside"
    assert _doctor(world, code=0) == [("t1", "TC4020", "warning")]
    told = call("doctor", world.file, "--json").json["findings"][0]["what"]
    assert first["data_path"] in told


def test_what_killed_transactions_left_is_told_and_ducklake_removes_it(world: World, s3: S3Server) -> None:
    """Files that no snapshot knows, a day old: counted. DuckLake's own clean-up takes exactly them away."""
    seed(world.pipeline(), "t0")
    place = world.document["spec"]["sinks"][0]["data_path"]
    folder = s3.data / place.removeprefix("s3://")
    kept = sorted(folder.rglob("*.parquet"))
    for number in range(2):
        name = f"main/events/ducklake-0197{number:04d}-0000-7000-8000-000000000000.parquet"
        world.tenant("t0", f"COPY (SELECT 1 AS id) TO '{place}/{name}'")
    assert _doctor(world, code=0) == [], "they may belong to a transaction that is under way"
    age(folder, days=2)
    assert _doctor(world, code=0) == [("t0", "TC4022", "warning")]
    world.tenant("t0", "CALL ducklake_delete_orphaned_files('lake', older_than => now() - INTERVAL 1 DAY)")
    assert sorted(folder.rglob("*.parquet")) == kept
    assert _doctor(world, code=0) == []
