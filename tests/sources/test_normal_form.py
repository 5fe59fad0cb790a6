"""The normal form against a plain model: net changes per key, whatever the images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truecut.lake import connect
from truecut.model.change import DELETE, INSERT, OP, PLACE, SEQ, UPDATE
from truecut.model.table import Column, TableName, TableSchema
from truecut.sources.contract import TableRead
from truecut.sources.ducklake import normal
from truecut.sources.ducklake.schema import Shape

SHAPE = Shape(
    TableRead(TableName("main", "t"), ("a", "b"), "tenant"),
    TableSchema(
        "t",
        (
            Column(1, "a", "INTEGER"),
            Column(2, "tenant", "VARCHAR"),
            Column(3, "b", "VARCHAR"),
            Column(4, "v", "DOUBLE"),
            Column(5, "tags", "INTEGER[]"),
        ),
    ),
)

IMAGES = pa.schema(
    [
        ("is_new", pa.bool_()),
        ("place", pa.int64()),
        ("x0", pa.int32()),
        ("x1", pa.string()),
        ("x2", pa.string()),
        ("x3", pa.float64()),
        ("x4", pa.list_(pa.int32())),
    ]
)

Key = tuple[int, str]
Rest = tuple[str | None, float | None, list[int | None] | None]  # tenant, v, tags

keys = st.tuples(st.integers(0, 3), st.sampled_from(["", "x", "é'"]))
values = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf")])
tags = st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2)
rests = st.tuples(st.sampled_from([None, "p", "q"]), values, tags)
# For each place and key: the row before and the row after, either of them perhaps missing.
images = st.dictionaries(
    st.tuples(st.integers(5, 7), keys), st.tuples(st.none() | rests, st.none() | rests), max_size=12
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect()
    yield connection
    connection.close()


def expected(
    given_images: dict[tuple[int, Key], tuple[Rest | None, Rest | None]],
) -> list[str]:
    """The same, one `if` for each rule."""
    found: list[tuple[int, int, Key, Rest]] = []
    for (place, key), (old, new) in given_images.items():
        if old is None and new is not None:
            found.append((place, INSERT, key, new))
        elif old is not None and new is None:
            found.append((place, DELETE, key, old))
        elif old is not None and new is not None and old[0] != new[0]:
            found += [(place, DELETE, key, old), (place, INSERT, key, new)]
        elif old is not None and new is not None and repr(old) != repr(new):
            found.append((place, UPDATE, key, new))
    return sorted(map(repr, found))


@settings(max_examples=80, deadline=None)
@given(given_images=images, whole=st.booleans())
def test_net_changes_are_those_of_a_plain_model(
    database: duckdb.DuckDBPyConnection,
    given_images: dict[tuple[int, Key], tuple[Rest | None, Rest | None]],
    whole: bool,
) -> None:
    """Same key and route: update; another route: delete and insert; the same row: nothing."""
    rows_given = [
        (is_new, place, key[0], rest[0], key[1], rest[1], rest[2])
        for (place, key), pair in given_images.items()
        for is_new, rest in zip((False, True), pair, strict=True)
        if rest is not None
    ]
    arrow = pa.Table.from_pylist([dict(zip(IMAGES.names, row, strict=True)) for row in rows_given], IMAGES)
    database.register("arrow_images", arrow)
    database.execute("CREATE OR REPLACE TEMP TABLE images AS FROM arrow_images")
    database.execute(
        "CREATE OR REPLACE TEMP TABLE times AS"
        " SELECT i AS place, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS committed_at FROM range(10) r(i)"
    )
    normal.keep_net(
        database,
        SHAPE,
        before="SELECT * FROM images WHERE NOT is_new",
        after="SELECT * FROM images WHERE is_new",
        whole=whole,
    )
    numbered, plain = (
        database.execute(normal.changes_sql(SHAPE, numbered=numbered)).to_arrow_table().to_pylist()
        for numbered in (True, False)
    )
    for rows in (numbered, plain):
        found = [
            (row[PLACE], row[OP], (row["a"], row["b"]), (row["tenant"], row["v"], row["tags"]))
            for row in rows
        ]
        assert sorted(map(repr, found)) == expected(given_images)
    assert_sequence(numbered)
    assert all(row[SEQ] == (0 if row[OP] == DELETE else 1) for row in plain)


def assert_sequence(rows: list[dict[str, Any]]) -> None:
    """Within a place: unique from 0, deletes first."""
    for place in {row[PLACE] for row in rows}:
        ordered = sorted((row for row in rows if row[PLACE] == place), key=lambda row: int(row[SEQ]))
        assert [row[SEQ] for row in ordered] == list(range(len(ordered)))
        deletes = [row[OP] == DELETE for row in ordered]
        assert deletes == sorted(deletes, reverse=True)
