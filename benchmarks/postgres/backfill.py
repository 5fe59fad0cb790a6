"""The first copy of a PostgreSQL's table: into a lake, into another PostgreSQL, and by others.

`copy` is `COPY … TO STDOUT (FORMAT binary)` thrown away: what the server gives one reader. `pg_dump` is
piped into psql, `dlt` and `ingestr` write a DuckDB file. Whole commands are measured, start and end included,
since that is what their users wait for. What every copy holds is compared.

    python -m benchmarks.postgres.backfill [--rows 5000000] [--form lake warehouse copy pg_dump dlt ingestr]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from benchmarks.measure import Measured, measured
from benchmarks.postgres.copies import in_lake, in_postgres
from benchmarks.postgres.peers import DLT, DLT_COPY, INGESTR, python_with
from benchmarks.postgres.shop import LAKE, Shop, content, shop, warehouse
from benchmarks.postgres.watched import truecut

_QUIET = {"DISABLE_TELEMETRY": "true", "RUNTIME__DLTHUB_TELEMETRY": "false"}  # nobody calls home meanwhile


def main() -> None:
    """Print each, and what it is beside the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--form", nargs="+", choices=list(FORMS), default=list(FORMS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name, shop(Path(name)) as source:
        source.fill(options.rows)
        print(f"{options.rows:,} rows", flush=True)
        runs = {form: _say(form, FORMS[form](source), options.rows) for form in options.form}
    for ours in [form for form in ("lake", "warehouse") if form in runs]:
        for peer in [form for form in runs if form not in ("lake", "warehouse")]:
            print(f"  {ours} / {peer}: {runs[peer].wall_s / runs[ours].wall_s:.2f} x")


def _say(form: str, run: Measured, rows: int) -> Measured:
    print(
        f"  {form:9} {rows / run.wall_s:10,.0f} rows/s  {run.wall_s:7.2f} s  {run.cpu_s:7.2f} CPU s"
        f"  {run.peak_rss_mb:6.0f} MB",
        flush=True,
    )
    return run


def _lake(source: Shop) -> Measured:
    file = source.pipeline("backfill-lake", [LAKE])
    return _command(truecut("run", str(file), "--until-caught-up"), source, lambda: in_lake(file.parent))


def _warehouse(source: Shop) -> Measured:
    _emptied(source)
    file = source.pipeline("backfill-warehouse", [warehouse(source)])
    command = truecut("run", str(file), "--until-caught-up")
    return _command(command, source, lambda: in_postgres(source.target))


def _copy(source: Shop) -> Measured:
    """Received whole, and forgotten."""
    command = "COPY events TO STDOUT (FORMAT binary)"
    with (
        psycopg.connect(source.dsn) as connection,
        measured() as run,
        connection.cursor().copy(command) as rows,
    ):
        for _ in rows:
            pass
    return run


def _pg_dump(source: Shop) -> Measured:
    _emptied(source)
    dump, psql = source.server.program("pg_dump"), source.server.program("psql")
    piped = f"{dump} -t events '{source.dsn}' | {psql} -q '{source.target}'"
    return _command(["sh", "-c", piped], source, lambda: in_postgres(source.target))


def _dlt(source: Shop) -> Measured:
    python = python_with("dlt", DLT)
    command = [python, "-c", DLT_COPY, source.url("postgresql+psycopg2"), str(source.folder), "connectorx"]
    return _command(command, source, lambda: _in_duckdb(source.folder / "dlt.duckdb", "copied.events"))


def _ingestr(source: Shop) -> Measured:
    file = source.folder / "ingestr.duckdb"
    program = str(Path(python_with("ingestr", INGESTR)).with_name("ingestr"))
    command = [
        *(program, "ingest", "--yes", "--progress", "log"),
        *("--source-uri", source.url("postgresql"), "--source-table", "public.events"),
        *("--dest-uri", f"duckdb:///{file}", "--dest-table", "main.events"),
    ]
    return _command(command, source, lambda: _in_duckdb(file, "main.events"))


FORMS: dict[str, Callable[[Shop], Measured]] = {
    "lake": _lake,
    "warehouse": _warehouse,
    "copy": _copy,
    "pg_dump": _pg_dump,
    "dlt": _dlt,
    "ingestr": _ingestr,
}


def _command(command: Sequence[str], source: Shop, copied: Callable[[], tuple[Any, ...]]) -> Measured:
    """To its end; what it has copied must be the source."""
    with measured() as run:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=source.folder,
            env={**os.environ, **_QUIET},
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert copied() == source.content(), f"{command[:3]} copied something else"
    return run


def _emptied(source: Shop) -> None:
    with psycopg.connect(source.target, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS events")


def _in_duckdb(file: Path, table: str) -> tuple[Any, ...]:
    with duckdb.connect(str(file), read_only=True) as connection:
        row = connection.execute(content(table).decode()).fetchone()
    assert row is not None
    return tuple(row)


if __name__ == "__main__":
    main()
