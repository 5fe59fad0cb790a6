"""Every type that a source may deliver comes back from PostgreSQL bit for bit, or its table is held."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.content.values import FLOATS, SCALARS, doubles
from tests.sinks.database import owner, read, sink
from tests.sinks.test_types import CONTROL, table_of, told_then_absent
from truecut.lake import connect
from truecut.model.change import DELETE, INSERT, UPDATE
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.postgres.address import PostgresAddress
from truecut.testing.orders import applied, changes, copy_of, order, order_of, rows, seed

INEXACT = {"TIMESTAMP_NS"}
EXACT = {kind: values for kind, values in (SCALARS | FLOATS).items() if kind not in INEXACT}
LISTS = {
    f"{kind}[]": ["[]", f"[{', '.join(f'CAST({v} AS {kind})' for v in values)}, NULL]", "[NULL]"]
    for kind, values in EXACT.items()
}
COLUMNS = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "UTINYINT": "smallint",
    "USMALLINT": "integer",
    "UINTEGER": "bigint",
    "UBIGINT": "numeric(20,0)",
    "DECIMAL(38,10)": "numeric(38,10)",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "JSON": "json",
    "BLOB": "bytea",
    "UUID": "uuid",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIMESTAMP_S": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
}


def at_duckdb(column: str, kind: str) -> str:
    """A value's text, for DuckDB: of floating point numbers and bytes their bits."""
    if kind == "DOUBLE" or kind == "FLOAT":
        return column
    return f"hex({column})" if kind == "BLOB" else f"replace({column}::VARCHAR, ' (BC)', ' BC')"


def at_postgres(column: str, kind: str) -> str:
    """The same for PostgreSQL."""
    if kind == "DOUBLE":
        return f"encode(float8send({column}), 'hex')"
    if kind == "FLOAT":
        return f"encode(float4send({column}), 'hex')"
    return f"upper(encode({column}, 'hex'))" if kind == "BLOB" else f"{column}::text"


def bits(value: float | None, kind: str) -> str | None:
    return None if value is None else struct.pack(">d" if kind == "DOUBLE" else ">f", value).hex()


def texts_of(connection: duckdb.DuckDBPyConnection, column: str, kind: str) -> list[Any]:
    if kind.endswith("[]"):
        inner = at_duckdb("x", kind[:-2])
        found = connection.execute(f"SELECT [{inner} FOR x IN {column}] FROM sent ORDER BY id").fetchall()
    else:
        found = connection.execute(f"SELECT {at_duckdb(column, kind)} FROM sent ORDER BY id").fetchall()
    values = [value for (value,) in found]
    element = kind.removesuffix("[]")
    if element not in ("DOUBLE", "FLOAT"):
        return values
    return [
        None if v is None else [bits(x, element) for x in v] if kind.endswith("[]") else bits(v, element)
        for v in values
    ]


def texts_at(target: PostgresAddress, column: str, kind: str) -> list[Any]:
    if kind.endswith("[]"):
        inner = at_postgres("x", kind[:-2])
        sql = (
            f"SELECT CASE WHEN {column} IS NOT NULL THEN ARRAY(SELECT {inner} FROM unnest({column}) "
            f"WITH ORDINALITY u(x, n) ORDER BY n) END FROM main.t ORDER BY t.id"
        )
    else:
        sql = f"SELECT {at_postgres(column, kind)} FROM main.t ORDER BY t.id"
    return [value for (value,) in read(target, sql)]


@pytest.mark.parametrize("kinds", [EXACT, LISTS], ids=["scalars", "lists"])
def test_all_types_come_back(target: PostgresAddress, kinds: dict[str, list[str]]) -> None:
    """As PostgreSQL's own client reads them; the text of each, and of floating point numbers the bits."""
    schema, found = table_of(kinds, rows=40)
    applied(sink(target).recover(epoch=1, token=1))
    receipt = sink(target).apply(order(None, 1, t=seed(schema=schema)), iter([Packet("main.t", found)]))
    assert copy_of(applied(receipt)).hold is None
    assert_equal(target, schema, found)
    assert kinds is LISTS or all(found.column(name).null_count for name in schema.names[1:])


def assert_equal(target: PostgresAddress, schema: TableSchema, found: pa.Table) -> None:
    with connect() as plain:
        plain.register("arrow", found)
        typed = ", ".join(f'"{c.name}"::{c.type} AS {c.name}' for c in schema.columns)
        plain.execute(f"CREATE TABLE sent AS SELECT {typed} FROM arrow")
        for column in schema.columns:
            sent = texts_of(plain, column.name, column.type)
            assert texts_at(target, column.name, column.type) == sent, column.type


@pytest.mark.parametrize("kinds", [EXACT, LISTS], ids=["scalars", "lists"])
def test_absent_values_of_all_types_stay_as_they_are(
    target: PostgresAddress, kinds: dict[str, list[str]]
) -> None:
    """Taken from the sink's own rows, or from an earlier change of the window, to the bit."""
    schema, sent = table_of(kinds, rows=40)
    told, inserts, updates = told_then_absent(sent, schema)
    applied(sink(target).recover(epoch=1, token=1))
    applied(sink(target).apply(order(None, 1, t=seed(schema=schema)), iter([Packet("main.t", told)])))
    window = [Packet("main.t", updates), Packet("main.t", inserts)]
    receipt = applied(sink(target).apply(order(1, 3, t=changes(schema=schema)), iter(window)))
    assert copy_of(receipt).hold is None
    assert_equal(target, schema, sent)


def test_types_at_the_sink(target: PostgresAddress) -> None:
    """What its owner finds in the catalog."""
    columns = [Column(1, "id", "BIGINT"), *(Column(n + 2, f"c{n}", kind) for n, kind in enumerate(COLUMNS))]
    applied(sink(target).recover(epoch=1, token=1))
    applied(sink(target).apply(order(None, 1, t=seed(schema=TableSchema("7", tuple(columns)))), iter([])))
    found = read(
        target,
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'main.t'::regclass "
        "AND attnum > 1 ORDER BY attnum",
    )
    assert [kind for (kind,) in found] == list(COLUMNS.values())


def test_any_bits_of_a_float_come_back(target: PostgresAddress) -> None:
    """Every finite number, infinity and NaN that eight bytes can hold."""
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), Column(2, "d", "DOUBLE"), Column(3, "f", "FLOAT")))
    values = doubles(Random(7), 2000)
    doubled = pa.array(values)
    single = doubled.cast(pa.float32(), safe=False)
    numbers = pa.array(range(len(values)), pa.int64())
    with connect() as plain:
        control = plain.execute(f"SELECT {CONTROL} FROM range({len(values)}) r(n)").to_arrow_table()
    for name, column in (("id", numbers), ("d", doubled), ("f", single)):
        control = control.append_column(name, column)
    applied(sink(target).recover(epoch=1, token=1))
    applied(sink(target).apply(order(None, 1, t=seed(schema=schema)), iter([Packet("main.t", control)])))
    found = read(
        target,
        "SELECT encode(float8send(d), 'hex'), encode(float4send(f), 'hex') FROM main.t ORDER BY id",
    )
    assert [d for d, _ in found] == [struct.pack(">d", value).hex() for value in values]
    swapped = single.to_numpy(zero_copy_only=False).astype(">f4")
    assert [f for _, f in found] == [swapped[n : n + 1].tobytes().hex() for n in range(len(values))]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("TIMESTAMP_NS", "microseconds"),
        ("STRUCT(a INTEGER)[][]", "fields"),
        ("STRUCT(months INTEGER, days INTEGER, micros BIGINT)", "fields"),
        ("STRUCT(a INTEGER)", "fields"),
        ("MAP(VARCHAR, INTEGER)", "keys and values"),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_what_cannot_be_exact_holds_its_table(
    target: PostgresAddress, kind: str, reason: str, empty: bool
) -> None:
    """With the reason, with rows or without; the other table of the order goes on."""
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), Column(2, "v", kind)))
    with connect() as plain:
        sql = f"SELECT {CONTROL}, n AS id, CAST(NULL AS {kind}) AS v FROM range({0 if empty else 3}) r(n)"
        found = plain.execute(sql).to_arrow_table()
    applied(sink(target).recover(epoch=1, token=1))
    both = order(None, 4, t=seed(schema=schema), u=seed())
    given = [Packet("main.t", found), Packet("main.u", rows([(INSERT, 4, 1, "a")]))]
    receipt = applied(sink(target).apply(both, iter(given)))
    hold = copy_of(receipt).hold
    assert hold is not None
    assert (hold.code, reason in hold.message) == ("TC3030", True)
    assert read(target, "SELECT id, value FROM main.u") == [(1, "a")]
    assert read(target, "SELECT to_regclass('main.t')") == [(None,)]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("VARCHAR", "'secret' || chr(0)", "NUL"),
        ("VARCHAR[]", "['secret' || chr(0)]", "NUL"),
        ("INTEGER[][]", "[[1, 2], [3]]", "ragged"),
        ("INTEGER[][]", "[[]]", "ragged"),
        ("INTEGER[][]", "[NULL, [1]]", "ragged"),
        ("INTEGER[][][]", "[[[1], [2]], [[3]]]", "ragged"),
        ("DATE", "'5870000-01-01 (BC)'", "outside"),
        ("TIMESTAMP", "'5000-01-01 (BC) 00:00:00'", "outside"),
    ],
)
def test_a_value_that_postgres_lacks_holds_its_table(
    target: PostgresAddress, kind: str, value: str, reason: str
) -> None:
    """The true reason, no value; the other table of the order goes on."""
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), Column(2, "v", kind)))
    with connect() as plain:
        sql = f"SELECT {CONTROL}, n AS id, CAST({value} AS {kind}) AS v FROM range(3) r(n)"
        found = plain.execute(sql).to_arrow_table()
    applied(sink(target).recover(epoch=1, token=1))
    both = order(None, 4, t=seed(schema=schema), u=seed())
    given = [Packet("main.t", found), Packet("main.u", rows([(INSERT, 4, 1, "a")]))]
    receipt = applied(sink(target).apply(both, iter(given)))
    hold = copy_of(receipt).hold
    assert hold is not None
    assert (hold.code, reason in hold.message, "secret" in hold.message) == ("TC3028", True, False)
    assert read(target, "SELECT id, value FROM main.u") == [(1, "a")]


def test_every_type_may_be_a_key(target: PostgresAddress) -> None:
    """Rows are found again by a key of any type, changed and deleted; also twice in one window."""
    applied(sink(target).recover(epoch=1, token=1))
    for number, (kind, values) in enumerate(EXACT.items()):
        name = f"k{number}"
        schema = TableSchema("7", (Column(1, "k", kind), Column(2, "v", "VARCHAR")))
        made = ", ".join(f"CAST({value} AS {kind})" for value in dict.fromkeys(values))
        windows = [
            f"({op}::UTINYINT, {place}::UBIGINT, {place}, '{op}.{place}')"
            for op, place in ((INSERT, 2), (UPDATE, 3), (DELETE, 4), (INSERT, 5))
        ]
        with connect() as plain:
            found = plain.execute(
                "SELECT w.op AS _truecut_op, w.place AS _truecut_place, w.seq AS _truecut_seq, "
                "now() AS _truecut_committed_at, k, w.v FROM (SELECT unnest([" + made + "]) AS k), "
                f"(VALUES {', '.join(windows)}) w(op, place, seq, v)"
            ).to_arrow_table()
        first = found.filter(pa.compute.less(found["_truecut_place"], 4))
        applied(sink(target).apply(order_of({name: seed(schema=schema, key=("k",))}, None, 1), iter([])))
        later = found.filter(pa.compute.greater(found["_truecut_place"], 3))
        for before, upto, part in ((1, 3, first), (3, 5, later)):
            wanted = order_of({name: changes(schema=schema, key=("k",))}, before, upto)
            receipt = applied(sink(target).apply(wanted, iter([Packet(f"main.{name}", part)])))
            assert copy_of(receipt, name).hold is None, kind
            expected = "2.3" if upto == 3 else "1.5"
            got = read(target, f"SELECT v FROM main.{name}")
            assert got == [(expected,)] * len(dict.fromkeys(values)), (kind, upto)


def test_natives_of_postgres_are_kept(target: PostgresAddress) -> None:
    """A column that a PostgreSQL source names is that type here; a word that is none of its own is not
    believed."""
    natives = {"numeric": "NaN", "inet": "10.0.0.1/8", "jsonb": '{"a": 1}', "character(5)": "ab   "}
    columns = [Column(n + 2, f"c{n}", "VARCHAR", native=f"postgres:{kind}") for n, kind in enumerate(natives)]
    odd = Column(9, "odd", "VARCHAR", native="postgres:text); DROP TABLE main.u; --")
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), *columns, odd))
    found = rows([(INSERT, 1, 1, *natives.values(), "x")], schema)
    applied(sink(target).recover(epoch=1, token=1))
    owner(target, "CREATE SCHEMA main", "CREATE TABLE main.u ()")
    receipt = sink(target).apply(order(None, 1, t=seed(schema=schema)), iter([Packet("main.t", found)]))
    assert copy_of(applied(receipt)).hold is None
    kinds = ", ".join(f"pg_typeof(c{n})::text" for n in range(len(natives)))
    values = ", ".join(f"c{n}::varchar" for n in (0, 1, 2))
    assert read(target, f"SELECT {kinds}, pg_typeof(odd)::text FROM main.t") == [
        ("numeric", "inet", "jsonb", "character", "text")
    ]
    assert read(target, f"SELECT {values} FROM main.t") == [("NaN", "10.0.0.1/8", '{"a": 1}')]
