"""From a commit at a PostgreSQL until a reader of the sink sees it, at a thousand changes a second; and what
share of a core an idle run takes.

A writer commits rows one by one at an even pace and notes when. A reader with the sink's own client asks for
the largest key it sees, again and again.

    python -m benchmarks.postgres.freshness [--seconds 30] [--rate 1000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from benchmarks.measure import measured
from benchmarks.postgres.shop import LAKE, Shop, shop, warehouse
from benchmarks.postgres.watched import reached, running, truecut, until
from truecut.lake import attach_sql, connect, parse_address

IDLE_S = 20.0
_INSERT = "INSERT INTO events (id, note, n) VALUES (%s, 'new', 1)"
_LATEST = "SELECT max(id) FROM "


def main() -> None:
    """Print p50 and p95 for each sink."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rate", type=int, default=1000, help="changes a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name, shop(Path(name)) as source:
        source.fill(1000)
        for form, sink, latest in (
            ("lake", LAKE, _in_lake),
            ("warehouse", warehouse(source), _in_warehouse),
        ):
            file = source.pipeline(f"fresh-{form}", [sink], batch={"interval": "50ms"})
            with running(truecut("run", str(file)), file.parent / "run.log") as command:
                until(partial(reached, file, 1), command)
                with measured() as idle:
                    time.sleep(IDLE_S)
                with latest(source, file.parent) as ask:
                    low = _highest(source) + 1
                    waits = sorted(
                        _waits(source, ask, low=low, count=options.seconds * options.rate, rate=options.rate)
                    )
            print(
                f"{form}: p50 {statistics.median(waits):.2f} s, p95 {waits[len(waits) * 95 // 100]:.2f} s, "
                f"idle {100 * idle.cpu_s / idle.wall_s:.1f} % of a core",
                flush=True,
            )


def _waits(source: Shop, latest: Callable[[], int], *, low: int, count: int, rate: int) -> list[float]:
    """Of every row, from its commit until it was seen."""
    committed: dict[int, float] = {}
    writer = threading.Thread(target=_write, args=(source, committed, low, count, rate), daemon=True)
    writer.start()
    seen: dict[int, float] = {}
    next_key = low
    while next_key < low + count:
        newest = latest()
        now = time.monotonic()
        for key in range(next_key, newest + 1):
            seen[key] = now
        next_key = max(next_key, newest + 1)
        time.sleep(0.005)
    writer.join()
    return _differences(committed, seen)


def _differences(committed: Mapping[int, float], seen: Mapping[int, float]) -> list[float]:
    """A row that is seen before its commit has returned waited for nothing."""
    return [max(0.0, seen[key] - at) for key, at in committed.items()]


def _write(source: Shop, committed: dict[int, float], low: int, count: int, rate: int) -> None:
    began = time.monotonic()
    with psycopg.connect(source.dsn, autocommit=True) as connection:
        for n in range(count):
            time.sleep(max(0.0, began + n / rate - time.monotonic()))
            connection.execute(_INSERT, (low + n,))
            committed[low + n] = time.monotonic()


def _highest(source: Shop) -> int:
    with psycopg.connect(source.dsn) as connection:
        row = connection.execute(f"{_LATEST}events".encode()).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def _in_lake(source: Shop, folder: Path) -> Iterator[Callable[[], int]]:
    with connect() as lake:
        lake.execute(attach_sql(parse_address("sqlite:lake.db", "lake", base=folder), "lake", read_only=True))

        def ask() -> int:
            row = lake.execute(f"{_LATEST}lake.public.events").fetchone()
            assert row is not None
            return int(row[0])

        yield ask


@contextmanager
def _in_warehouse(source: Shop, _: Path) -> Iterator[Callable[[], int]]:
    with psycopg.connect(source.target, autocommit=True) as connection:

        def ask() -> int:
            row = connection.execute(f"{_LATEST}events".encode()).fetchone()
            assert row is not None
            return int(row[0])

        yield ask


if __name__ == "__main__":
    main()
