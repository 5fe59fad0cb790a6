"""Kinds of somebody else's: a package that names itself in the entry points is found as ours are; it runs."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import duckdb
import pytest

from tests.cli.commands import truecut
from tests.config import foreign_folder, foreign_shelf
from tests.config.pipelines import MINIMAL
from tests.e2e.process import started
from tests.e2e.world import eventually
from tests.sinks import memory
from tests.sinks.world import read
from truecut.lake import parse_address
from truecut.model.change import DELETE, INSERT, OP, UPDATE

RUIN = "import a_client_that_is_not_installed\nKIND = None\n"
SINK = "{name: copy, type: ducklake, catalog: ./copy.ducklake}"


def install(site: Path, module: str, text: str, *, group: str, kind: str) -> Path:
    """As an installer would leave it."""
    about = site / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (site / f"{module}.py").write_text(text)
    name = module.replace("_", "-")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{kind} = {module}:KIND\n")
    return site


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A sink that can be named."""
    return install_shelf(tmp_path / "site")


def install_shelf(site: Path) -> Path:
    """Two modules of one package."""
    shelf = Path(foreign_shelf.__file__).read_text().replace("tests.sinks.memory", "foreign_memory")
    install(site, "foreign_shelf", shelf, group="truecut.sinks", kind="shelf")
    (site / "foreign_memory.py").write_text(Path(memory.__file__).read_text())
    return site


@pytest.mark.parametrize(
    ("sink", "code", "said"),
    [
        ("{name: copy, type: shelf, label: north}", 0, "1 sink"),
        ("{name: copy, type: shelf, lable: north}", 2, 'did you mean "label"'),
        ("{name: copy, type: shelf, label: broken}", 2, "no such shelf"),
        ("{name: copy, type: shelve, label: north}", 2, 'did you mean "shelf"'),
        (SINK, 0, "1 sink"),
    ],
    ids=["right", "misspelt key", "unusable", "misspelt type", "ours beside it"],
)
def test_a_foreign_sink_is_validated_by_its_own_section(
    installed: Path, tmp_path: Path, sink: str, code: int, said: str
) -> None:
    """Its keys, its suggestions and its own objections, without a word about it in our code."""
    (tmp_path / "pipeline.yaml").write_text(MINIMAL.replace(SINK, sink))
    done = truecut("validate", "pipeline.yaml", cwd=tmp_path, PYTHONPATH=str(installed))
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


def test_a_foreign_source_is_carried_to_a_foreign_sink(tmp_path: Path) -> None:
    """A whole run: seed and changes are planned by its driver's side, its tasks are read by Spark's workers,
    and the sinks, somebody's and ours, hold exactly what its files say. A kind that is installed
    beside them and cannot be loaded is nobody's concern."""
    site = install(
        tmp_path / "site",
        "foreign_folder",
        Path(foreign_folder.__file__).read_text(),
        group="truecut.sources",
        kind="folder",
    )
    install_shelf(site)
    install(site, "foreign_ruin", RUIN, group="truecut.sinks", kind="ruin")
    environ = {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    source = "{type: ducklake, catalog: ./source.ducklake}"
    document = MINIMAL.replace(source, "{type: folder, path: ./notes}").replace("main.events", "main.notes")
    (tmp_path / "pipeline.yaml").write_text(
        document.replace("./copy.ducklake", '"sqlite:copy.db", data_path: ./data')
        + "    - {name: acme, type: shelf, label: north}\n"
    )
    (tmp_path / "notes").mkdir()
    commit(tmp_path, 1, (INSERT, 1, "one"), (INSERT, 2, "two"))
    commit(tmp_path, 2, (INSERT, 3, "three"))
    with started("run", tmp_path / "pipeline.yaml", env=environ) as process:
        seed = [(1, "one"), (2, "two"), (3, "three")]
        eventually(lambda: process.is_dead() or held(tmp_path) == seed, what="the seed is there")
        commit(tmp_path, 3, (UPDATE, 1, "uno"), (DELETE, 2, "two"), (INSERT, 4, "four"))
        left = [(1, "uno"), (3, "three"), (4, "four")]
        eventually(lambda: process.is_dead() or held(tmp_path) == left, what="the changes are there")
        stopped = process.stop()
    assert stopped.code == 0, stopped.stderr
    assert held(tmp_path) == left


def commit(folder: Path, place: int, *changes: tuple[int, int, str]) -> None:
    """One transaction of the folder, whole when it has its name."""
    told = [{OP: op, "id": key, "text": text} for op, key, text in changes]
    (folder / "new").write_text(json.dumps(told))
    (folder / "new").rename(folder / "notes" / f"{place}.json")


def held(folder: Path) -> list[tuple[int, str]] | None:
    """What both sinks hold, as plain duckdb and the file tell; None before it is the same."""
    try:
        copy = read(parse_address("sqlite:copy.db", "data", base=folder), "notes")
        _, mirrors, _ = pickle.loads((folder / "north").read_bytes())
        shelf = [(row["id"], row["text"]) for _, row in sorted(mirrors["main.notes"].items())]
    except (duckdb.Error, FileNotFoundError, KeyError):
        return None
    return copy if copy == shelf else None
