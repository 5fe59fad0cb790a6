"""Freshness: from a commit at the source until the rows are readable at the sinks, at a steady rate.

python -m benchmarks.freshness [--sinks 10] [--rate 1000] [--seconds 30]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.rig import TABLE, lakes_in, rig

COMMITS_PER_S = 5


def main() -> None:
    """Print p50 and p95."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sinks", type=int, default=10)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    part = options.rate // COMMITS_PER_S
    with (
        tempfile.TemporaryDirectory(prefix="truecut-bench-") as name,
        rig(Path(name), lakes=lakes_in(Path(name), options.sinks), routed=True) as bench,
        bench.running(),
    ):
        committed: list[tuple[int, float]] = []
        delays: list[float] = []
        end = time.monotonic() + options.seconds
        number = 0
        due = time.monotonic()
        while time.monotonic() < end or committed:
            if time.monotonic() >= due and time.monotonic() < end:
                bench.source.execute(
                    f"INSERT INTO lake.{TABLE} SELECT i, 't' || (i % {options.sinks}), i, i, i, 'text',"
                    f" 'more', now()::TIMESTAMP FROM range({number}, {number + part}) r(i)"
                )
                found = bench.source.execute("FROM lake.current_snapshot()").fetchone()
                assert found is not None
                committed.append((found[0], time.monotonic()))
                number += part
                due += 1 / COMMITS_PER_S
            while committed and bench.has_reached(committed[0][0]):
                delays.append(time.monotonic() - committed.pop(0)[1])
            time.sleep(0.005)
    delays.sort()
    p95 = delays[int(len(delays) * 0.95)]
    print(
        f"{len(delays)} commits of {part} rows into {options.sinks} sinks: "
        f"p50 {statistics.median(delays):.2f} s, p95 {p95:.2f} s"
    )


if __name__ == "__main__":
    main()
