"""`make bench`: every benchmark at its full size, one after another."""

from __future__ import annotations

import subprocess
import sys

RUNS = (
    ("sink_flush", "--postgres"),
    ("sink_flush", "--postgres", "--updates", "50"),
    ("fan_out", "--kind", "duckdb"),
    ("fan_out", "--kind", "duckdb", "--small-blocks"),
    ("fan_out", "--kind", "sqlite"),
    ("fan_out", "--kind", "sqlite", "--changes", "updates"),
    ("fan_out", "--kind", "postgres", "--sinks", "50"),
    ("fan_out", "--kind", "postgres", "--sinks", "200"),
    ("fan_out", "--sinks", "100"),
    ("fan_out", "--sinks", "1000"),
    ("fan_out", "--sinks", "100", "--sweep"),
    ("fan_out", "--sinks", "100", "--s3"),
    ("throughput",),
    ("throughput", "--sinks", "4"),
    ("throughput", "--s3"),
    ("throughput", "--changes", "updates"),
    ("throughput", "--rows", "10000000"),
    ("throughput", "--changes", "seed"),
    ("throughput", "--changes", "seed", "--rows", "10000000"),
    ("freshness",),
    ("startup",),
    ("certificates",),
    ("verify",),
    ("journal",),
    ("postgres.stream",),
    ("postgres.backfill",),
    ("postgres.freshness",),
    ("postgres.burden",),
)


def main() -> int:
    """The first failure ends it."""
    for name, *arguments in RUNS:
        print(f"\n# {name} {' '.join(arguments)}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
