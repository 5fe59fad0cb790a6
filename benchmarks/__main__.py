"""`make bench`: every benchmark at its full size, one after another."""

from __future__ import annotations

import subprocess
import sys

RUNS = (
    ("sink_flush",),
    ("fan_out", "--kind", "duckdb"),
    ("fan_out", "--kind", "sqlite"),
    ("throughput", "--sinks", "1"),
    ("throughput", "--sinks", "4"),
    ("throughput", "--changes", "10000000"),
    ("freshness",),
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
