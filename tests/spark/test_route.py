"""Routing: every row reaches exactly the sinks that want it, in order; the rest is counted."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecut.spark.wave.route import TableRoute, route

_values = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", "", "A"])), max_size=30)
# A sink has one route; several sinks may have the same.
_routes = st.dictionaries(st.integers(0, 5), st.sampled_from(["a", "b", "", "x"])).map(
    lambda wants: {v: tuple(s for s in sorted(wants) if wants[s] == v) for v in ["b", *wants.values()]}
)


@given(values=_values, routes=_routes, everywhere=st.sets(st.integers(6, 8)))
def test_shares_are_what_a_plain_loop_gives(
    values: list[str | None], routes: dict[str, tuple[int, ...]], everywhere: set[int]
) -> None:
    """For every sink: the rows whose value it wants, in their order. NULL matches nobody."""
    rows = pa.table({"n": list(range(len(values))), "r": pa.array(values, pa.string())})
    how = TableRoute("r", tuple(sorted(everywhere)), routes, all_wanted=bool(everywhere))
    expected: dict[int, list[int]] = {sink: list(range(len(values))) for sink in everywhere if values}
    for n, value in enumerate(values):
        for sink in routes.get(value, ()) if value is not None else ():
            expected.setdefault(sink, []).append(n)
    routed = route(rows, how)
    got = {sink: share.column("n").to_pylist() for sink, share in routed.shares if share.num_rows}
    assert got == expected
    unwanted = sum(1 for value in values if value is None or value not in routes)
    assert routed.unrouted == (0 if everywhere else unwanted)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([7, 8], "7"),
        ([True, False], "true"),
        ([date(2026, 1, 2), date(2027, 1, 2)], "2026-01-02"),
        ([Decimal("1.50"), Decimal("2.50")], "1.50"),
    ],
)
def test_a_route_is_the_text_that_duckdb_prints(values: list[Any], text: str) -> None:
    """`route: 7` in the pipeline file means the number 7 in the column."""
    routed = route(pa.table({"r": values}), TableRoute("r", (), {text: (0,)}))
    assert [(sink, share.num_rows) for sink, share in routed.shares] == [(0, 1)]
    assert routed.unrouted == 1
