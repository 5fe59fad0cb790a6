"""The demo, as `make demo` runs it: its word is not taken, the lakes are compared here again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S
from truecut.demo.lakes import TENANTS
from truecut.lake import attach_sql, connect, parse_address


def test_the_demo_is_killed_resumes_and_ends_with_every_tenant_equal(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    size = ("--rows", "5000", "--seconds", "4")
    run = subprocess.run(
        [sys.executable, "-m", "truecut", "demo", "--folder", str(folder), *size],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "killed -9 in the middle of it" in run.stdout
    assert run.stdout.count("✓ equal") == len(TENANTS)
    source = _orders(folder, "sqlite:source.ducklake", "source-data")
    assert len(source) > 5000
    for tenant in TENANTS:
        share = [order for order in source if order[1] == tenant]
        assert share
        assert _orders(folder, f"lakes/{tenant}.ducklake", f"lakes/{tenant}") == share


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    run = subprocess.run(
        [sys.executable, "-m", "truecut", "demo", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (run.returncode, "TC5020" in run.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def _orders(folder: Path, catalog: str, data: str) -> list[tuple[object, ...]]:
    with connect() as lake:
        lake.execute(attach_sql(parse_address(catalog, data, base=folder), "lake", read_only=True))
        return lake.execute("FROM lake.main.orders ORDER BY ALL").fetchall()
