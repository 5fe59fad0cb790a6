"""What a window does to its keys is measured in two ways; both must say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.world import rows
from truecut.lake import connect
from truecut.model.change import DELETE, INSERT, OP, UPDATE
from truecut.model.table import Column, TableSchema
from truecut.sinks.ducklake import resolve

CONNECTION = connect()
KEYS = {"BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), "VARCHAR": st.text(max_size=3)}


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_rows_at_hand_and_rows_in_sql_measure_the_same(kind: str, data: st.DataObject) -> None:
    """Counts, distinct keys and the ranges by which files are left out."""
    schema = TableSchema("7", (Column(1, "id", kind), Column(2, "value", "VARCHAR")))
    ops = st.sampled_from([INSERT, UPDATE, DELETE])
    text = KEYS[kind].filter(lambda key: not isinstance(key, str) or key.isprintable())
    changes = data.draw(st.lists(st.tuples(ops, st.just(5), text, st.just("v")), min_size=1, max_size=12))
    table = rows(changes, schema)
    CONNECTION.register("measured", table)
    in_sql = resolve._measure(CONNECTION, "measured", OP, ("id",), schema)
    assert resolve._measure_in_memory(table, "measured", ("id",), schema) == in_sql
