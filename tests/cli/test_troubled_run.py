"""A world that does not fit, met by a run: it stops what it must and only that, names the rest with code and
remedy, and tells neither a secret nor a row's value."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.cli.canaries import CREATE, NOISE, ROW, SECRET, assert_silent
from tests.cli.holder import holding
from tests.cli.inside import Answer, call
from tests.cli.tenants import make_lake, make_newer
from tests.cli.tiny_disk import TinyDisk, tiny_disk
from tests.e2e.process import Process, started
from tests.e2e.world import World, eventually, tenants_document
from tests.patience import PATIENCE_S
from truecut.lake import connect

TABLES = {
    "nope": "TC2002",
    "no_key": "TC2004",
    "no_route": "TC2004",
    "huge": "TC2006",
    "repeated": "TC3020",
    "nulls": "TC2007",
}
STUCK = {"folder": "TC4007", "newer": "TC4004", "foreign": "TC4013", "garbage": "TC4008", "nowhere": "TC4015"}
BUSY = {"locked": "TC4001", "down": "TC4005"}


def test_a_run_goes_on_with_what_is_fit_and_names_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run, everything wrong at once: a source that is held at first, tables that cannot be copied,
    sinks that cannot be written. What is fit arrives; what is held by a lock or a full disk arrives by
    itself once that is gone; the rest is named, with its code and remedy, and left as it was."""
    monkeypatch.setenv("SECRET", SECRET)
    world = _troubled_world(tmp_path)
    kept = {name: _files_of(tmp_path, name) for name in ("foreign", "newer", "garbage")}
    with ExitStack() as stack:
        disk = stack.enter_context(_small_disk(world))
        lock = stack.enter_context(_locked(tmp_path / "locked.db"))
        source = stack.enter_context(_locked(tmp_path / "source.db"))
        arguments = ("--log-level", "debug", "run", world.file, "--until-caught-up", "--timeout", "1200s")
        process = stack.enter_context(started(*arguments))
        eventually(partial(_source_is_held, world), what="the source's lock is told")
        source.release()
        codes = {**STUCK, **BUSY, **({} if disk is None else {"full": "TC4002"})}
        eventually(lambda: _codes(world, codes) == codes, what=f"{codes}")
        lock.release()
        waiting = ["locked"]
        if disk is not None:
            disk.grow(mib=200)
            waiting.append("full")
        eventually(lambda: _holds(world) == TABLES, what=f"{TABLES}")
        _assert_arrived(world, "good")
        for sink in waiting:
            eventually(partial(_arrived, world, sink), what=f"{sink} recovers by itself")
        assert call("pause", world.file, "--sink", "down").code == 0  # the last that could still arrive
        _assert_names_the_rest(process)
    assert kept == {name: _files_of(tmp_path, name) for name in kept}
    assert_silent(*(path.read_bytes() for path in (tmp_path / ".truecut").rglob("*") if path.is_file()))


class _Lock:
    """A catalog held by another process, until it is let go."""

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(holding(path))

    def release(self) -> None:
        self._stack.close()


@contextmanager
def _locked(path: Path) -> Iterator[_Lock]:
    lock = _Lock(path)
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def _small_disk(world: World) -> Iterator[TinyDisk | None]:
    """As root, a sink on a disk without room; only root can make one (test_unfit_world.py limits a file)."""
    if os.geteuid() != 0:
        yield None
        return
    with tiny_disk(world.folder / "tiny", mib=1) as disk:
        world.document["spec"]["sinks"].append(_sink("full", data_path="tiny/data"))
        world.save()
        yield disk


def _sink(name: str, **settings: Any) -> dict[str, Any]:
    common = {"type": "ducklake", "catalog": f"{name}.db", "data_path": f"{name}-data"}
    only = [{"name": "main.events"}]
    return {"name": name, **common, "tables": only, **settings}


def _troubled_world(folder: Path) -> World:
    tables = [{"name": "main.events", "key": ["id"]}]
    tables += [{"name": f"main.{name}", "key": ["id"]} for name in TABLES]
    by_name: dict[str, dict[str, Any]] = {str(table["name"]): table for table in tables}
    by_name["main.no_key"]["key"] = ["idd"]
    by_name["main.no_route"]["route_by"] = "tenantt"
    nowhere = _sink("nowhere", catalog="sqlite:nowhere.db")
    del nowhere["data_path"]
    good = _sink("good")
    del good["tables"]
    down = "postgres:host=127.0.0.1 port=1 user=u password=${SECRET} dbname=d"
    document = tenants_document(tenants=[], source="source.db")
    document["metadata"]["name"] = "trouble"
    document["spec"]["tables"] = tables
    document["spec"]["lease"] = {"duration": "4s"}
    document["spec"]["sinks"] = [
        good,
        nowhere,
        *(_sink(name) for name in (*STUCK, "locked") if name != "nowhere"),
    ]
    document["spec"]["sinks"].append(_sink("down", catalog=down))
    world = World(folder, None, document)
    world.source(
        CREATE,
        NOISE,
        "CREATE TABLE lake.main.no_key (id INTEGER)",
        "CREATE TABLE lake.main.no_route (id INTEGER)",
        "CREATE TABLE lake.main.huge (id INTEGER, n HUGEINT)",
        "CREATE TABLE lake.main.repeated (id VARCHAR)",
        f"INSERT INTO lake.main.repeated VALUES ('{ROW}'), ('{ROW}')",
        "CREATE TABLE lake.main.nulls (id VARCHAR, v VARCHAR)",
        f"INSERT INTO lake.main.nulls VALUES (NULL, '{ROW}')",
    )
    make_lake(folder, "foreign", "CREATE TABLE lake.main.events AS SELECT 42 AS answer")
    make_lake(folder, "newer")
    make_lake(folder, "locked")
    make_newer(folder / "newer.db")
    (folder / "garbage.db").write_text(ROW)
    (folder / "folder-data").write_text("a file where a folder should be")
    world.save()
    return world


def _files_of(folder: Path, name: str) -> Any:
    """What a sink that was refused must still hold: its rows, or its bytes where nobody can read them."""
    if name != "foreign":
        return (folder / f"{name}.db").read_bytes()
    shutil.copy(folder / "foreign.db", folder / "foreign.copy")
    with connect() as tenant:
        tenant.execute(f"ATTACH 'ducklake:{folder / 'foreign.copy'}' AS lake")
        rows = tenant.execute("FROM lake.main.events").fetchall()
    (folder / "foreign.copy").unlink()
    return rows


def _status(world: World) -> dict[str, Any]:
    answer: Answer = call("status", world.file, "--json")
    assert answer.code == 0, answer.stderr
    assert_silent(answer.stdout, answer.stderr)
    return answer.json


def _codes(world: World, wanted: dict[str, str]) -> dict[str, str]:
    sinks = {sink["name"]: sink for sink in _status(world)["sinks"]}
    errors = {name: sinks[name]["error"] for name in wanted if sinks[name]["error"]}
    assert all(error["fix"] and error["message"] for error in errors.values())
    return {name: error["code"] for name, error in errors.items()}


def _holds(world: World) -> dict[str, str]:
    tables = {table["name"]: table["error"] for table in _status(world)["tables"]}
    return {name: tables[f"main.{name}"]["code"] for name in TABLES if tables[f"main.{name}"]}


def _arrived(world: World, sink: str) -> bool:
    try:
        rows = world.sink_rows(sink)
    except duckdb.Error:  # not there yet
        return False
    return rows == world.source_rows("FROM lake.main.events ORDER BY ALL")


def _assert_arrived(world: World, sink: str) -> None:
    eventually(lambda: _arrived(world, sink), what=f"{sink} has all rows")


def _source_is_held(world: World) -> bool:
    error = _status(world)["source"]["error"]
    return error is not None and error["code"] == "TC4001"


def _assert_names_the_rest(process: Process) -> None:
    """It ends by itself, since nothing else can arrive: exit 1, every sink with its reason."""
    stdout, stderr = process.popen.communicate(timeout=PATIENCE_S)
    assert process.popen.returncode == 1, stderr
    assert "TC3010 7 sink(s) could not follow:" in stderr
    for sink in ("good", *STUCK, "down"):
        assert f"\n  {sink}: " in stderr
    assert "Traceback" not in stderr
    assert_silent(stdout, stderr)
