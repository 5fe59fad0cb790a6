"""Throughput: a million changes of eight columns into one sink and into four, against one DuckDB script.

The script: a single process without Spark, with as many threads as the machine has cores, reads the same
changes from the source's change feed, resolves them per key and applies them to as many lakes, each in a
transaction; no routing, no fence, no cursor. Ours: from the source's last commit until every sink has all.
With `--changes seed` the rows are there already, and both make a first copy.

    python -m benchmarks.throughput [--rows 1000000] [--sinks 1] [--changes inserts]
    python -m benchmarks.throughput --s3                   source, sinks and copies in a private object store
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

import duckdb

from benchmarks.measure import Measured, measured
from benchmarks.rig import COLUMNS, TABLE, Rig, data_in, lakes_in, rig
from truecut.lake import LakeAddress, attach, connect, lake_of

COMMIT_ROWS = 100_000  # a commit of the source is never split, so its size bounds the memory from below
WARM_ROWS = 200_000


def main() -> None:
    """Print both and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help=f"a multiple of {COMMIT_ROWS:,}")
    parser.add_argument("--sinks", type=int, default=1)
    parser.add_argument("--changes", choices=["inserts", "updates", "seed"], default="inserts")
    parser.add_argument("--s3", action="store_true", help="all files in an object store")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="truecut-bench-")))
        data = data_in(stack, s3=options.s3)
        copies = [data.lake(f"sqlite:c{n}.db", f"c{n}", folder) for n in range(options.sinks)]
        lakes = lakes_in(folder, options.sinks, data)
        with rig(folder, lakes=lakes, routed=False, data=data) as bench:
            if options.changes == "seed":
                ours, script = _seed(bench, options.rows), _copy(bench, copies)
            else:
                first, ours = _follow(bench, options.changes, options.rows)
                script = _script(bench, copies, after=first)
            _compare(bench, copies)
    changes = options.rows * options.sinks
    print(f"{options.rows:,} {options.changes} into {options.sinks} sinks{' in S3' * options.s3}")
    _say("truecut", ours, changes)
    _say("script", script, changes)
    print(f"  ratio    {script.wall_s / ours.wall_s:.2f} x", flush=True)


def _seed(bench: Rig, rows: int) -> Measured:
    """A first copy of what is there already: the pipeline starts, and every sink becomes current."""
    _insert_in_parts(bench, 1, rows)
    with ExitStack() as stack, measured() as run:
        stack.enter_context(bench.running())
    return run


def _follow(bench: Rig, changes: str, rows: int) -> tuple[int, Measured]:
    """The snapshot before the changes, and what it cost to carry them."""
    _insert(bench, 0, rows if changes == "updates" else 1)
    with bench.running():
        for low in (-2 * WARM_ROWS, -WARM_ROWS):
            with bench.unseen():
                _insert_in_parts(bench, low, WARM_ROWS)
            bench.wait_until_current()
        first = _head(bench)
        with bench.unseen():
            _change(bench, changes, rows)
        with measured() as run:
            bench.wait_until_current()
    return first, run


def _insert(bench: Rig, low: int, rows: int) -> None:
    _write(bench, [_inserting(low, rows)])


def _insert_in_parts(bench: Rig, low: int, rows: int) -> None:
    _write(bench, [_inserting(part, COMMIT_ROWS) for part in range(low, low + rows, COMMIT_ROWS)])


def _change(bench: Rig, kind: str, changes: int) -> None:
    """As many changes, in commits of equal size."""
    if kind == "inserts":
        _insert_in_parts(bench, 1, changes)
        return
    updating = f"UPDATE lake.{TABLE} SET a = a + 1, c = c / 2 WHERE id BETWEEN"
    parts = range(0, changes, COMMIT_ROWS)
    _write(bench, [f"{updating} {part} AND {part + COMMIT_ROWS - 1}" for part in parts])


def _inserting(low: int, rows: int) -> str:
    return (
        f"INSERT INTO lake.{TABLE} SELECT i, 't', i, i, i, 'text ' || i, 'more', TIMESTAMP '2026-01-01'"
        f" FROM range({low}, {low + rows}) r(i)"
    )


def _write(bench: Rig, statements: list[str]) -> None:
    """By a process that ends: what the writer of the source holds is not the pipeline's memory."""
    writer = get_context("spawn").Process(
        target=_commit_each, args=(lake_of(bench.pipeline.source.address), statements)
    )
    writer.start()
    writer.join()
    assert writer.exitcode == 0


def _commit_each(source: LakeAddress, statements: list[str]) -> None:
    with connect(threads=os.cpu_count() or 1) as lake:
        attach(lake, source, "lake")
        for statement in statements:
            lake.execute(statement)


def _head(bench: Rig) -> int:
    found = bench.source.execute("FROM lake.current_snapshot()").fetchone()
    assert found is not None
    return int(found[0])


@contextmanager
def _by_hand(bench: Rig, copies: list[LakeAddress]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that knows the source and empty tables for the copies."""
    with connect(threads=os.cpu_count() or 1) as lake:
        lake.execute("SET memory_limit = '4GB'")
        attach(lake, lake_of(bench.pipeline.source.address), "source", read_only=True)
        for n, copy in enumerate(copies):
            attach(lake, copy, f"copy{n}", create=True)
            lake.execute(f"CREATE TABLE copy{n}.{TABLE} ({COLUMNS})")
        yield lake


def _copy(bench: Rig, copies: list[LakeAddress]) -> Measured:
    with _by_hand(bench, copies) as lake, measured() as run:
        for n in range(len(copies)):
            lake.execute(f"INSERT INTO copy{n}.{TABLE} FROM source.{TABLE}")
    return run


def _script(bench: Rig, copies: list[LakeAddress], *, after: int) -> Measured:
    head = _head(bench)
    with _by_hand(bench, copies) as lake:
        for n in range(len(copies)):
            lake.execute(f"INSERT INTO copy{n}.{TABLE} FROM source.{TABLE} AT (VERSION => {after})")
        with measured() as run:
            _apply_by_hand(lake, len(copies), after=after, head=head)
    return run


def _apply_by_hand(lake: duckdb.DuckDBPyConnection, copies: int, *, after: int, head: int) -> None:
    lake.execute(
        "CREATE TEMP TABLE feed AS FROM ducklake_table_changes('source', 'main', 'events', "
        f"{after + 1}, {head})"
    )
    lake.execute(
        "CREATE TEMP TABLE net AS SELECT * FROM feed WHERE change_type <> 'update_preimage'"
        " QUALIFY row_number() OVER (PARTITION BY id ORDER BY snapshot_id DESC) = 1"
    )
    for n in range(copies):
        lake.execute("BEGIN")
        lake.execute(f"DELETE FROM copy{n}.{TABLE} WHERE id IN (SELECT id FROM net)")
        lake.execute(
            f"INSERT INTO copy{n}.{TABLE} SELECT * EXCLUDE (snapshot_id, rowid, change_type) FROM net"
            " WHERE change_type <> 'delete'"
        )
        lake.execute("COMMIT")


def _compare(bench: Rig, copies: list[LakeAddress]) -> None:
    """Every copy must equal the source, ours and the script's."""
    with connect() as lake:
        for n, address in enumerate([*copies, *(lake_of(sink.address) for sink in bench.pipeline.sinks)]):
            attach(lake, address, f"copy{n}", read_only=True)
            digest = f"SELECT count(*), bit_xor(hash(t)) FROM copy{n}.{TABLE} t"
            source = bench.source.execute(digest.replace(f"copy{n}", "lake")).fetchone()
            assert lake.execute(digest).fetchone() == source, f"copy {n} differs"


def _say(title: str, run: Measured, changes: int) -> None:
    cost = f"{run.wall_s:6.2f} s  {run.cpu_s:6.2f} CPU s  {run.peak_rss_mb:6.0f} MB"
    print(f"  {title:8} {changes / run.wall_s:10,.0f} changes/s  {cost}")


if __name__ == "__main__":
    main()
