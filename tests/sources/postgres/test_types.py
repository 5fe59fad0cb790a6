"""Values of every type: through a slot, the decoder and DuckDB, back to PostgreSQL, which is the judge."""

from __future__ import annotations

from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from docs.postgres_types import ROWS, Row
from tests.sources.postgres import values
from tests.sources.postgres.live import Live
from truecut.model.change import AFTER
from truecut.sources.postgres import values as values_read
from truecut.sources.postgres.decode import TableChanges
from truecut.sources.postgres.types import native_spelling, table_schema, value_type

_DRAWN = 40


def literals(kind: str, random: Random) -> list[str | None]:
    """Those worth a look, some drawn, and NULL."""
    known, draw = values.TYPES[kind]
    drawn = [draw(random) for _ in range(_DRAWN)] if draw is not None else []
    return [None, *known, *drawn]


def as_literal(spelling: str, v: str = "v") -> str:
    """How DuckDB says a value of a neutral type so that PostgreSQL reads it."""
    if spelling.endswith("[]"):
        return f"list_transform({v}, lambda {v}_: {as_literal(spelling.removesuffix('[]'), v + '_')})"
    if spelling == "BLOB":
        return rf"'\x' || hex({v})"
    if spelling == "TIMESTAMP WITH TIME ZONE":  # whose last year DuckDB shows wrong, though it keeps it right
        finite = f"replace(make_timestamp(epoch_us({v}))::VARCHAR || '+00', ' (BC)+00', '+00 BC')"
        return f"CASE WHEN isfinite({v}) THEN {finite} ELSE {v}::VARCHAR END"
    if spelling.startswith("STRUCT(months"):
        return f"{v}.months || ' mons ' || {v}.days || ' days ' || {v}.micros || ' microseconds'"
    return f"replace({v}::VARCHAR, ' (BC)', ' BC')" if spelling in ("DATE", "TIMESTAMP") else f"{v}::VARCHAR"


def through_duckdb(table: TableChanges) -> list[tuple[int, Any]]:
    """The rows after, as DuckDB reads them from a Parquet file, as a lake has them, in the neutral types."""
    spelling = table_schema(table.relation).columns[1].type
    after = table.rows.column(AFTER)
    rows = pa.table({"id": pc.struct_field(after, "id"), "v": pc.struct_field(after, "v")})
    with duckdb.connect() as connection, TemporaryDirectory() as folder:
        connection.register("rows", rows)
        connection.execute(f"CREATE TABLE typed AS SELECT id, CAST(v AS {spelling}) AS v FROM rows")
        connection.execute(f"COPY typed TO '{folder}/rows.parquet'")
        return connection.execute(
            f"SELECT id, {as_literal(spelling)} FROM '{folder}/rows.parquet'"
        ).fetchall()


def judge(database: Live, kind: str, name: str, table: TableChanges) -> list[Any]:
    """The ids of rows where PostgreSQL finds another value than the one it has, by its text."""
    database.writer.execute(f"CREATE TEMP TABLE copy (id int, v {kind})")
    array = table.relation.columns[1].dims > 0
    cast = "text[]" if array else "text"
    with database.writer.cursor() as cursor:
        cursor.executemany(f"INSERT INTO copy SELECT %s, %s::{cast}::{kind}", through_duckdb(table))
    wrong = database.writer.execute(
        f'SELECT id FROM "{name}" t FULL JOIN copy c USING (id) WHERE t.v::text IS DISTINCT FROM c.v::text'
    ).fetchall()
    database.writer.execute("DROP TABLE copy")
    return [row[0] for row in wrong]


def fill(database: Live, kind: str, name: str, texts: list[str | None]) -> None:
    database.do(f'CREATE TABLE "{name}" (id int PRIMARY KEY, v {kind})')
    with database.writer.transaction(), database.writer.cursor() as cursor:
        sql = f'INSERT INTO "{name}" VALUES (%s, %s::text::{kind})'
        cursor.executemany(sql, list(enumerate(texts)))


def test_every_type_is_exact(database: Live) -> None:
    """What comes out of DuckDB is, for PostgreSQL, the value that went in: text for text."""
    database.do("CREATE TABLE things ()")
    database.do(values.SETUP)
    random = Random(20)
    names = {f'of "{kind}"'.replace('"', "~"): kind for kind in values.TYPES}
    for name, kind in names.items():
        fill(database, kind, name, literals(kind, random))
    found = {table.relation.name.table: table for table in database.decoded().tables}
    assert {name: table.stop for name, table in found.items()} == dict.fromkeys(names)
    assert {name: judge(database, kind, name, found[name]) for name, kind in names.items()} == {
        name: [] for name in names
    }


def element(text: str | None) -> str:
    """As a literal within an array."""
    return "NULL" if text is None else '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


def array(texts: list[str | None], depth: int, random: Random) -> str:
    """A literal of that depth with some of these."""
    width = random.randint(1, 3)
    if depth == 1:
        return "{" + ",".join(element(random.choice(texts)) for _ in range(width)) + "}"
    inner = [random.choices(texts, k=width) for _ in range(random.randint(1, 3))]
    return "{" + ",".join("{" + ",".join(map(element, row)) + "}" for row in inner) + "}"


_ARRAYS = (
    "boolean",
    "bigint",
    "numeric(10,2)",
    "double precision",
    "text",
    "bytea",
    "uuid",
    "jsonb",
    "mood",
    "price",
)


@pytest.mark.parametrize("depth", [1, 2])
def test_arrays_are_exact(database: Live, depth: int) -> None:
    """Arrays of any element, nested as declared, with NULL, quoted and empty ones."""
    database.do(values.SETUP)
    random = Random(depth)
    names = {f"many {kind}": kind + "[]" * depth for kind in _ARRAYS}
    for name, kind in names.items():
        known = literals(kind.rstrip("[]"), random)
        fill(database, kind, name, [None, "{}", *(array(known, depth, random) for _ in range(30))])
    found = {table.relation.name.table: table for table in database.decoded().tables}
    assert {name: table.stop for name, table in found.items()} == dict.fromkeys(names)
    for name, kind in names.items():
        assert judge(database, kind, name, found[name]) == [], name


def test_bounds_and_depth_that_a_list_cannot_hold_stop_the_table(database: Live) -> None:
    """A list has no lower bound and one depth: such a value is said, not bent; other tables go on."""
    cases = {"[0:1]={1,2}": "integer[]", "{{1},{2}}": "integer[]", "{1,2}": "integer[][]"}
    for number, (text, kind) in enumerate(cases.items()):
        fill(database, kind, f"t{number}", ["{}", text])
    fill(database, "integer[]", "fine", ["{1,2}"])
    for table in database.decoded().tables:
        if table.relation.name.table == "fine":
            assert table.stop is None
            continue
        assert table.stop is not None
        assert table.stop.fault.code == "TC3050"
        assert "column v" in table.stop.fault.message
        assert table.rows.num_rows == 0  # both rows are of one transaction


_UNFIT = {
    "numeric(10,2)": "NaN",
    "timestamp": "294276-12-31 23:59:59.999999",
    "timestamptz": "294276-12-31 00:00:00+00",
    "json": '"\\ud800"',
}


def test_a_value_that_cannot_be_held_stops_its_table_there(database: Live) -> None:
    """Every transaction before it is there, nothing of its own or a later one; the fault names no value."""
    for kind, text in _UNFIT.items():
        database.do(f'CREATE TABLE "{kind}" (id int PRIMARY KEY, v {kind})')
        for id, value in enumerate([None, text, None]):
            database.do(
                f'INSERT INTO "{kind}" VALUES (%s, NULL), (%s, %s::text::{kind})', (-id, id + 9, value)
            )
    decoded = database.decoded()
    assert {table.relation.name.table for table in decoded.tables} == set(_UNFIT)
    for number, table in enumerate(sorted(decoded.tables, key=lambda one: one.relation.oid)):
        ids = pc.struct_field(table.rows.column(AFTER), "id").to_pylist()
        assert ids == [0, 9]
        assert table.stop is not None
        assert table.stop.place == decoded.transactions.commit_lsns[3 * number + 1]
        value = _UNFIT[table.relation.name.table]
        if value == "NaN":
            assert "NaN, which a column of numeric keeps" in table.stop.fault.message
            assert "a type that is stored as text" in table.stop.fault.fix
        else:
            assert value not in table.stop.fault.message


def test_the_documents_table_is_what_the_catalog_says(database: Live) -> None:
    """A column of each documented type, made by PostgreSQL, is stored as the document says."""
    columns = ", ".join(f"c{number} {row.spelling}" for number, row in enumerate(ROWS))
    database.do(f"CREATE TABLE documented ({columns})")
    (relation,) = database.relations().values()
    stored = [(value_type(column).spelling, native_spelling(column)) for column in relation.columns]
    assert stored == [(row.value_type.spelling, native_spelling(row.column)) for row in ROWS]


def test_infinite_intervals_are_as_postgres_stores_them() -> None:
    """PostgreSQL 17 and later have them; no other interval has these parts."""
    found = values_read.interval(pa.array([b"infinity", None, b"-infinity", b"00:00:00"]))
    largest = {"months": 2**31 - 1, "days": 2**31 - 1, "micros": 2**63 - 1}
    smallest = {"months": -(2**31), "days": -(2**31), "micros": -(2**63)}
    assert found.to_pylist() == [largest, None, smallest, {"months": 0, "days": 0, "micros": 0}]


def test_boxes_have_a_delimiter_of_their_own(database: Live) -> None:
    """An array of boxes is separated by semicolons."""
    fill(database, "box[]", "boxes", ["{(1,1),(0,0);(2,2),(0,0)}", "{NULL}"])
    (table,) = database.decoded().tables
    assert table.stop is None
    lists = pc.struct_field(table.rows.column(AFTER), "v").to_pylist()
    assert lists == [["(1,1),(0,0)", "(2,2),(0,0)"], [None]]


@pytest.mark.parametrize("delimiter", ["|", "^"])
def test_a_type_of_somebodys_own_may_have_one_too(database: Live, delimiter: str) -> None:
    """Whatever separates its arrays, also behind domains and in arrays of arrays: the server's elements."""
    database.do(
        "CREATE TYPE own;"
        "CREATE FUNCTION own_in(cstring) RETURNS own LANGUAGE internal IMMUTABLE STRICT AS 'textin';"
        "CREATE FUNCTION own_out(own) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';"
        f"CREATE TYPE own (INPUT = own_in, OUTPUT = own_out, LIKE = text, DELIMITER = '{delimiter}');"
        "CREATE DOMAIN whole AS own; CREATE DOMAIN many AS own[]"
    )
    flat = '{a,b|NULL|\'c\'|"NULL"|"x|y"}'.replace("|", delimiter)
    plain, nested = "{a,b|c}".replace("|", delimiter), "{{a,b|c}|{d|e}}".replace("|", delimiter)
    for name, kind in {"of it": "own[]", "of a domain": "whole[]", "domain": "many"}.items():
        fill(database, kind, name, [plain])
        fill(database, kind, f"{name}, quoted", [flat, "{}"])
    fill(database, "own[][]", "nested", [nested])
    found = {}
    for table in database.decoded().tables:
        assert table.stop is None
        found[table.relation.name.table] = pc.struct_field(table.rows.column(AFTER), "v").to_pylist()
    quoted = [["a,b", None, "'c'", "NULL", f"x{delimiter}y"], []]
    assert found.pop("nested") == [[["a,b", "c"], ["d", "e"]]]
    names = ("of it", "of a domain", "domain")
    assert found == {one: [["a,b", "c"]] for one in names} | {f"{one}, quoted": quoted for one in names}


_WRONG = [
    (values_read.boolean, [b"x", b""]),
    (values_read.uuid, [b"x"]),
    (values_read.text, [b"\xff"]),
    (values_read.time, [b"25:00:00", b"x"]),
    (values_read.interval, [b"", b"1 day 2"]),
    (
        values_read.interval,  # of PostgreSQL 16, which has no infinite ones
        [
            b"178956970 years 7 mons 2147483647 days 2562047788:00:54.775807",
            b"-178956970 years -8 mons -2147483648 days -2562047788:00:54.775808",
        ],
    ),
    (values_read.date, [b"2024-13-01", b"12024-1-01", b"12024-13-01", b"2024-01-01 00:00:00"]),
    (values_read.timestamp, [b"now", b"12024-01-01", b"12024-01-01 25:00:00"]),
    (values_read.bytea, [rb"\x0", b"00", rb"\xzz"]),
    (values_read.json_text, [rb'"\ud800"', rb'"\udc00\ud800"', rb'"\\\ud800"', rb'"\ud83d\ude00\ud83d"']),
]


@pytest.mark.parametrize(("read", "text"), [(read, text) for read, texts in _WRONG for text in texts])
def test_a_text_of_another_form_is_refused_where_it_stands(read: values_read.Reader, text: bytes) -> None:
    """Never NULL, never something near it; the first one is named by its number."""
    with pytest.raises(values_read.Unfit) as refused:
        read(pa.array([None, text, text]))
    assert refused.value.index == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.spelling)
def test_nothing_and_null_are_read(row: Row) -> None:
    """No values at all, and none but NULL: of the right type."""
    kind = row.value_type
    assert kind.read(pa.array([], pa.binary())) == pa.array([], kind.arrow)
    assert kind.read(pa.nulls(3, pa.binary())) == pa.nulls(3, kind.arrow)


_BEGUN = {
    "box": "(1,1),(0,0)",
    "box[]": "{(1,1),(0,0);(2,2),(0,0)}",
    "integer[]": "{1,NULL,2}",
    "text[]": '{NULL,"NULL","a,b"}',
    "text": r'a"b\,{c}',
    "character(4)": "a",
    "pair": '(1,"a ""b"", c")',
    "double precision": "-0",
}


def test_what_older_rows_hold_is_told_as_it_is(database: Live) -> None:
    """A column that was added with a constant default: its text is that of the value, whatever it is of."""
    database.do(values.SETUP)
    database.do("CREATE TABLE old (id int PRIMARY KEY)")
    database.do("INSERT INTO old VALUES (1)")
    for number, (kind, text) in enumerate(_BEGUN.items()):
        database.do(f"ALTER TABLE old ADD c{number} {kind} DEFAULT '{text}'")
    (relation,) = database.relations().values()
    shown = ", ".join(f"format('%s', c{number})" for number in range(len(_BEGUN)))
    ((*expected,),) = database.writer.execute(f"SELECT {shown} FROM old").fetchall()
    assert [column.initial for column in relation.columns[1:]] == expected
