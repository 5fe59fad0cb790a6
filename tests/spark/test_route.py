"""Routing: every row reaches exactly the sinks that want it, in order; the rest is counted."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecut.model.change import INSERT, OP, TRUNCATE
from truecut.spark.wave.route import TableRoute, route

_values = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", "", "A"])), max_size=30)
# A sink has one route; several sinks may have the same.
_routes = st.dictionaries(st.integers(0, 5), st.sampled_from(["a", "b", "", "x"])).map(
    lambda wants: {v: tuple(s for s in sorted(wants) if wants[s] == v) for v in ["b", *wants.values()]}
)


def _routed(
    values: list[str | None],
    how: TableRoute,
    truncates: set[int],
) -> tuple[dict[int, list[int]], int]:
    """Which rows each sink gets, and how many are nobody's."""
    rows = pa.table(
        {
            OP: pa.array([TRUNCATE if n in truncates else INSERT for n in range(len(values))], pa.uint8()),
            "n": list(range(len(values))),
            "r": pa.array([None if n in truncates else v for n, v in enumerate(values)], pa.string()),
        }
    )
    routed = route(rows, how)
    got: dict[int, list[int]] = {}
    for sink, share in routed.shares:
        got.setdefault(sink, []).extend(share.column("n").to_pylist())
    return {sink: found for sink, found in got.items() if found}, routed.unrouted


@given(values=_values, routes=_routes, everywhere=st.sets(st.integers(6, 8)))
def test_shares_are_what_a_plain_loop_gives(
    values: list[str | None], routes: dict[str, tuple[int, ...]], everywhere: set[int]
) -> None:
    """For every sink: the rows whose value it wants, in their order. NULL matches nobody."""
    how = TableRoute("r", tuple(sorted(everywhere)), routes, all_wanted=bool(everywhere))
    expected: dict[int, list[int]] = {sink: list(range(len(values))) for sink in everywhere if values}
    for n, value in enumerate(values):
        for sink in routes.get(value, ()) if value is not None else ():
            expected.setdefault(sink, []).append(n)
    got, unrouted = _routed(values, how, set())
    assert got == expected
    unwanted = sum(1 for value in values if value is None or value not in routes)
    assert unrouted == (0 if everywhere else unwanted)


@given(values=_values, routes=_routes, truncates=st.sets(st.integers(0, 29), max_size=3), plain=st.booleans())
def test_a_truncate_goes_to_every_sink_of_the_table(
    values: list[str | None], routes: dict[str, tuple[int, ...]], truncates: set[int], plain: bool
) -> None:
    """Once each, and not counted as a row that nobody wants; the other rows are shared as without it."""
    truncates = {n for n in truncates if n < len(values)}
    how = TableRoute(None if plain else "r", (9,), {} if plain else routes)
    got, unrouted = _routed(values, how, truncates)
    for sink in how.sinks:
        assert sorted(n for n in got.get(sink, []) if n in truncates) == sorted(truncates)
    others = [value for n, value in enumerate(values) if n not in truncates]
    numbers = [n for n in range(len(values)) if n not in truncates]
    without, unwanted = _routed(others, how, set())
    kept = {sink: [n for n in found if n not in truncates] for sink, found in got.items()}
    assert {s: f for s, f in kept.items() if f} == {s: [numbers[i] for i in f] for s, f in without.items()}
    assert unrouted == unwanted


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
    ops = pa.array([INSERT] * len(values), pa.uint8())
    routed = route(pa.table({OP: ops, "r": values}), TableRoute("r", (), {text: (0,)}))
    assert [(sink, share.num_rows) for sink, share in routed.shares] == [(0, 1)]
    assert routed.unrouted == 1


@pytest.mark.parametrize("type_", [pa.string(), pa.int64()], ids=str)
@pytest.mark.parametrize("word", ["", "None", "NULL", "null", "nan"])
def test_null_matches_no_word_for_it(word: str, type_: pa.DataType) -> None:
    """A tenant may have any name: rows without one are not its rows."""
    rows = pa.table({OP: pa.array([INSERT] * 2, pa.uint8()), "r": pa.array([None, None], type_)})
    routed = route(rows, TableRoute("r", (), {word: (0,)}))
    assert (list(routed.shares), routed.unrouted) == ([], 2)
