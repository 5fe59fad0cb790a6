"""The demo, as `make demo` runs it: its word is not taken, the lakes are compared here again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.cli.demo_story import told_in_order
from tests.patience import PATIENCE_S
from truecut.demo.folder import fresh
from truecut.demo.lakes import TENANTS
from truecut.demo.server import running_server
from truecut.demo.shop import TABLES, Shop
from truecut.errors import TruecutError
from truecut.lake import attach_sql, connect, parse_address


def test_the_demo_is_killed_resumes_and_ends_with_every_tenant_equal(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    size = ("--rows", "5000", "--seconds", "4")
    run = subprocess.run(
        [sys.executable, "-m", "truecut", "demo", "--lakes", "--folder", str(folder), *size],
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
    fresh(folder)  # all that it made is known as a demo's


STORY = """
import sys
from pathlib import Path
from rich.console import Console
from truecut.cli.demo import bring_up
from truecut.demo import shop_story
from truecut.demo.shop import Shop
shop = Shop(Path(sys.argv[1]), sys.argv[2])
console = Console(soft_wrap=True)
print(shop_story.live(console, shop, orders=1_000, seconds=2, bring_up=bring_up), "transactions")
print(shop_story.certificate_page(shop))
"""


def test_the_shop_is_killed_resumed_verified_tampered_with_and_repaired(tmp_path: Path) -> None:
    """A live PostgreSQL into a lake and another one: what is certified is verified, the row is named that
    was changed behind our back, and what was repaired is the source; the server outlives the story here, so
    that this is compared without it. And the demo's own comparison would see a single row."""
    with running_server() as dsn:
        shop = Shop(tmp_path / "demo", dsn)
        told = subprocess.run(
            [sys.executable, "-c", STORY, str(shop.folder), dsn],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert told.returncode == 0, told.stdout + told.stderr
        lines = told.stdout.splitlines()
        key = told_in_order(lines)
        assert int(lines[-2].split()[0]) > 10
        assert "shop" in Path(lines[-1]).read_text()
        for table in TABLES:
            query = f"SELECT * FROM public.{table} ORDER BY 1, 2"
            with psycopg.connect(shop.source) as source, psycopg.connect(shop.warehouse) as copy:
                expected = source.execute(query.encode()).fetchall()
                assert len(expected) > 500
                assert copy.execute(query.encode()).fetchall() == expected
            in_lake = query.replace("public", "lake.public")
            assert _rows(shop.folder, "lake.ducklake", "lake", in_lake) == expected
        assert all(one.equal for one in shop.compare())
        number = shop.tamper()
        found = {(one.sink, one.table): (one.missing, one.extra) for one in shop.compare() if not one.equal}
        assert found == {("lake", "orders"): (1, 1)}
        assert key == f"id={number}"
    fresh(shop.folder)  # all that it made is known as a demo's


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


def test_what_a_user_put_into_a_demos_folder_is_left_alone(tmp_path: Path) -> None:
    """It, and the demo's own, is as it was; without it, what a demo left goes. What is linked stays where
    it lies."""
    folder, elsewhere = tmp_path / "demo", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "orders.parquet").write_text("mine")
    for mine in ("letter.txt", "notes", "source.ducklake.copy", "lakes.zip"):
        fresh(folder)
        for name in (
            "pipeline.yaml",
            "source.ducklake",
            "source.ducklake-wal",
            "lake.ducklake.wal",
            "run.log",
        ):
            (folder / name).write_text("a demo's")
        (folder / "lakes" / "acme").mkdir(parents=True)
        (folder / "lake").symlink_to(elsewhere)
        (folder / mine).mkdir() if mine == "notes" else (folder / mine).write_text("mine")
        before = sorted(folder.rglob("*"))
        with pytest.raises(TruecutError, match=f"TC5020.*{mine}"):
            fresh(folder)
        assert sorted(folder.rglob("*")) == before
        (folder / mine).rename(tmp_path / mine)
        fresh(folder)
        assert [path.name for path in folder.iterdir()] == ["made-by-truecut-demo"]
    assert (elsewhere / "orders.parquet").read_text() == "mine"


def _orders(folder: Path, catalog: str, data: str) -> list[tuple[object, ...]]:
    return _rows(folder, catalog, data, "FROM lake.main.orders ORDER BY ALL")


def _rows(folder: Path, catalog: str, data: str, query: str) -> list[tuple[object, ...]]:
    with connect() as lake:
        lake.execute(attach_sql(parse_address(catalog, data, base=folder), "lake", read_only=True))
        return lake.execute(query).fetchall()
