"""Throughput: a million changes of eight columns into one sink and into four, against one DuckDB script.

The script: a single process without Spark reads the same changes from the source's change feed, resolves
them per key and applies them to one lake in one transaction; no routing, no fence, no cursor.

    python -m benchmarks.throughput [--changes 1000000] [--sinks 1]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.measure import Measured, measured
from benchmarks.rig import COLUMNS, TABLE, Rig, rig
from truecut.lake import attach_sql, connect, parse_address

SNAPSHOTS = 10


def main() -> None:
    """Print both and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--sinks", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name:
        folder = Path(name)
        with rig(folder, sinks=options.sinks, kind="sqlite", routed=False) as bench:
            _change(bench, 50_000, step=0)
            with bench.running():
                _change(bench, 50_000, step=1)  # warms up
                bench.wait_until_current()
                first = _head(bench)
                _change(bench, options.changes, step=2)
                with measured() as ours:
                    bench.wait_until_current()
            script = _script(bench, folder, after=first)
    _say("truecut", ours, options.changes * options.sinks)
    _say("script", script, options.changes)
    print(f"ratio    {script.wall_s / ours.wall_s * options.sinks:.2f} x the script's changes/s")


def _change(bench: Rig, changes: int, *, step: int) -> None:
    """New rows, `changes` in all, over a few commits."""
    base = step * 100_000_000
    part = changes // SNAPSHOTS
    for n in range(SNAPSHOTS):
        low = base + n * part
        bench.source.execute(
            f"INSERT INTO lake.{TABLE} SELECT i, 't', i, i, i, 'text ' || i, 'more', now()::TIMESTAMP"
            f" FROM range({low}, {low + part}) r(i)"
        )


def _head(bench: Rig) -> int:
    found = bench.source.execute("FROM lake.current_snapshot()").fetchone()
    assert found is not None
    return int(found[0])


def _script(bench: Rig, folder: Path, *, after: int) -> Measured:
    head = _head(bench)
    target = parse_address("sqlite:script.db", "script-data", base=folder)
    lake = connect(threads=2)
    lake.execute(attach_sql(bench.pipeline.source.address, "source", read_only=True))
    lake.execute(attach_sql(target, "copy", create=True))
    lake.execute(f"CREATE TABLE copy.{TABLE} ({COLUMNS})")
    with measured() as run:
        lake.execute(
            "CREATE TEMP TABLE feed AS FROM ducklake_table_changes('source', 'main', 'events', "
            f"{after + 1}, {head})"
        )
        lake.execute(
            "CREATE TEMP TABLE net AS SELECT * FROM feed WHERE change_type <> 'update_preimage'"
            " QUALIFY row_number() OVER (PARTITION BY id ORDER BY snapshot_id DESC) = 1"
        )
        lake.execute("BEGIN")
        lake.execute(f"DELETE FROM copy.{TABLE} WHERE id IN (SELECT id FROM net)")
        lake.execute(
            f"INSERT INTO copy.{TABLE} SELECT * EXCLUDE (snapshot_id, rowid, change_type) FROM net"
            " WHERE change_type <> 'delete'"
        )
        lake.execute("COMMIT")
    lake.close()
    return run


def _say(title: str, run: Measured, changes: int) -> None:
    cost = f"{run.wall_s:6.2f} s  {run.cpu_s:6.2f} CPU s  {run.peak_rss_mb:6.0f} MB"
    print(f"{title:8} {changes / run.wall_s:10,.0f} changes/s  {cost}")


if __name__ == "__main__":
    main()
