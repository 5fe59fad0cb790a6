"""Routing: which sinks get which rows. NULL matches no route; a truncate is everybody's.

A route is the text that DuckDB prints for a value, in UTC whatever the process's own time zone is: -0.0 and
0.0 are two routes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecut.model.change import OP, TRUNCATE


@dataclass(frozen=True, slots=True)
class TableRoute:
    """How one table's rows find their sinks. Sinks are indexes into the wave's orders.

    `everywhere` get all rows; `by_value` maps the text of the route column to the sinks that want it:
    every route of the pipeline, with no sinks where those that want it are not in this wave.
    """

    column: str | None
    everywhere: tuple[int, ...]
    by_value: Mapping[str, tuple[int, ...]]
    all_wanted: bool = False  # some sink of the pipeline takes every row
    stop_unrouted: bool = False

    @property
    def sinks(self) -> tuple[int, ...]:
        """Every sink that carries this table."""
        return tuple(sorted({*self.everywhere, *(s for sinks in self.by_value.values() for s in sinks)}))


@dataclass(frozen=True, slots=True)
class Routed:
    """Rows for each sink, and how many rows no sink wanted."""

    shares: Iterator[tuple[int, pa.Table]]
    unrouted: int


def route(rows: pa.Table, how: TableRoute) -> Routed:
    """Split rows by sink. Order within a share is the order of the rows; truncates have a share of their own
    where the others are chosen by their values."""
    everywhere = [(sink, rows) for sink in how.everywhere]
    truncates, rows = _truncates_apart(rows)
    if truncates is not None:
        everywhere += [(sink, truncates) for sink in how.sinks if sink not in how.everywhere]
    if how.column is None:
        return Routed(iter(everywhere), 0 if how.all_wanted else rows.num_rows)
    encoded = pc.dictionary_encode(as_text(rows, how.column)).combine_chunks()
    values = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(len(values)).to_numpy()
    wanted = [how.by_value.get(value) for value in values] + [None]
    counts = np.bincount(codes, minlength=len(values) + 1)
    unrouted = sum(int(count) for count, sinks in zip(counts, wanted, strict=True) if sinks is None)
    order = pa.array(np.argsort(codes, kind="stable"))
    starts = np.concatenate(([0], np.cumsum(counts)))

    def shares() -> Iterator[tuple[int, pa.Table]]:
        yield from everywhere
        for code, sinks in enumerate(wanted):
            if sinks and counts[code]:
                share = rows.take(order.slice(int(starts[code]), int(counts[code])))
                yield from ((sink, share) for sink in sinks)

    return Routed(shares(), 0 if how.all_wanted else unrouted)


def _truncates_apart(rows: pa.Table) -> tuple[pa.Table | None, pa.Table]:
    """Rows without a route, and those that may have one."""
    truncates = pc.equal(rows.column(OP), TRUNCATE)
    if not pc.any(truncates).as_py():
        return None, rows
    return rows.filter(truncates), rows.filter(pc.invert(truncates))


def as_text(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The route of each row, spelled as the pipeline file means it."""
    values = rows.column(column)
    if pa.types.is_string(values.type):
        return values
    # DuckDB's spelling of a value is the one the pipeline file means.
    with closing(_texts.cursor()) as own:
        own.execute("SET TimeZone = 'UTC'")
        own.register("routed", pa.table({"v": values}))
        return own.execute("SELECT CAST(v AS VARCHAR) AS v FROM routed").to_arrow_table().column("v")


class _Texts:
    """A DuckDB of one's own for each process, a connection for each question: several threads route at once,
    and a forked worker cannot use what its parent had opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._database: duckdb.DuckDBPyConnection | None = None

    def cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._database is None or self._pid != os.getpid():
                self._database, self._pid = duckdb.connect(config={"threads": 1}), os.getpid()
            return self._database.cursor()


_texts = _Texts()
