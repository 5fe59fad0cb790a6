"""Throughput: a million changes of eight columns into one sink and into four, against one DuckDB script.

The script: a single process without Spark, with as many threads as the machine has cores, reads the same
changes from the source's change feed, resolves them per key and applies them to as many lakes, each in a
transaction; no routing, no fence, no cursor. Ours: from the source's last commit until every sink has all.

    python -m benchmarks.throughput [--rows 1000000] [--sinks 1] [--changes inserts]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.measure import Measured, measured
from benchmarks.rig import COLUMNS, TABLE, Rig, lakes_in, rig
from truecut.lake import LakeAddress, attach_sql, connect, parse_address

SNAPSHOTS = 10
WARM_ROWS = 200_000


def main() -> None:
    """Print both and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sinks", type=int, default=1)
    parser.add_argument("--changes", choices=["inserts", "updates"], default="inserts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name:
        folder = Path(name)
        with rig(folder, lakes=lakes_in(folder, options.sinks), routed=False) as bench:
            _insert(bench, 0, options.rows if options.changes == "updates" else 1)
            with bench.running():
                for low in (-2 * WARM_ROWS, -WARM_ROWS):
                    with bench.unseen():
                        _insert_in_parts(bench, low, WARM_ROWS)
                    bench.wait_until_current()
                first = _head(bench)
                with bench.unseen():
                    _change(bench, options.changes, options.rows)
                with measured() as ours:
                    bench.wait_until_current()
            copies = [parse_address(f"sqlite:c{n}.db", f"c{n}", base=folder) for n in range(options.sinks)]
            script = _script(bench, copies, after=first)
            _compare(bench, copies)
    changes = options.rows * options.sinks
    print(f"{options.rows:,} {options.changes} into {options.sinks} sinks")
    _say("truecut", ours, changes)
    _say("script", script, changes)
    print(f"  ratio    {script.wall_s / ours.wall_s:.2f} x", flush=True)


def _insert(bench: Rig, low: int, rows: int) -> None:
    bench.source.execute(
        f"INSERT INTO lake.{TABLE} SELECT i, 't', i, i, i, 'text ' || i, 'more', TIMESTAMP '2026-01-01'"
        f" FROM range({low}, {low + rows}) r(i)"
    )


def _change(bench: Rig, kind: str, changes: int) -> None:
    """As many changes, over a few commits."""
    if kind == "inserts":
        _insert_in_parts(bench, 1, changes)
        return
    part = changes // SNAPSHOTS
    for n in range(SNAPSHOTS):
        between = f"BETWEEN {n * part} AND {(n + 1) * part - 1}"
        bench.source.execute(f"UPDATE lake.{TABLE} SET a = a + 1, c = c / 2 WHERE id {between}")


def _insert_in_parts(bench: Rig, low: int, rows: int) -> None:
    part = rows // SNAPSHOTS
    for n in range(SNAPSHOTS):
        _insert(bench, low + n * part, part)


def _head(bench: Rig) -> int:
    found = bench.source.execute("FROM lake.current_snapshot()").fetchone()
    assert found is not None
    return int(found[0])


def _script(bench: Rig, copies: list[LakeAddress], *, after: int) -> Measured:
    head = _head(bench)
    lake = connect(threads=os.cpu_count() or 1)
    lake.execute("SET memory_limit = '4GB'")
    lake.execute(attach_sql(bench.pipeline.source.address, "source", read_only=True))
    for n, copy in enumerate(copies):
        lake.execute(attach_sql(copy, f"copy{n}", create=True))
        lake.execute(f"CREATE TABLE copy{n}.{TABLE} ({COLUMNS})")
        lake.execute(f"INSERT INTO copy{n}.{TABLE} FROM source.{TABLE} AT (VERSION => {after})")
    with measured() as run:
        lake.execute(
            "CREATE TEMP TABLE feed AS FROM ducklake_table_changes('source', 'main', 'events', "
            f"{after + 1}, {head})"
        )
        lake.execute(
            "CREATE TEMP TABLE net AS SELECT * FROM feed WHERE change_type <> 'update_preimage'"
            " QUALIFY row_number() OVER (PARTITION BY id ORDER BY snapshot_id DESC) = 1"
        )
        for n in range(len(copies)):
            lake.execute("BEGIN")
            lake.execute(f"DELETE FROM copy{n}.{TABLE} WHERE id IN (SELECT id FROM net)")
            lake.execute(
                f"INSERT INTO copy{n}.{TABLE} SELECT * EXCLUDE (snapshot_id, rowid, change_type) FROM net"
                " WHERE change_type <> 'delete'"
            )
            lake.execute("COMMIT")
    lake.close()
    return run


def _compare(bench: Rig, copies: list[LakeAddress]) -> None:
    """Every copy must equal the source, ours and the script's."""
    with connect() as lake:
        for n, address in enumerate([*copies, *(sink.address for sink in bench.pipeline.sinks)]):
            lake.execute(attach_sql(address, f"copy{n}", read_only=True))
            digest = f"SELECT count(*), bit_xor(hash(t)) FROM copy{n}.{TABLE} t"
            source = bench.source.execute(digest.replace(f"copy{n}", "lake")).fetchone()
            assert lake.execute(digest).fetchone() == source, f"copy {n} differs"


def _say(title: str, run: Measured, changes: int) -> None:
    cost = f"{run.wall_s:6.2f} s  {run.cpu_s:6.2f} CPU s  {run.peak_rss_mb:6.0f} MB"
    print(f"  {title:8} {changes / run.wall_s:10,.0f} changes/s  {cost}")


if __name__ == "__main__":
    main()
