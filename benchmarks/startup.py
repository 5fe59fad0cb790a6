"""Starting: a run with nothing to carry, and from the command to the first rows of a small seed at a sink.

The second beside a bare PySpark session that starts and runs one `mapInArrow` job, in turn.

python -m benchmarks.startup [--rounds 3] [--rows 1000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Measured, measured
from truecut.lake import attach_sql, connect, parse_address

BARE = """
import os, sys
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[8]").getOrCreate()
same = spark.range(1000).coalesce(1).mapInArrow(lambda batches: batches, "id long")
print(len(same.collect()), "rows", flush=True)
"""


def main() -> None:
    """Print medians, and the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000)
    options = parser.parse_args()
    bare, seed, nothing = [], [], []
    for _ in range(options.rounds):
        bare.append(_until([sys.executable, "-c", BARE], "1000 rows"))
        with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name:
            run = _pipeline(Path(name), rows=options.rows)
            seed.append(_until(run, " ended: "))
            with measured() as cost:
                subprocess.run(run, check=True, capture_output=True)
            nothing.append(cost)
    print(f"bare PySpark, one mapInArrow job: {_told(bare)}")
    print(f"{options.rows} rows at a sink: {_told(seed)}; {_ratio(seed, bare)} x")
    print(f"nothing to carry: {_told(nothing)}")


def _pipeline(folder: Path, *, rows: int) -> list[str]:
    """A lake, and the command that carries it to another."""
    with connect() as source:
        source.execute(
            attach_sql(parse_address("sqlite:source.db", "data", base=folder), "lake", create=True)
        )
        source.execute(f"CREATE TABLE lake.main.events AS SELECT i AS id FROM range({rows}) r(i)")
    lake = {"type": "ducklake", "catalog": "sqlite:./source.db"}
    sink = {"name": "copy", "type": "ducklake", "catalog": "sqlite:./copy.db", "data_path": "./copy"}
    tables = [{"name": "main.events", "key": ["id"]}]
    document = {
        "apiVersion": "truecut/v1",
        "kind": "Pipeline",
        "metadata": {"name": "startup"},
        "spec": {"source": lake, "tables": tables, "sinks": [sink]},
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(document))
    return [sys.executable, "-m", "truecut", "run", str(file), "--until-caught-up"]


def _until(command: Sequence[str], line: str) -> Measured:
    """What it costs until it says this; then it may end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        with measured() as cost:
            said = any(line in text for text in process.stdout)
        process.stdout.read()
    assert said, f"{command} never said {line!r}"
    return cost


def _told(costs: Sequence[Measured]) -> str:
    wall = statistics.median(cost.wall_s for cost in costs)
    return f"{wall:.1f} s, {statistics.median(cost.cpu_s for cost in costs):.1f} CPU s"


def _ratio(costs: Sequence[Measured], plain: Sequence[Measured]) -> str:
    """Of each round, as the machine's speed wanders."""
    return f"{statistics.median(a.wall_s / b.wall_s for a, b in zip(costs, plain, strict=True)):.2f}"


if __name__ == "__main__":
    main()
