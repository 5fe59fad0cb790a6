"""A world that does not fit, seen before Spark starts: a clear message with its remedy, the right exit code,
nothing lost or half-written, and neither a secret nor a row's value anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.canaries import CREATE, NOISE, ROW, assert_silent
from tests.cli.inside import call, seed, tree
from tests.cli.tenants import make_newer
from tests.e2e.world import World, tenants_document
from tests.patience import PATIENCE_S
from truecut.runtime.control import open_control


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
    assert_silent(answer.stdout, answer.stderr)


def test_a_source_that_is_not_there(world: World) -> None:
    """Wrong input; nothing is created in its place."""
    world.document["spec"]["source"]["catalog"] = "sorce.db"
    _refused(world, code=2, says="TC2001")
    assert not (world.folder / "sorce.db").exists()


def test_a_source_of_a_newer_format(world: World) -> None:
    """The environment is not fit: upgrade."""
    make_newer(world.folder / "source.db")
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
    assert_silent(limited.stderr)
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
        timeout=PATIENCE_S,
        check=False,
    )
