"""Fan-out: many destinations, a hundred changed rows each, against the plain way, in one run.

The plain way: eight threads; attach, delete, insert, update a cursor table, commit, detach; no fence, and
the rows already split by destination, as Arrow tables (`--arriving table`: as tables of DuckDB, whose
statistics spare the delete most of the lake's files). Ours: from the source's commit until every sink has
it, with reading, routing, fence and cursors. Both change the same rows, round by round in turn, and are
compared in the end.

A replica lives for months, so the lakes are not new when the clock starts: both have `--earlier` flushes
behind them, made the same way. (In a lake without a past the plain way's delete has next to nothing to read.)

    python -m benchmarks.fan_out [--sinks 500] [--kind sqlite] [--changes inserts] [--rounds 3] [--earlier 20]
    python -m benchmarks.fan_out --sinks 100 --sweep       both ways with 1, 2, 4, 8 and 16 workers
    python -m benchmarks.fan_out --sinks 100 --s3          files of both in a private object store
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

import duckdb

from benchmarks.measure import Measured, measured
from benchmarks.rig import COLUMNS, TABLE, Data, Rig, data_in, rig
from tests.postgres_server import postgres_server
from truecut.lake import LakeAddress, attach, connect, lake_of

ROWS = 100
START_ROWS = 1_000
WORKERS = 8
SWEEP = (1, 2, 4, 8, 16)
AddressOf = Callable[[str], LakeAddress]
Arrived = duckdb.DuckDBPyConnection  # one that knows the rows as `arrived`


def main() -> None:
    """Print both and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sinks", type=int, default=500)
    parser.add_argument("--kind", choices=["duckdb", "sqlite", "postgres"], default="sqlite")
    parser.add_argument("--changes", choices=["inserts", "updates"], default="inserts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--earlier", type=int, default=20, help="flushes before the first measured one")
    parser.add_argument(
        "--arriving", choices=["arrow", "table"], default="arrow", help="the plain way's rows"
    )
    parser.add_argument(
        "--small-blocks", action="store_true", help="in the plain way's catalog files, too (kind duckdb)"
    )
    parser.add_argument("--sweep", action="store_true", help="over numbers of workers")
    parser.add_argument("--s3", action="store_true", help="the lakes' files in an object store")
    options = parser.parse_args()
    for workers in SWEEP if options.sweep else (WORKERS,):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="truecut-bench-")))
            address_of = _addresses(stack, folder, options.kind, data_in(stack, s3=options.s3))
            ways = Ways(
                stack,
                folder,
                address_of,
                sinks=options.sinks,
                workers=workers,
                in_arrow=options.arriving == "arrow",
                small_blocks=options.small_blocks,
            )
            plain, ours = ways.measure(options.changes, rounds=options.rounds, earlier=options.earlier)
        title = (
            f"{options.sinks} sinks, {options.changes}, {options.kind}, {workers} workers, "
            f"{options.earlier} earlier flushes, plain rows in {options.arriving}"
            + (", plain catalogs in small blocks" if options.small_blocks else "")
            + (", files in S3" if options.s3 else "")
        )
        _say(title, options.sinks, plain, ours)


def _addresses(stack: ExitStack, folder: Path, kind: str, data: Data) -> AddressOf:
    if kind == "postgres":
        server = stack.enter_context(postgres_server(settings=("max_connections=1000",)))
        return lambda name: data.lake(f"postgres:{server.create_database(name)}", name, folder)
    prefix = "sqlite:" if kind == "sqlite" else ""
    return lambda name: data.lake(f"{prefix}{name}.db", name, folder)


def _say(title: str, sinks: int, plain: Sequence[Measured], ours: Sequence[Measured]) -> None:
    print(title)
    for name, runs in (("plain", plain), ("truecut", ours)):
        wall = statistics.median(run.wall_s for run in runs)
        cpu = statistics.median(run.cpu_s for run in runs)
        rss = max(run.peak_rss_mb for run in runs)
        print(f"  {name:8} {sinks / wall:6.1f} sinks/s  {wall:6.2f} s  {cpu:6.2f} CPU s  {rss:6.0f} MB")
    ratios = [a.wall_s / b.wall_s for a, b in zip(plain, ours, strict=True)]
    medians = [statistics.median(run.wall_s for run in runs) for runs in (plain, ours)]
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"  ratio    {statistics.median(ratios):.2f} x, the median of the rounds' own ({told})")
    print(f"           {medians[0] / medians[1]:.2f} x, of the medians above", flush=True)


class Ways:
    """The same lakes twice: one set for the plain way, one for ours."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        address_of: AddressOf,
        *,
        sinks: int,
        workers: int,
        in_arrow: bool,
        small_blocks: bool,
    ) -> None:
        self._sinks = sinks
        self._in_arrow = in_arrow
        self._small_blocks = small_blocks
        self._start_rows = START_ROWS
        self._plain = [address_of(f"plain{n}") for n in range(sinks)]
        self._pool = stack.enter_context(ThreadPoolExecutor(workers))
        self._root = stack.enter_context(connect())
        mine = [address_of(f"ours{n}") for n in range(sinks)]
        self._bench: Rig = stack.enter_context(rig(folder, lakes=mine, routed=True, workers=workers))

    def measure(self, changes: str, *, rounds: int, earlier: int) -> tuple[list[Measured], list[Measured]]:
        """In turn, so that whatever else the machine does meets both; the earlier rounds warm up, too."""
        self._start_rows = max(START_ROWS, (earlier + rounds) * ROWS)  # each is updated once at most
        list(self._pool.map(self._make, range(self._sinks)))
        self._bench.source.execute(f"INSERT INTO lake.{TABLE} {self._rows(0, self._start_rows)}")
        plain, ours = [], []
        with self._bench.running():
            for step in range(earlier + rounds):
                first = step * ROWS + (self._start_rows if changes == "inserts" else 0)
                arrived = [self._arrive(n, first) for n in range(self._sinks)]
                with measured() as run:
                    list(self._pool.map(self._flush, range(self._sinks), arrived, repeat(step)))
                plain.append(run)
                with self._bench.unseen():
                    self._commit(first, changes)
                with measured() as run:
                    self._bench.wait_until_current()
                ours.append(run)
        self._compare()
        return plain[earlier:], ours[earlier:]

    def _rows(self, first: int, rows: int, *, changed: int = 0) -> str:
        """Rows `first…` of every tenant."""
        low, high = first * self._sinks, (first + rows) * self._sinks
        return (
            f"SELECT i AS id, 't' || (i % {self._sinks}) AS tenant, i + {changed} AS a, i AS b, "
            "i::DOUBLE AS c, 'text ' || i AS d, 'more' AS e, TIMESTAMP '2026-01-01' AS changed_at "
            f"FROM range({low}, {high}) r(i)"
        )

    def _commit(self, first: int, changes: str) -> None:
        """A hundred rows of every tenant, in one commit at the source."""
        if changes == "inserts":
            self._bench.source.execute(f"INSERT INTO lake.{TABLE} {self._rows(first, ROWS, changed=1)}")
            return
        low, high = first * self._sinks, (first + ROWS) * self._sinks - 1
        self._bench.source.execute(f"UPDATE lake.{TABLE} SET a = a + 1 WHERE id BETWEEN {low} AND {high}")

    def _make(self, n: int) -> None:
        lake = self._root.cursor()
        attach(lake, self._plain[n], f"l{n}", create=True, small_blocks=self._small_blocks)
        lake.execute(f"CREATE TABLE l{n}.{TABLE} ({COLUMNS})")
        lake.execute(f"CREATE TABLE l{n}.main.cursor AS SELECT 0 AS position")
        lake.execute(f"INSERT INTO l{n}.{TABLE} {self._share(n, self._rows(0, self._start_rows))}")
        lake.execute(f"DETACH l{n}")

    def _arrive(self, n: int, first: int) -> Arrived:
        """The rows of one tenant, where a buffer would have them."""
        lake = self._root.cursor()
        rows = self._share(n, self._rows(first, ROWS, changed=1))
        if self._in_arrow:
            lake.register("arrived", lake.execute(rows).to_arrow_table())
        else:
            lake.execute(f"CREATE TEMP TABLE arrived AS {rows}")
        return lake

    def _flush(self, n: int, lake: Arrived, step: int) -> None:
        attach(lake, self._plain[n], f"l{n}")
        lake.execute("BEGIN")
        lake.execute(f"DELETE FROM l{n}.{TABLE} WHERE id IN (SELECT id FROM arrived)")
        lake.execute(f"INSERT INTO l{n}.{TABLE} FROM arrived")
        lake.execute(f"UPDATE l{n}.main.cursor SET position = {step}")
        lake.execute("COMMIT")
        lake.execute(f"DETACH l{n}")
        lake.close()

    def _share(self, n: int, rows: str) -> str:
        return rows.replace("range(", f"range({n} + ").replace(") r(i)", f", {self._sinks}) r(i)")

    def _compare(self) -> None:
        """Both ways must have made the same tables."""
        for n, sink in enumerate(self._bench.pipeline.sinks):
            one, other = (self._digest(address) for address in (self._plain[n], lake_of(sink.address)))
            assert one == other, f"sink {n} differs"

    def _digest(self, address: LakeAddress) -> object:
        lake: duckdb.DuckDBPyConnection = self._root.cursor()
        attach(lake, address, "compared", read_only=True)
        found = lake.execute(f"SELECT count(*), bit_xor(hash(t)) FROM compared.{TABLE} t").fetchone()
        lake.execute("DETACH compared")
        return found


if __name__ == "__main__":
    main()
