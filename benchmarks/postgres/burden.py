"""What the source's own work loses: pgbench alone, while its changes are streamed, while a table is copied.

pgbench's tables are followed into a lake; the large table beside them is what is copied.

    python -m benchmarks.postgres.burden [--seconds 20] [--rounds 3] [--rows 3000000]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.postgres.shop import LAKE, Shop, shop
from benchmarks.postgres.watched import Command, reached, running, truecut, until

TABLES = ("accounts", "branches", "tellers")


def main() -> None:
    """Print transactions a second, medians of the rounds, and what is lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=3_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name, shop(Path(name)) as source:
        _pgbench(source, "-i", "-s", "10", "-q")
        source.fill(options.rows)
        alone, streamed, copied = [], [], []
        for n in range(options.rounds):
            alone.append(_rate(source, options.seconds))
            tables = [{"name": f"public.pgbench_{table}"} for table in TABLES]
            file = source.pipeline(f"stream-{n}", [LAKE], tables=tables)
            with running(truecut("run", str(file)), file.parent / "run.log") as command:
                until(partial(reached, file, 1), command)
                streamed.append(_rate(source, options.seconds))
            subprocess.run(truecut("drop", str(file)), check=True, capture_output=True)
            file = source.pipeline(f"copy-{n}", [LAKE])
            with running(truecut("run", str(file)), file.parent / "run.log") as command:
                until(partial(_says, command, "copying"), command)
                copied.append(_rate(source, options.seconds))
            subprocess.run(truecut("drop", str(file)), check=True, capture_output=True)
    plain = statistics.median(alone)
    print(f"alone {plain:,.0f} transactions/s on {os.cpu_count()} cores")
    for title, rates in (("streamed", streamed), ("copied", copied)):
        share = statistics.median(
            with_us / by_itself for with_us, by_itself in zip(rates, alone, strict=True)
        )
        print(f"{title} {statistics.median(rates):,.0f} transactions/s, {100 * (1 - share):.0f} % less")


def _says(command: Command, words: str) -> bool:
    return words in command.log.read_text()


def _rate(source: Shop, seconds: int) -> float:
    told = _pgbench(source, "-c", "4", "-j", "1", "-T", str(seconds), "-n")
    found = re.search(r"tps = ([0-9.]+)", told)
    assert found is not None, told
    return float(found[1])


def _pgbench(source: Shop, *arguments: str) -> str:
    command = [source.server.program("pgbench"), *arguments, source.dsn]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
