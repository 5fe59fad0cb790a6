"""Rows are where their route says, and keys are what they are, to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.content.conftest import KINDS, MakeMirrors
from tests.content.line import Line


def test_a_route_column_dropped_and_added(make_mirrors: MakeMirrors) -> None:
    """Every row has another tenant then, though none was touched: the mirrors are made anew."""
    world = make_mirrors()
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR)",
        "INSERT INTO lake.t VALUES (1, 'a'), (2, 'a'), (3, 'b')",
    )
    assert world.catch_up().reached
    world.source(
        "BEGIN",
        "ALTER TABLE lake.t DROP COLUMN tenant",
        "ALTER TABLE lake.t ADD COLUMN tenant VARCHAR DEFAULT 'b'",
        "COMMIT",
    )
    assert world.catch_up().reached
    assert world.content("a") == []
    world.assert_exact()
    world.source("UPDATE lake.t SET tenant = 'a' WHERE id = 3")
    assert world.catch_up().reached
    world.assert_exact()


def test_an_append_table_whose_rows_belong_elsewhere_is_held(make_mirrors: MakeMirrors) -> None:
    """Nobody can tell which of its rows are whose any more. The reason that is told is that one."""
    world = make_mirrors(mode="append")
    world.source("CREATE TABLE lake.t (id INTEGER, tenant VARCHAR)", "INSERT INTO lake.t VALUES (1, 'a')")
    assert world.catch_up().reached
    world.source(
        "BEGIN",
        "ALTER TABLE lake.t DROP COLUMN tenant",
        "ALTER TABLE lake.t ADD COLUMN tenant VARCHAR DEFAULT 'b'",
        "COMMIT",
    )
    outcome = world.catch_up()
    assert not outcome.reached
    assert "column tenant" in outcome.stragglers["a"]
    assert "no longer has its history" not in outcome.stragglers["a"]


@pytest.mark.parametrize(
    ("narrow", "wide", "texts"),
    [
        ("DECIMAL(4,1)", "DECIMAL(8,2)", ("1.5", "1.50")),
        ("FLOAT", "DOUBLE", ("0.1", "0.10000000149011612")),
    ],
)
def test_a_route_that_is_spelled_otherwise_when_widened(
    make_mirrors: MakeMirrors, narrow: str, wide: str, texts: tuple[str, str]
) -> None:
    """The text of a route column's values changes with its type, and the rows' sinks with it."""
    world = make_mirrors(routes={"old": texts[0], "new": texts[1]})
    world.source(
        f"CREATE TABLE lake.t (id INTEGER, tenant {narrow})", f"INSERT INTO lake.t VALUES (1, {texts[0]})"
    )
    assert world.catch_up().reached
    assert [len(world.content(sink)) for sink in ("old", "new")] == [1, 0]
    world.source(f"ALTER TABLE lake.t ALTER tenant SET DATA TYPE {wide}")
    assert world.catch_up().reached
    assert [len(world.content(sink)) for sink in ("old", "new")] == [0, 1]
    world.assert_exact()


def test_a_wider_integer_goes_on(make_mirrors: MakeMirrors) -> None:
    """Its text is the same, so nothing is made anew: rows stay where they are."""
    world = make_mirrors(routes={"a": "1", "b": "2"})
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant INTEGER)", "INSERT INTO lake.t VALUES (1, 1), (2, 2)"
    )
    assert world.catch_up().reached
    world.source(
        "ALTER TABLE lake.t ALTER tenant SET DATA TYPE BIGINT",
        "ALTER TABLE lake.t ALTER id SET DATA TYPE BIGINT",
    )
    assert world.catch_up().reached
    world.assert_exact()
    kinds = world.sink_rows("a", "SELECT changes FROM ducklake_snapshots('lake') ORDER BY snapshot_id DESC")
    assert "tables_deleted_from" not in kinds[0][0], "a seed would have emptied it"


def test_signs_of_zero(make_mirrors: MakeMirrors) -> None:
    """0.0 = -0.0, yet a key, a value and a route change when the sign does."""
    world = make_mirrors(routes={"plus": "0.0", "minus": "-0.0"}, key=("k",), sinks="sqlite")
    zero, negative = "0.0::DOUBLE", "'-0.0'::DOUBLE"
    world.source(
        "CREATE TABLE lake.t (k DOUBLE, tenant DOUBLE, v DOUBLE, l DOUBLE[])",
        f"INSERT INTO lake.t VALUES ({zero}, {zero}, {zero}, [{zero}]), (1, {zero}, {zero}, [{zero}])",
    )
    assert world.catch_up().reached
    world.assert_exact()
    for change in (f"k = {negative}", f"v = {negative}", f"l = [{negative}]", f"tenant = {negative}"):
        world.source(f"UPDATE lake.t SET {change} WHERE k = 0")
        assert world.catch_up().reached
        world.assert_exact()
    world.source("UPDATE lake.t SET v = 'nan'", "UPDATE lake.t SET v = -v")
    assert world.catch_up().reached
    world.assert_exact()


@pytest.mark.parametrize("kind", KINDS)
def test_a_nul_in_a_text_key(make_mirrors: MakeMirrors, kind: str) -> None:
    """It is a character like any other: inserted, updated, deleted, in small commits and in files."""
    world = make_mirrors(source="sqlite", sinks=kind, key=("k", "id"))
    key = "'k' || chr(0) || n::VARCHAR"
    world.source(
        "CREATE TABLE lake.t (k VARCHAR, id INTEGER, tenant VARCHAR, v INTEGER)",
        f"INSERT INTO lake.t SELECT {key}, n, if(n % 2 = 0, 'a', 'b'), n FROM range(60) r(n)",
    )
    assert world.catch_up().reached
    world.assert_exact()
    world.source(
        "UPDATE lake.t SET v = -v WHERE id < 20",
        "DELETE FROM lake.t WHERE id BETWEEN 10 AND 40",
        "INSERT INTO lake.t VALUES (chr(0), 100, 'a', 1), ('plain', 101, 'b', 1), ('', 102, 'a', 1)",
    )
    assert world.catch_up().reached
    world.assert_exact()
    world.source("DELETE FROM lake.t WHERE id >= 50", "UPDATE lake.t SET k = k || 'x'")
    assert world.catch_up().reached
    world.assert_exact()


def test_time_is_told_in_utc() -> None:
    """Routes, and days that became moments, whatever time zone the process and its own DuckDB have."""
    code = """
import duckdb
import pyarrow as pa
from truecut.model.change import INSERT, OP
from truecut.sources.ducklake.attach import connection
from truecut.spark.wave.route import TableRoute, route

duckdb.execute("SET TimeZone = 'Asia/Tokyo'")
with duckdb.connect() as usual:
    assert usual.execute("SELECT current_setting('TimeZone')").fetchone() == ("America/New_York",)
at = pa.array([0], pa.timestamp("us", "UTC"))
rows = pa.table({OP: pa.array([INSERT], pa.uint8()), "at": at})
routed = route(rows, TableRoute("at", (), {"1970-01-01 00:00:00+00": (0,)}))
assert [(sink, share.num_rows) for sink, share in routed.shares] == [(0, 1)]
with connection() as reading:
    days = reading.execute("SELECT epoch_us(CAST(DATE '1970-01-02' AS TIMESTAMPTZ))").fetchone()
assert days == (86_400_000_000,), days
"""
    zone = {**os.environ, "TZ": "America/New_York"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=zone, capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]


def test_many_threads_route_at_once() -> None:
    """Several tables and files are read by several threads of a worker; none waits for another for ever."""
    code = """
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa
from truecut.spark.wave.route import TableRoute, route

def one(n):
    routes = pa.array([n % 7] * 5000 + [n % 5] * 5000, pa.int32())
    rows = pa.table({"_truecut_op": pa.array([1] * 10000, pa.uint8()), "r": routes})
    how = TableRoute("r", (), {str(v): (v,) for v in range(7)})
    return sum(share.num_rows for _, share in route(rows, how).shares)

with ThreadPoolExecutor(8) as threads:
    assert set(threads.map(one, range(400))) == {10000}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def test_a_negative_zero_is_a_key_of_an_append_table(make_mirrors: MakeMirrors) -> None:
    """Numbering changes by their key does not touch it."""
    world = make_mirrors(mode="append", key=("k",))
    world.source("CREATE TABLE lake.t (k DOUBLE, tenant VARCHAR)", "INSERT INTO lake.t VALUES (1, 'a')")
    assert world.catch_up().reached
    world.source("INSERT INTO lake.t VALUES ('-0.0', 'a'), (2, 'a')")
    assert world.catch_up().reached
    world.assert_exact()


def test_the_smallest_float_is_a_key(make_mirrors: MakeMirrors) -> None:
    """The extension leaves out the file that holds it when it looks for it; the sink finds it, though."""
    world = make_mirrors(source="duckdb", sinks="duckdb", key=("k",), inlining=0)
    world.source(
        "CREATE TABLE lake.t (k FLOAT, tenant VARCHAR, v INTEGER)",
        "INSERT INTO lake.t VALUES (1e-45, 'a', 1)",
    )
    assert world.catch_up().reached
    world.source("UPDATE lake.t SET v = 2")
    assert world.catch_up().reached
    world.assert_exact()


NOT_PYTHONS = {
    "DATE": ["'0044-03-15 (BC)'", "'9999-12-31'", "'infinity'"],
    "TIMESTAMP": ["'-infinity'", "'0044-03-15 (BC)'", "'2026-01-01'"],
    "TIMESTAMP_NS": ["'2026-01-01 01:02:03.456789123'", "'2026-01-01 01:02:03.456789124'"],
    "TIMESTAMP WITH TIME ZONE": ["'infinity'", "'2026-01-01 01:02:03+00'", "'0044-03-15 (BC) 00:00:00+00'"],
}


@pytest.mark.parametrize("kind", NOT_PYTHONS)
def test_a_key_that_python_does_not_have(make_mirrors: MakeMirrors, kind: str) -> None:
    """DuckDB looks for keys among Arrow's rows by Python's values: it would fail, or find others or none. It
    does where it takes the sink's table for empty, as it does after a change of columns."""
    world = make_mirrors(source="sqlite", sinks="sqlite", routes={"a": "a"}, key=("k", "j"))
    values = NOT_PYTHONS[kind]
    rows = ", ".join(f"({value}, {value}, 'a', {n}, 0)" for n, value in enumerate(values))
    world.source(
        f"CREATE TABLE lake.t (k {kind}, j {kind}, tenant VARCHAR, n INTEGER, v INTEGER)",
        f"INSERT INTO lake.t VALUES {rows}",
    )
    line = Line(world.pipeline())
    line.seed("a")
    world.source("ALTER TABLE lake.t ALTER v SET DATA TYPE BIGINT")
    for changed in ("true", *(f"n = {n}" for n, _ in enumerate(values))):
        world.source(f"UPDATE lake.t SET v = v + 1 WHERE {changed}")
        assert line.stream(["a"]) == {}
        assert line.held("a") is None
    world.assert_exact()
