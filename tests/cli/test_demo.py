"""The demo, as `make demo` runs it: its word is not taken, the lakes are compared here again."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import psycopg
from rich.console import Console

from tests.patience import PATIENCE_S
from truecut.demo import shop_story
from truecut.demo.lakes import TENANTS
from truecut.demo.server import running_server
from truecut.demo.shop import TABLES, Shop
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


def test_the_shop_is_killed_resumes_and_ends_with_every_table_equal(tmp_path: Path) -> None:
    """A live PostgreSQL into a lake and another one; and the demo's own comparison would see a single row."""
    with running_server() as dsn:
        shop = Shop(tmp_path / "demo", dsn)
        printed = io.StringIO()
        transactions = shop_story.live(Console(file=printed), shop, orders=1_000, seconds=2)
        assert transactions > 10
        assert "killed -9 in the middle of it" in printed.getvalue()
        for table in TABLES:
            query = f"SELECT * FROM public.{table} ORDER BY 1, 2"
            with psycopg.connect(shop.source) as source, psycopg.connect(shop.warehouse) as copy:
                expected = source.execute(query.encode()).fetchall()
                assert len(expected) > 500
                assert copy.execute(query.encode()).fetchall() == expected
            in_lake = query.replace("public", "lake.public")
            assert _rows(shop.folder, "lake.ducklake", "lake", in_lake) == expected
        assert all(one.equal for one in shop.compare())
        newest = "SELECT max(id) FROM public.orders"
        with psycopg.connect(shop.warehouse) as copy:
            copy.execute(f"UPDATE public.orders SET total = total + 1 WHERE id = ({newest})".encode())
        found = {(one.sink, one.table): (one.missing, one.extra) for one in shop.compare() if not one.equal}
        assert found == {("warehouse", "orders"): (1, 1)}


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
    return _rows(folder, catalog, data, "FROM lake.main.orders ORDER BY ALL")


def _rows(folder: Path, catalog: str, data: str, query: str) -> list[tuple[object, ...]]:
    with connect() as lake:
        lake.execute(attach_sql(parse_address(catalog, data, base=folder), "lake", read_only=True))
        return lake.execute(query).fetchall()
