"""Bad input as a user meets it: a clear message with place and remedy, the right exit code, nothing
lost or half-written, and neither a secret nor a row's value anywhere.

Files that are wrong in themselves are refused before anything is touched; what is wrong in the world stops
what it must, and only that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.cli.holder import holding
from tests.cli.inside import Answer, call, seed, tree, untouched
from tests.cli.tiny_disk import TinyDisk, tiny_disk
from tests.config.pipelines import TENANTS, VALID, changed
from tests.e2e.process import Process, started
from tests.e2e.world import World, eventually, tenants_document
from truecut.lake import connect
from truecut.runtime.control import open_control

SECRET = "canary-secret-93b1"
ROW = "canary-row-5d20"


def _assert_silent(*texts: str | bytes) -> None:
    """No secret and no row value in any of them."""
    for text in texts:
        content = text.encode() if isinstance(text, str) else text
        for canary in (SECRET, ROW):
            assert canary.encode() not in content, f"{canary} was told"


# --- files that are wrong in themselves ---------------------------------------------------------------

WRONG_FILES = {
    "unknown key": (
        ("data_path: ./acme-data", "data_pathh: ${SECRET}"),
        'p.yaml:18  TC1010  sinks.acme.data_pathh: unknown key; did you mean "data_path"?',
    ),
    "wrong type": (("key: [id]", "key: {id: 1}"), "p.yaml:12  TC1011  tables.main.events.key"),
    "missing variable": (("./acme-data", "${NOT_THERE_AT_ALL}"), "p.yaml:18  TC1020  sinks.acme.data_path"),
    "duplicate sink names": (("name: acme", "name: t-globex"), "TC1040"),
    "placeholder without a column": (("lakes/{tenant}.ducklake", "lakes/{tenat}.ducklake"), "TC1035"),
    "the same table twice": (("./lakes/{tenant}.ducklake", "./acme.ducklake"), "TC1041"),
    "not yaml": (("kind: Pipeline", "kind: [Pipeline"), "TC1004"),
    "no column to route by": (("      route_by: tenant\n", ""), "TC1047"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
@pytest.mark.parametrize("command", ["run", "plan", "doctor", "status"])
def test_a_wrong_file_stops_every_command_before_it_does_anything(
    command: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2 with file, line, code and path; no file is made."""
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    (old, new), expected = WRONG_FILES[case]
    (tmp_path / "p.yaml").write_text(changed(VALID, old, new))
    (tmp_path / "tenants.csv").write_text(TENANTS)
    with untouched(tmp_path):
        answer = call(command, "p.yaml")
    assert answer.code == 2
    assert expected in answer.stderr
    assert re.match(r"(p\.yaml|tenants\.csv):\d+  TC1\d{3}  ", answer.stderr)
    _assert_silent(answer.stdout, answer.stderr)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("tenant,region\n", "TC1031"),
        ("tenant,region\nglobex,eu\nglobex,eu\n", "tenants.csv:3  TC1034"),
        ("tenant,region\nglobex,eu\nglobex,us\n", "TC1040"),
        ("tenant,region\nglobex,eu\n\ninitech,us\n", "tenants.csv:3  TC1033"),
    ],
    ids=["empty", "the same line twice", "the same name twice", "an empty line"],
)
def test_a_wrong_for_each_file_is_named_with_its_line(
    lines: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2 before anything is touched."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(VALID)
    (tmp_path / "tenants.csv").write_text(lines)
    with untouched(tmp_path):
        answer = call("run", "p.yaml", "--until-caught-up")
    assert (answer.code, answer.stdout) == (2, "")
    assert expected in answer.stderr


def test_a_hundred_megabytes_are_no_pipeline(tmp_path: Path) -> None:
    """Refused at once, whatever is in it."""
    path = tmp_path / "big.yaml"
    with path.open("wb") as big:
        big.truncate(100 << 20)
    begun = time.monotonic()
    answer = call("run", path)
    assert (answer.code, answer.stdout) == (2, "")
    assert "TC1002" in answer.stderr
    assert time.monotonic() - begun < 5


# --- a world that does not fit, seen before Spark starts ------------------------------------------------

CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR, v VARCHAR)"
# Random text does not compress: it takes more room than a mebibyte.
NOISE = (
    f"INSERT INTO lake.main.events SELECT i, 't1', '{ROW}-' || hash(i) || hash(-i) || hash(i * 7)"
    " FROM range(1000, 61000) r(i)"
)


def _fill(start: int, count: int) -> str:
    return (
        f"INSERT INTO lake.main.events SELECT i, 't' || (i % 2), '{ROW}-' || i"
        f" FROM range({start}, {start + count}) r(i)"
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    document = tenants_document(tenants=["t0", "t1"], source="source.db", catalog="{tenant}.db")
    made = World(tmp_path, None, document)
    made.source(CREATE, _fill(0, 90))
    return made


def _make_newer(catalog: Path) -> None:
    """As a later version of DuckLake would leave it."""
    with duckdb.connect(str(catalog)) as metadata:
        metadata.execute("UPDATE ducklake_metadata SET value = '99.0' WHERE key = 'version'")


def _refused(world: World, *, code: int, says: str) -> None:
    """`run` ends without Spark, with this in its message, and changes no lake."""
    lakes = {name: world.folder / name for name in ("source.db", "source-data")}
    world.save()
    before = {name: tree(path.parent).get(name) for name, path in lakes.items()}
    answer = call("run", world.file, "--until-caught-up")
    assert answer.code == code, answer.stderr
    assert says in answer.stderr
    assert "fix:" in answer.stderr
    assert before == {name: tree(path.parent).get(name) for name, path in lakes.items()}
    _assert_silent(answer.stdout, answer.stderr)


def test_a_source_that_is_not_there(world: World) -> None:
    """Wrong input; nothing is created in its place."""
    world.document["spec"]["source"]["catalog"] = "sorce.db"
    _refused(world, code=2, says="TC2001")
    assert not (world.folder / "sorce.db").exists()


def test_a_source_of_a_newer_format(world: World) -> None:
    """The environment is not fit: upgrade."""
    _make_newer(world.folder / "source.db")
    _refused(world, code=3, says="TC4004")


def test_a_source_that_is_no_lake(world: World) -> None:
    """Text where a catalog should be."""
    (world.folder / "other.db").write_text(ROW)
    world.document["spec"]["source"]["catalog"] = "other.db"
    _refused(world, code=3, says="TC4008")


@pytest.mark.parametrize("cut", [50, 4096, 4097, 20_000])
def test_a_truncated_control_store_is_refused_and_left_alone(cut: int, world: World) -> None:
    """Every command that needs it exits 3 and says what to do; afterwards the remedy works."""
    pipeline = world.pipeline()
    store = open_control(pipeline.control, pipeline=pipeline.name)
    store.report_sinks({f"s{n}": {"state": "x" * 100} for n in range(300)})
    store.close()
    path = Path(pipeline.control.reveal())
    content = path.read_bytes()
    assert len(content) > cut
    path.write_bytes(content[:cut])
    for command in ("run", "status", "plan", "doctor", "drop"):
        answer = call(command, world.file)
        told = answer.stdout if command == "doctor" else answer.stderr
        assert (answer.code, "TC5010" in told) == (3, True), f"{command}: {told}"
        assert "Move the file away" in told
        assert path.read_bytes() == content[:cut]
    path.rename(path.with_suffix(".kept"))
    assert call("status", world.file).code == 0


def test_a_control_store_that_cannot_be_opened(world: World) -> None:
    """A folder where the file should be: exit 3, and no advice to move anything away."""
    (world.folder / "control").mkdir()
    world.document["spec"]["control"] = "./control"
    _refused(world, code=3, says="TC5013")


def test_a_file_in_the_way_of_the_state_folder(world: World) -> None:
    """The state folder cannot be made: exit 3, and no lake is touched."""
    (world.folder / "state").write_text("a file")
    world.document["spec"]["state"] = "state/here"
    _refused(world, code=3, says="TC5012")


def test_a_disk_that_fills_up_in_the_middle_of_an_order(world: World) -> None:
    """The order has no effect, the fault says why and that it can be tried again; then it is carried out."""
    world.document["spec"]["sinks"][1]["catalog"] = "sqlite:t1.db"  # a smaller file than DuckDB's
    world.source(NOISE)
    world.save()
    program = (
        "import resource, sys; from pathlib import Path; from tests.cli.inside import seed;"
        "from truecut.config.load import load;"
        "limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY));"
        "seed(load(Path(sys.argv[1]), environ={}), 't1', before_apply=limit)"
    )
    limited = _python(program, str(world.file))
    assert "TC4002" in limited.stderr, limited.stderr
    assert "RETRYABLE" in limited.stderr
    _assert_silent(limited.stderr)
    assert world.sink_rows("t1", "SELECT table_name FROM duckdb_tables()") == [("cursor",)]
    seed(world.pipeline(), "t1")
    expected = world.source_rows("FROM lake.main.events WHERE tenant = 't1' ORDER BY ALL")
    assert world.sink_rows("t1") == expected


def _python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=120,
        check=False,
    )


# --- a world that does not fit, met by a run ------------------------------------------------------------

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
        arguments = ("--log-level", "debug", "run", world.file, "--until-caught-up", "--timeout", "300s")
        process = stack.enter_context(started(*arguments))
        eventually(partial(_source_is_held, world), timeout_s=60, what="the source's lock is told")
        source.release()
        codes = {**STUCK, **BUSY, **({} if disk is None else {"full": "TC4002"})}
        eventually(lambda: _codes(world, codes) == codes, timeout_s=100, what=f"{codes}")
        lock.release()
        waiting = ["locked"]
        if disk is not None:
            disk.grow(mib=200)
            waiting.append("full")
        eventually(lambda: _holds(world) == TABLES, timeout_s=60, what=f"{TABLES}")
        _assert_arrived(world, "good")
        for sink in waiting:
            eventually(partial(_arrived, world, sink), timeout_s=90, what=f"{sink} recovers by itself")
        assert call("pause", world.file, "--sink", "down").code == 0  # the last that could still arrive
        _assert_names_the_rest(process)
    assert kept == {name: _files_of(tmp_path, name) for name in kept}
    _assert_silent(*(path.read_bytes() for path in (tmp_path / ".truecut").rglob("*") if path.is_file()))


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
    """As root, a sink on a disk without room; only root can make one (see also the order above)."""
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
    for name in ("foreign", "newer", "locked"):
        _make_lake(folder, name)
    with connect() as tenant:
        tenant.execute(f"ATTACH 'ducklake:{folder / 'foreign.db'}' AS lake")
        tenant.execute("CREATE TABLE lake.main.events AS SELECT 42 AS answer")
    _make_newer(folder / "newer.db")
    (folder / "garbage.db").write_text(ROW)
    (folder / "folder-data").write_text("a file where a folder should be")
    world.save()
    return world


def _make_lake(folder: Path, name: str) -> None:
    with connect() as tenant:
        path, data = folder / f"{name}.db", folder / f"{name}-data"
        tenant.execute(f"ATTACH 'ducklake:{path}' AS lake (DATA_PATH '{data}')")


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
    _assert_silent(answer.stdout, answer.stderr)
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
    eventually(lambda: _arrived(world, sink), timeout_s=30, what=f"{sink} has all rows")


def _source_is_held(world: World) -> bool:
    error = _status(world)["source"]["error"]
    return error is not None and error["code"] == "TC4001"


def _assert_names_the_rest(process: Process) -> None:
    """It ends by itself, since nothing else can arrive: exit 1, every sink with its reason."""
    stdout, stderr = process.popen.communicate(timeout=60)
    assert process.popen.returncode == 1, stderr
    assert "TC3010 7 sink(s) could not follow:" in stderr
    for sink in ("good", *STUCK, "down"):
        assert f"\n  {sink}: " in stderr
    assert "Traceback" not in stderr
    _assert_silent(stdout, stderr)
