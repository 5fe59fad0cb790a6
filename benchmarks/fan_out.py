"""Fan-out: many destinations, a hundred changed rows each, against the plain way, in one run.

The plain way: eight threads; attach, delete, insert, update a cursor table, commit, detach; no fence, and
the rows already split by destination in memory. Ours: from the source's commit until every sink has it,
reading, routing, fence and cursors included.

    python -m benchmarks.fan_out [--sinks 500] [--kind sqlite] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb

from benchmarks.measure import Measured, measured
from benchmarks.rig import COLUMNS, TABLE, Rig, rig
from truecut.lake import LakeAddress, attach_sql, connect, parse_address

ROWS = 100
START_ROWS = 1_000
THREADS = 8


def main() -> None:
    """Print both and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sinks", type=int, default=500)
    parser.add_argument("--kind", choices=["duckdb", "sqlite"], default="sqlite")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name:
        folder = Path(name)
        plain = _plain(folder / "plain", sinks=options.sinks, kind=options.kind, rounds=options.rounds)
        ours = _ours(folder / "ours", sinks=options.sinks, kind=options.kind, rounds=options.rounds)
    for title, runs in (("plain", plain), ("truecut", ours)):
        wall = statistics.median(run.wall_s for run in runs)
        cpu = statistics.median(run.cpu_s for run in runs)
        rss = max(run.peak_rss_mb for run in runs)
        print(
            f"{title:8} {options.sinks / wall:7.1f} sinks/s  {wall:6.2f} s  {cpu:6.2f} CPU s  {rss:6.0f} MB"
        )
    ratio = statistics.median(r.wall_s for r in plain) / statistics.median(r.wall_s for r in ours)
    print(f"ratio    {ratio:.2f} x on {options.kind} catalogs")


def _ours(folder: Path, *, sinks: int, kind: str, rounds: int) -> list[Measured]:
    folder.mkdir()
    results = []
    with rig(folder, sinks=sinks, kind=kind, routed=True) as bench:
        _fill(bench, sinks)
        with bench.running():
            for step in range(rounds + 1):  # the first warms up
                _change(bench, step)
                with measured() as run:
                    bench.wait_until_current()
                results.append(run)
    return results[1:]


def _fill(bench: Rig, sinks: int) -> None:
    bench.source.execute(
        f"INSERT INTO lake.{TABLE} SELECT i, 't' || (i % {sinks}), i, i, i, 'text ' || i, 'more',"
        f" now()::TIMESTAMP FROM range({sinks * START_ROWS}) r(i)"
    )


def _change(bench: Rig, step: int) -> None:
    """A hundred rows of every tenant, in one commit."""
    sinks = len(bench.pipeline.sinks)
    low = step * ROWS * sinks
    bench.source.execute(
        f"UPDATE lake.{TABLE} SET a = a + 1 WHERE id BETWEEN {low} AND {low + ROWS * sinks - 1}"
    )


def _plain(folder: Path, *, sinks: int, kind: str, rounds: int) -> list[Measured]:
    folder.mkdir()
    prefix = "sqlite:" if kind == "sqlite" else ""
    addresses = [parse_address(f"{prefix}t{n}.db", f"t{n}", base=folder) for n in range(sinks)]
    with ThreadPoolExecutor(THREADS, initializer=lambda: None) as pool:
        list(pool.map(lambda n: _plain_make(addresses[n], n, sinks), range(sinks)))
        results = []
        for step in range(rounds + 1):
            with measured() as run:
                list(pool.map(lambda n, s=step: _plain_flush(addresses[n], n, sinks, s), range(sinks)))
            results.append(run)
    return results[1:]


_root = None


def _cursor() -> duckdb.DuckDBPyConnection:
    global _root
    if _root is None:
        _root = connect(threads=1)
    return _root.cursor()


def _plain_make(address: LakeAddress, n: int, sinks: int) -> None:
    lake = _cursor()
    lake.execute(attach_sql(address, f"l{n}", create=True))
    lake.execute(f"CREATE TABLE l{n}.main.events ({COLUMNS})")
    lake.execute(f"CREATE TABLE l{n}.main.cursor (position BIGINT)")
    lake.execute(f"INSERT INTO l{n}.main.cursor VALUES (0)")
    lake.execute(
        f"INSERT INTO l{n}.main.events SELECT i, 't{n}', i, i, i, 'text ' || i, 'more', now()::TIMESTAMP"
        f" FROM range({n}, {sinks * START_ROWS}, {sinks}) r(i)"
    )
    lake.execute(f"DETACH l{n}")


def _plain_flush(address: LakeAddress, n: int, sinks: int, step: int) -> None:
    low = step * ROWS * sinks
    rows = (
        f"SELECT i AS id, 't{n}', i + 1, i, i, 'text ' || i, 'more', now()::TIMESTAMP"
        f" FROM range({low + n}, {low + ROWS * sinks}, {sinks}) r(i)"
    )
    lake = _cursor()
    lake.execute(attach_sql(address, f"l{n}"))
    lake.execute("BEGIN")
    lake.execute(f"DELETE FROM l{n}.main.events WHERE id IN (SELECT id FROM ({rows}))")
    lake.execute(f"INSERT INTO l{n}.main.events {rows}")
    lake.execute(f"UPDATE l{n}.main.cursor SET position = {step}")
    lake.execute("COMMIT")
    lake.execute(f"DETACH l{n}")


if __name__ == "__main__":
    main()
