"""Two processes share the tests as `tests/sharing.py` says: tried, because an unused scheduler is silent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.sharing import APART, LONG, SHARED, group_of

ROOT = Path(__file__).parent.parent.parent
TESTS = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(8))
def test_where(number):
    with open(pathlib.Path(__file__).parents[2] / "where", "a") as where:
        where.write(f"{pathlib.Path(__file__).name} {os.getpid()}\\n")
"""
FILES = (
    "tests/e2e/test_cluster.py",
    "tests/docs/test_spark.py",
    "tests/core/test_small.py",
    "tests/a/test_tiny.py",
)


def test_what_belongs_together_runs_in_one_process(tmp_path: Path) -> None:
    """A file's tests never meet another process, files that share something neither; both processes work."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(TESTS)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.sharing", "-n", "2", "--dist", "loadfile")
    options = ("--no-loadscope-reorder", "--import-mode=importlib", "--rootdir", str(tmp_path), str(tmp_path))
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (tmp_path / "where").read_text().splitlines()]
    assert len(lines) == 8 * len(FILES)
    processes = {file: {pid for name, pid in lines if name == Path(file).name} for file in FILES}
    assert all(len(pids) == 1 for pids in processes.values())
    assert processes["tests/e2e/test_cluster.py"] == processes["tests/docs/test_spark.py"]
    assert len(set.union(*processes.values())) == 2


def test_what_shares_nothing_is_apart() -> None:
    """Each model is a group of its own; whatever else is in its file stays together, and has its place."""
    (test,) = APART
    assert group_of(f"{test}[log]") != group_of(f"{test}[content]")
    assert group_of("tests/specs/test_models.py::test_no_bug_survives[no_fence]") in LONG


def test_every_file_that_is_named_is_there() -> None:
    """A renamed file would silently lose its place, a renamed test would be with its file again."""
    files = [name for name in (*SHARED, *LONG) if name not in SHARED.values()]
    assert [name for name in files if not (ROOT / name).is_file()] == []
    for file, _, test in (name.partition("::") for name in APART):
        assert f"def {test}(" in (ROOT / file).read_text()
