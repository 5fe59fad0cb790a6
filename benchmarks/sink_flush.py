"""Where the milliseconds of one flush go: 100 changed rows into a DuckLake, on each kind of catalog.

Compares the plain way (attach, delete, insert, update a cursor table, commit, detach) with the sink, fence
included, in one run: wall and CPU milliseconds of a flush, and the CPU milliseconds of its steps (medians).

    python -m benchmarks.sink_flush [--flushes 40] [--updates 50] [--postgres]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa

from tests.postgres_server import postgres_server
from truecut.lake import LakeAddress, attach_sql, connect, parse_address
from truecut.model.change import COMMITTED_AT, INSERT, OP, PLACE, READ, SEQ, UPDATE
from truecut.model.cursor import Version
from truecut.model.order import Order, TableOrder
from truecut.model.position import Position
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import pool
from truecut.sinks.ducklake.sink import DuckLakeSink

Flush = Callable[[int], dict[str, float]]

ROWS = 100
START_ROWS = 1000
SCHEMA = TableSchema(
    "1",
    (
        Column(1, "id", "BIGINT"),
        Column(2, "tenant", "VARCHAR"),
        Column(3, "amount", "DOUBLE"),
        Column(4, "count", "BIGINT"),
        Column(5, "note", "VARCHAR"),
    ),
)
STEPS = {
    "ATTACH": "attach",
    "BEGIN": "begin",
    "DELETE": "delete",
    "UPDATE": "update cursor",
    "COMMIT": "commit",
    "DETACH": "detach",
}


class Timed:
    """A connection that notes how long each kind of statement takes."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, times: dict[str, float]) -> None:
        self._connection, self._times = connection, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *args: Any) -> Any:
        started = time.process_time()
        result = self._connection.execute(sql, *args)
        self._times[_step(sql)] += (time.process_time() - started) * 1000
        return result


def _step(sql: str) -> str:
    first = sql.split(maxsplit=1)[0]
    if first == "INSERT":
        return "insert cursor" if "_truecut.cursor" in sql else "insert rows"
    if "_snapshot" in sql and "SELECT i." not in sql and "WHERE end_snapshot" not in sql:
        return "snapshot"
    if first == "SELECT":
        if "_truecut.cursor" in sql or "ducklake_inlined_data" in sql:
            return "read cursor"
        return "compare keys" if " JOIN " in sql else "resolve"
    return STEPS.get(first, "other")


def batch(number: int, updates: int, *, op: int | None = None, rows: int = ROWS) -> pa.Table:
    """New keys, and keys of the start that change."""
    changed = [(number * updates + i) % START_ROWS for i in range(updates)]
    first_new = START_ROWS + number * rows
    ids = changed + list(range(first_new, first_new + rows - updates))
    ops = [op] * rows if op else [UPDATE] * updates + [INSERT] * (rows - updates)
    return pa.table(
        {
            OP: pa.array(ops, pa.uint8()),
            PLACE: pa.array([number + 2] * rows, pa.uint64()),
            SEQ: pa.array(range(rows), pa.int64()),
            COMMITTED_AT: pa.array([0] * rows, pa.timestamp("us", "UTC")),
            "id": pa.array(ids, pa.int64()),
            "tenant": ["acme"] * rows,
            "amount": [1.5 * i for i in range(rows)],
            "count": pa.array(ids, pa.int64()),
            "note": [f"note {i}" for i in ids],
        }
    )


def start_rows() -> pa.Table:
    """What the table holds before the first flush."""
    return batch(0, START_ROWS, op=READ, rows=START_ROWS)


def plain_way(address: LakeAddress, updates: int) -> Flush:
    """One flush as anybody would write it."""
    times: dict[str, float] = defaultdict(float)
    connection = Timed(connect(), times)
    columns = ", ".join(SCHEMA.names)
    connection.execute(attach_sql(address, "lake", create=True))
    connection.register("start", start_rows())
    connection.execute(f"CREATE TABLE lake.t AS SELECT {columns} FROM start")
    connection.execute("CREATE TABLE lake.cursor AS SELECT 'tenants' AS pipeline, 0 AS place")
    connection.execute("DETACH lake")

    def flush(number: int) -> dict[str, float]:
        times.clear()
        connection.register("rows", batch(number, updates))
        connection.execute(attach_sql(address, "lake"))
        connection.execute("BEGIN")
        connection.execute("DELETE FROM lake.t WHERE id IN (SELECT id FROM rows)")
        connection.execute(f"INSERT INTO lake.t SELECT {columns} FROM rows")
        connection.execute("UPDATE lake.cursor SET place = ? WHERE pipeline = 'tenants'", [number + 1])
        connection.execute("COMMIT")
        connection.execute("DETACH lake")
        return dict(times)

    return flush


def the_sink(address: LakeAddress, updates: int) -> Flush:
    """One flush through the sink, as a wave calls it."""
    sink = DuckLakeSink(name="acme", pipeline="tenants", address=address, existing="refuse")
    sink.recover(epoch=1, token=1)
    seed = TableOrder("replace", "mirror", ("id",), SCHEMA, None, Version(1, Position(1, 1)))
    first = Order("acme", 1, 1, Position(1, 1), "source", {"main.t": seed})
    assert sink.apply(first, iter([Packet("main.t", start_rows())])).outcome == "applied"

    def flush(number: int) -> dict[str, float]:
        before, after = Version(1, Position(1, number + 1)), Version(1, Position(1, number + 2))
        changes = TableOrder("changes", "mirror", ("id",), SCHEMA, before, after)
        order = Order("acme", 1, 1, after.at, "source", {"main.t": changes})
        with timed_statements() as times:
            receipt = sink.apply(order, iter([Packet("main.t", batch(number, updates))]))
        assert receipt.outcome == "applied", receipt.fault
        return times

    return flush


@contextmanager
def timed_statements() -> Iterator[dict[str, float]]:
    """Notes the time of every statement that the sink executes."""
    times: dict[str, float] = defaultdict(float)
    with patch("truecut.sinks.ducklake.sink.session", lambda: Timed(pool.session(), times)):
        yield times


@dataclass
class Measured:
    """The flushes of one way: wall ms, CPU ms, CPU ms of each step."""

    flush: Flush
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, number: int) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        times = self.flush(number)
        self.wall.append((time.perf_counter() - wall) * 1000)
        self.cpu.append((time.process_time() - cpu) * 1000)
        for name, ms in times.items():
            self.steps[name].append(ms)


def compare(kind: str, plain: Measured, sink: Measured, flushes: int) -> None:
    """Both ways in turn, so that whatever else the machine does meets both."""
    for number in range(flushes):
        plain.run(number)
        sink.run(number)
    for name, way in (("plain", plain), ("sink", sink)):
        steps = " | ".join(f"{step} {statistics.median(ms):.1f}" for step, ms in way.steps.items())
        wall, cpu = statistics.median(way.wall), statistics.median(way.cpu)
        print(f"{kind:9}{name:6}{wall:7.1f} ms  cpu {cpu:6.1f} ms  {steps}")
    wall, cpu = (sum(getattr(plain, what)) / sum(getattr(sink, what)) for what in ("wall", "cpu"))
    print(f"{kind:9}ratio {wall:7.2f}     cpu {cpu:6.2f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--flushes", type=int, default=40)
    parser.add_argument("--updates", type=int, default=0, help="of the 100 rows; the others are inserts")
    parser.add_argument("--postgres", action="store_true", help="also a PostgreSQL catalog")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(postgres_server()) if args.postgres else None

        def address(kind: str, way: str) -> LakeAddress:
            target = f"sqlite:{way}.sqlite" if kind == "sqlite" else f"{way}.duckdb"
            if kind == "postgres" and server is not None:
                target = f"postgres:{server.create_database(way)}"
            return parse_address(target, f"{way}-{kind}", base=folder)

        for kind in ("duckdb", "sqlite", *(["postgres"] if server else [])):
            plain = Measured(plain_way(address(kind, "plain"), args.updates))
            sink = Measured(the_sink(address(kind, "sink"), args.updates))
            compare(kind, plain, sink, args.flushes)


if __name__ == "__main__":
    main()
