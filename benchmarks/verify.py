"""How fast a copy is verified: a lake's beside its source lake, and a PostgreSQL's beside reladiff.

`truecut verify` is measured whole, Spark's start included, and reads source and copy (without certificates),
so a row is read twice. The same command with a thousand rows tells what its start costs. `reladiff` compares
the same two tables, all columns, with as many threads as there are cores; it hashes within the servers, and
equal tables are the case it is best at. Each must find the copy equal.

    python -m benchmarks.verify [--rows 10000000] [--rows-postgres 2000000] [--part lake postgres]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Measured, measured
from benchmarks.postgres.peers import RELADIFF, python_with
from benchmarks.postgres.shop import Shop, shop, warehouse
from benchmarks.postgres.watched import truecut
from truecut.lake import attach, connect, parse_address

FEW = 1_000
_FILL = (
    "CREATE TABLE lake.main.events AS SELECT i AS id, 'note of ' || i AS note, (i % 10000) / 100.0 AS amount,"
    " TIMESTAMP '2026-01-01' + i * INTERVAL 1 SECOND AS changed, i % 7 AS kind, i % 2 = 0 AS paid,"
    " i % 1000 AS n, i / 7.0 AS weight FROM range({rows}) r(i)"
)
_COLUMNS = ("note", "amount", "changed", "doc", "paid", "n", "weight")


def main() -> None:
    """Print rows of the copy a second, CPU seconds and peak memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the lake")
    parser.add_argument("--rows-postgres", type=int, default=2_000_000)
    parser.add_argument("--part", nargs="+", choices=["lake", "postgres"], default=["lake", "postgres"])
    options = parser.parse_args()
    if "lake" in options.part:
        _lakes(options.rows)
    if "postgres" in options.part:
        _servers(options.rows_postgres)


def _lakes(rows: int) -> None:
    """A tenth as many, too: memory does not follow the rows."""
    start = _verified_lake(FEW)
    _say("lake", FEW, start, start)
    for count in (rows // 10, rows):
        _say("lake", count, _verified_lake(count), start)


def _verified_lake(rows: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name:
        folder = Path(name)
        source = parse_address("sqlite:source.db", "source", base=folder)
        with connect() as lake:
            attach(lake, source, "lake", create=True)
            lake.execute(_FILL.format(rows=rows))
        spec = {
            "source": {"type": "ducklake", "catalog": "sqlite:source.db", "data_path": "source"},
            "tables": [{"name": "main.events", "key": ["id"]}],
            "sinks": [{"name": "copy", "type": "ducklake", "catalog": "sqlite:copy.db", "data_path": "copy"}],
        }
        document = {
            "apiVersion": "truecut/v1",
            "kind": "Pipeline",
            "metadata": {"name": "verify"},
            "spec": spec,
        }
        file = folder / "pipeline.yaml"
        file.write_text(json.dumps(document))
        _command(truecut("run", str(file), "--until-caught-up"), folder)
        return _passed(file)


def _servers(rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name, shop(Path(name)) as source:
        source.fill(rows)
        file = source.pipeline("verify", [warehouse(source)])
        _command(truecut("run", str(file), "--until-caught-up"), source.folder)
        ours, theirs = _passed(file), _reladiff(source)
    _say("postgres", rows, ours, None)
    _say("reladiff", rows, theirs, None)
    print(f"  postgres / reladiff: {theirs.wall_s / ours.wall_s:.2f} x")


def _passed(file: Path) -> Measured:
    with measured() as run:
        said = _command(truecut("verify", str(file), "--json"), file.parent)
    assert json.loads(said)["verdict"] == "pass", said
    return run


def _reladiff(source: Shop) -> Measured:
    program = str(Path(python_with("reladiff", RELADIFF)).with_name("reladiff"))
    ours = dict(part.split("=") for part in source.target.split())
    target = f"postgresql://postgres@127.0.0.1:{ours['port']}/{ours['dbname']}"
    columns = [word for column in _COLUMNS for word in ("-c", column)]
    sides = [source.url("postgresql"), "events", target, "events"]
    with measured() as run:
        said = _command([program, *sides, "-k", "id", *columns, "-j", str(os.cpu_count())], source.folder)
    assert not said.strip(), said[:500]  # a line for each row that differs
    return run


def _command(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _say(what: str, rows: int, run: Measured, start: Measured | None) -> None:
    line: dict[str, Any] = {"rows/s": f"{rows / run.wall_s:,.0f}"}
    if start is not None and run is not start:
        line["beyond the start"] = f"{rows / (run.wall_s - start.wall_s):,.0f}"
    told = ", ".join(f"{value} {name}" for name, value in line.items())
    print(
        f"  {what:9} {rows:12,} rows  {run.wall_s:7.2f} s  {run.cpu_s:7.2f} CPU s  {run.peak_rss_mb:6.0f} MB"
        f"  {told}",
        flush=True,
    )


if __name__ == "__main__":
    main()
