"""What the tests cost stands in CONTRIBUTING.md, part for part, and is read from there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests import timing

ROOT = Path(__file__).parent.parent.parent
TEST_S, ALL_S = 20 * 60 * 2, 45 * 60 * 2  # of CPU, on two cores


def test_every_part_has_its_budget() -> None:
    """No folder of tests is without one, none stands for what is gone, and together they keep the promise."""
    budgets = timing.budgets((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert set(budgets) == {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert sum(budgets.values()) <= TEST_S <= ALL_S


def test_a_part_over_its_budget_is_told() -> None:
    """Parts and files with the most costly first; whoever is over is marked."""
    spent = {"tests/e2e/test_a.py": 70.0, "tests/e2e/test_b.py": 40.0, "tests/core/test_c.py": 5.0}
    assert timing.report(spent, {"e2e": 100, "core": 10}) == [
        "     110 of   100  tests/e2e  OVER BUDGET by 10",
        "       5 of    10  tests/core",
        "     115 of   110  all  OVER BUDGET by 5",
        "the most costly files:",
        "      70  tests/e2e/test_a.py",
        "      40  tests/e2e/test_b.py",
        "       5  tests/core/test_c.py",
    ]


def test_what_was_compiled_is_kept() -> None:
    """Images forbid it. Then hundreds of processes would compile what they import, 1.3 s of CPU each."""
    told = subprocess.run(
        ["make", "--eval=probe: ; @env", "probe"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PROBED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "PROBED=1" in told
    assert "PYTHONDONTWRITEBYTECODE" not in told


def test_a_childs_seconds_are_counted() -> None:
    """Those of a child that has ended, and of one that has not."""
    burn = "import time\nwhile time.process_time() < 1: pass\nprint('burnt', flush=True)\ninput()"
    times = timing.CpuTimes()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "burnt\n"
    children[0].communicate("\n")
    times.charge("tests/x/test_one.py")
    children[1].communicate("\n")
    times.charge("tests/x/test_two.py")
    assert times.spent["tests/x/test_one.py"] > 1.9
    assert times.spent["tests/x/test_two.py"] < 1.0


def test_what_is_done_for_all_is_charged_where_it_belongs() -> None:
    """The judge of all traces runs with the last test of a process, whichever that is."""
    times = timing.CpuTimes()
    _burn()
    with times.charged_to("tests/specs/judge.py", meanwhile="tests/e2e/test_last.py"):
        _burn()
        _burn()
    times.charge("tests/e2e/test_last.py")
    assert times.spent["tests/e2e/test_last.py"] >= 0.2
    assert times.spent["tests/specs/judge.py"] > times.spent["tests/e2e/test_last.py"]


def _burn() -> None:
    end_s = time.process_time() + 0.3
    while time.process_time() < end_s:
        pass
