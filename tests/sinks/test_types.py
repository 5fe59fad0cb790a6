"""Every type that a source may deliver comes back from a sink bit for bit, in small commits and in large."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from tests.content.exact import rows_of
from tests.content.values import FLOATS, SCALARS, doubles, nested
from tests.sinks.conftest import KINDS, MakeLake
from tests.sinks.world import applied, opened, order, seed, sink, tenant
from truecut.lake import LakeAddress, connect
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import pool
from truecut.sinks.ducklake.inlining import inlines_exactly

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
    packets = [Packet(f"main.{name}", rows) for name, (_, rows) in found.items()]
    applied(sink(address).apply(order(None, 1, token=1, edition=1, **seeds), iter(packets)))
    for name, (schema, rows) in found.items():
        names = ", ".join(schema.names)
        with connect() as plain, opened(address) as connection:
            plain.register("sent", rows)
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
    in the catalog of a DuckDB file."""
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), Column(2, "d", "DOUBLE"), Column(3, "f", "FLOAT")))
    applied(sink(address).recover(epoch=1, token=1))
    values = doubles(Random(7), 9 * 20)
    tables = {}
    for n in range(20):
        part = pa.array(values[9 * n : 9 * n + 9])
        numbers = pa.array(range(9), pa.int64())
        stamps = pa.array([None] * 9, pa.timestamp("us", "UTC"))
        control = {
            "_truecut_op": pa.array([4] * 9, pa.uint8()),
            "_truecut_place": pa.array([1] * 9, pa.uint64()),
        }
        columns = {"_truecut_seq": numbers, "_truecut_committed_at": stamps, "id": numbers}
        tables[f"t{n}"] = (
            schema,
            pa.table({**control, **columns, "d": part, "f": part.cast(pa.float32(), safe=False)}),
        )
    assert_comes_back(address, tables)


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


def test_what_may_be_inlined() -> None:
    """Scalars, but for floating point numbers in a DuckDB file; nothing nested."""
    allowed = {
        (kind, of)
        for kind in KINDS
        for of in (
            "INTEGER",
            "VARCHAR",
            "DOUBLE",
            "FLOAT",
            "INTEGER[]",
            "STRUCT(a INTEGER)",
            "MAP(JSON, JSON)",
        )
        if inlines_exactly([Column(1, "id", "BIGINT"), Column(2, "v", of)], kind)
    }
    scalars = {(kind, of) for kind in KINDS for of in ("INTEGER", "VARCHAR")}
    assert allowed == scalars | {(kind, of) for kind in ("sqlite", "postgres") for of in ("DOUBLE", "FLOAT")}


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
