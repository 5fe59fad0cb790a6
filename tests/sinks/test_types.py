"""Every type that a source may deliver comes back from a sink bit for bit, in small commits and in large."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from tests.content.exact import rows_of
from tests.content.values import FLOATS, SCALARS, doubles, nested
from tests.sinks.conftest import MakeLake
from tests.sinks.world import (
    applied,
    changes,
    copy_of,
    opened,
    order,
    order_of,
    read,
    rows,
    seed,
    sink,
    tenant,
)
from truecut.lake import LakeAddress, connect
from truecut.model.change import INSERT, OP, PLACE, UNCHANGED, UPDATE
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import pool
from truecut.sinks.ducklake.inlining import inlines_exactly
from truecut.testing.orders import ABSENT

TABLES = {
    "scalars": SCALARS,
    "floats": FLOATS,
    "nested": dict(nested(SCALARS | FLOATS)),
    "deeper": {
        "STRUCT(s STRUCT(d DOUBLE, t TIMESTAMP)[], m MAP(INTEGER, JSON[]))": [
            """{'s': [{'d': 'nan', 't': '2026-01-01'}], 'm': MAP {1: ['"O''B"'::JSON]}}"""
        ]
    },
}
CONTROL = (
    "4::UTINYINT AS _truecut_op, 1::UBIGINT AS _truecut_place, n AS _truecut_seq, "
    "now() AS _truecut_committed_at"
)


def table_of(kinds: dict[str, list[str]], *, rows: int) -> tuple[TableSchema, pa.Table]:
    """A column of each type; each value, and NULL, is in some row if there are rows enough."""
    columns = [Column(1, "id", "BIGINT"), *(Column(n + 2, f"c{n}", kind) for n, kind in enumerate(kinds))]
    with connect() as plain:
        made = [
            f"CASE n % {len(texts) + 1} "
            + " ".join(f"WHEN {i} THEN CAST({text} AS {kind})" for i, text in enumerate(texts))
            + f" END AS c{n}"
            for n, (kind, texts) in enumerate(kinds.items())
        ]
        sql = f"SELECT {CONTROL}, n AS id, {', '.join(made)} FROM range({rows}) r(n)"
        return TableSchema("7", tuple(columns)), plain.execute(sql).to_arrow_table()


def assert_comes_back(address: LakeAddress, found: dict[str, tuple[TableSchema, pa.Table]]) -> None:
    applied(sink(address).recover(epoch=1, token=1))
    seeds = {name: seed(schema=schema) for name, (schema, _) in found.items()}
    packets = [Packet(f"main.{name}", sent) for name, (_, sent) in found.items()]
    applied(sink(address).apply(order(None, 1, token=1, edition=1, **seeds), iter(packets)))
    for name, (schema, sent) in found.items():
        assert_equal(address, name, schema, sent)


def assert_equal(address: LakeAddress, name: str, schema: TableSchema, sent: pa.Table) -> None:
    names = ", ".join(schema.names)
    with connect() as plain, opened(address) as connection:
        plain.register("sent", sent)
        typed = ", ".join(f"CAST({c.name} AS {c.type}) AS {c.name}" for c in schema.columns)
        assert rows_of(connection, f"SELECT {names} FROM lake.main.{name}") == rows_of(
            plain, f"SELECT {typed} FROM sent"
        ), name


@pytest.mark.parametrize("rows", [9, 40], ids=["few", "many"])
def test_all_types_come_back(address: LakeAddress, rows: int) -> None:
    """DuckLake keeps up to ten rows in its catalog by default, more go to files."""
    assert_comes_back(address, {name: table_of(kinds, rows=rows) for name, kinds in TABLES.items()})


def test_any_bits_of_a_float_come_back(address: LakeAddress) -> None:
    """Every finite number, infinity and NaN that eight bytes can hold; one in a hundred would lose a digit
    in the catalog of a DuckDB file. Few rows, which may be inlined, of many columns."""
    values = doubles(Random(7), 9 * 20)
    parts = [pa.array(values[n : n + 9]) for n in range(0, len(values), 9)]
    numbers = pa.array(range(9), pa.int64())
    sent = {
        "_truecut_op": pa.array([4] * 9, pa.uint8()),
        "_truecut_place": pa.array([1] * 9, pa.uint64()),
        "_truecut_seq": numbers,
        "_truecut_committed_at": pa.array([None] * 9, pa.timestamp("us", "UTC")),
        "id": numbers,
        **{f"d{n}": part for n, part in enumerate(parts)},
        **{f"f{n}": part.cast(pa.float32(), safe=False) for n, part in enumerate(parts)},
    }
    kinds = {f"{letter}{n}": kind for letter, kind in (("d", "DOUBLE"), ("f", "FLOAT")) for n in range(20)}
    columns = [Column(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), start=2)]
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), *columns))
    assert_comes_back(address, {"t": (schema, pa.table(sent))})


@pytest.mark.parametrize(
    ("kind", "scope"), [("duckdb", ""), ("sqlite", ", schema => 'main'"), ("postgres", "")]
)
def test_the_tenants_own_setting_does_not_matter(make_lake: MakeLake, kind: str, scope: str) -> None:
    """A lake that keeps many rows in its catalog still gets these as files, and keeps its setting."""
    address = make_lake(kind)
    applied(sink(address).recover(epoch=1, token=1))
    tenant(address, f"CALL lake.set_option('data_inlining_row_limit', 1000{scope})")
    pool.forget()  # a kept attachment has the settings of when it was attached
    assert_comes_back(address, {name: table_of(kinds, rows=40) for name, kinds in TABLES.items()})
    with opened(address) as connection:
        limits = connection.execute(
            "SELECT value FROM lake.options() WHERE option_name = 'data_inlining_row_limit'"
        ).fetchall()
        scalars, others = (
            connection.execute(
                "SELECT count(*) FROM __ducklake_metadata_lake.ducklake_data_file f "
                "JOIN __ducklake_metadata_lake.ducklake_table t USING (table_id) "
                f"WHERE t.table_name IN ({names})"
            ).fetchone()
            for names in ("'scalars'", "'nested', 'deeper'")
        )
    assert limits == [("1000",)]
    assert (scalars, others) == ((0,), (2,))


ODD = ("we ird\"',[]{}:= x", "ünï", "NULL", "1", " lead", "back\\slash", "tab\there", "'")


def test_names_of_any_spelling_are_told_as_absent(address: LakeAddress) -> None:
    """The list of columns that were not sent is the one list that may be inlined: names come back as they
    are, from the catalog and from files."""
    columns = [Column(n + 2, name, "VARCHAR") for n, name in enumerate(ODD)]
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), *columns))
    names = list(ODD)
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed("append", schema)), iter([])))
    found = rows([(UPDATE, 5, n, *[ABSENT] * n, *["x"] * (len(names) - n)) for n in range(8)], schema)
    wanted = order(4, 5, t=changes("append", schema))
    applied(sink(address).apply(wanted, iter([Packet("main.t", found)])))
    for flush in ((), ("CALL ducklake_flush_inlined_data('lake')",)):
        tenant(address, *flush)
        told = read(address, "t", "id, _truecut_unchanged")
        assert told == [(n, names[:n] or None) for n in range(8)]


def test_absent_values_of_all_types_stay_as_they_are(make_lake: MakeLake) -> None:
    """Taken from the sink's own rows, or from an earlier change of the window, to the bit."""
    address = make_lake("sqlite")
    applied(sink(address).recover(epoch=1, token=1))
    for name, kinds in TABLES.items():
        schema, sent = table_of(kinds, rows=40)
        told, inserts, updates = told_then_absent(sent, schema)
        applied(sink(address).apply(order_of({name: seed(schema=schema)}, None, 1), _packets(name, told)))
        wanted = order_of({name: changes(schema=schema)}, 1, 3)
        receipt = applied(sink(address).apply(wanted, _packets(name, updates, inserts)))
        assert copy_of(receipt, name).hold is None
        assert_equal(address, name, schema, sent)


def told_then_absent(sent: pa.Table, schema: TableSchema) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Half of the rows for a seed and half as inserts; then updates of all that tell no more than the key."""
    count, absent = sent.num_rows, list(schema.names[1:])
    halves = sent.slice(0, count // 2), sent.slice(count // 2)
    inserts = halves[1].set_column(0, OP, pa.array([INSERT] * halves[1].num_rows, pa.uint8()))
    updates = sent.drop_columns([OP, PLACE, *absent])
    updates = updates.append_column(OP, pa.array([UPDATE] * count, pa.uint8()))
    updates = updates.append_column(PLACE, pa.array([3] * count, pa.uint64()))
    updates = updates.append_column(UNCHANGED, pa.array([absent] * count, pa.list_(pa.string())))
    for name in absent:
        updates = updates.append_column(name, pa.nulls(count, sent.schema.field(name).type))
    return halves[0], inserts, updates


def _packets(name: str, *parts: pa.Table) -> Iterator[Packet]:
    return iter([Packet(f"main.{name}", part) for part in parts])


def test_what_may_be_inlined() -> None:
    """Scalars, but for floating point numbers; nothing nested."""
    types = ("INTEGER", "VARCHAR", "DOUBLE", "FLOAT", "INTEGER[]", "STRUCT(a INTEGER)", "MAP(JSON, JSON)")
    columns = {of: [Column(1, "id", "BIGINT"), Column(2, "v", of)] for of in types}
    assert {of for of in types if inlines_exactly(columns[of])} == {"INTEGER", "VARCHAR"}


def test_a_dictionary_takes_zeros_for_one(make_lake: MakeLake) -> None:
    """What docs say of Parquet, shown with the tenant's own client: should this fail, the sentence may go."""
    address = make_lake("sqlite")
    applied(sink(address).recover(epoch=1, token=1))
    tenant(
        address,
        "CREATE TABLE lake.z (n INTEGER, d DOUBLE)",
        "INSERT INTO lake.z SELECT n, if(n % 2 = 0, 0.0::DOUBLE, '-0.0'::DOUBLE) FROM range(1000) r(n)",
    )
    with opened(address) as connection:
        signs = connection.execute("SELECT count(DISTINCT signbit(d)) FROM lake.z").fetchone()
    assert signs == (1,)
