"""Units of real tables: every row in exactly one, whatever the key, and as the stream would tell it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres import values
from tests.sources.postgres.live import Live, live
from tests.sources.postgres.test_types import array, fill, literals
from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.model.change import AFTER
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.server import Address, connect
from truecut.sources.postgres.unit_read import KEY, read_unit
from truecut.sources.postgres.units import Plan, condition, plan, units_of

_numbers = count(1)
SMALL = 16 << 10  # bytes of a unit

KEYS = {
    "dense": "SELECT i::bigint AS a FROM rows(6000) i",
    "sparse": "SELECT (i * 1e12)::bigint AS a FROM rows(3000) i",
    "skewed": "SELECT (CASE WHEN i < 5800 THEN i ELSE i * 100000 END)::int AS a FROM rows(6000) i",
    "word": "SELECT (md5(i::text) || chr(64 + i % 60)) COLLATE pg_unicode_fast AS a FROM rows(4000) i",
    "mood": "SELECT (ARRAY['sad', 'glad', 'angry'])[1 + i % 3]::mood_type AS a, i AS b FROM rows(6000) i",
    "name": "SELECT chr(65 + i % 26) || chr(97 + i % 7) || i || chr(233) AS a FROM rows(4000) i",
    "uuid": "SELECT md5(i::text)::uuid AS a FROM rows(5000) i",
    "number": "SELECT (i - 2000)::numeric / 7 AS a FROM rows(5000) i",
    "moment": "SELECT timestamptz '1999-01-01' + i * interval '1.000001 s' AS a FROM rows(5000) i",
    "bytes": "SELECT decode(md5(i::text), 'hex') AS a FROM rows(4000) i",
    "padded": "SELECT i::text::char(9) AS a FROM rows(4000) i",
    "pair": 'SELECT (i % 3)::int AS a, (i / 3)::text COLLATE "C" AS b FROM rows(6000) i',
    "three": 'SELECT (i % 2)::bool AS a, (i % 5)::int2 AS b, i AS "C d" FROM rows(6000) i',
}


@pytest.fixture(scope="module")
def keyed(postgres: PostgresServer) -> Address:
    """A database of tables with all sorts of keys."""
    conninfo = postgres.create_database("units")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION rows(int) RETURNS SETOF int LANGUAGE sql AS 'SELECT generate_series(1, $1)'"
        )
        connection.execute("CREATE TYPE mood_type AS ENUM ('sad', 'glad', 'angry')")
        for name, query in KEYS.items():
            connection.execute(f'CREATE TABLE "{name}" AS {query}')
            columns = [one.name for one in connection.execute(f'SELECT * FROM "{name}"').description or ()]
            key = ", ".join(f'"{column}"' for column in columns)
            connection.execute(
                f"ALTER TABLE \"{name}\" ADD PRIMARY KEY ({key}), ADD v text DEFAULT repeat('x', 30)"
            )
        connection.execute("CREATE TABLE bare AS SELECT i FROM generate_series(1, 5000) i")
        connection.execute("CREATE TABLE empty (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION truecut FOR ALL TABLES")
    return Address(Secret(conninfo), "none", "truecut")


def relation_of(connection: psycopg.Connection[tuple[object, ...]], address: Address, name: str) -> Relation:
    from truecut.sources.postgres.units import describe

    row = connection.execute("SELECT %s::regclass::oid::int8", (f'public."{name}"',)).fetchone()
    assert row is not None
    found = describe(connection, address, int(str(row[0])))
    assert found is not None
    return found


@pytest.mark.parametrize("name", [*KEYS, "bare", "empty"])
def test_every_row_is_in_one_unit(keyed: Address, name: str) -> None:
    """Ranges from below all keys to above them share no row and leave none out, whatever the key's type and
    collation; they are about equal; and the server says of every key that it is in the unit that has it."""
    with connect(keyed) as connection:
        made = plan(connection, keyed, relation_of(connection, keyed, name), unit_bytes=SMALL)
        assert Plan.of(made.document()) == made
        assert made.parts[0].low is None
        assert made.parts[-1].high is None
        keys = ", ".join(f"format('%s', \"{column}\")" for column in made.relation.key) or "ctid::text"
        counts = []
        for number, part in enumerate(made.parts):
            query = psycopg.sql.SQL("SELECT {} FROM {} WHERE {}").format(
                psycopg.sql.SQL(keys), made.table, condition(made, part)
            )
            rows = connection.execute(query).fetchall()
            counts.append(len(rows))
            if made.by:
                assert set(units_of(connection, keyed, made, rows)) <= {number}
        (total,) = connection.execute(f'SELECT count(*) FROM public."{name}"').fetchone() or (0,)
    assert sum(counts) == total
    if name == "empty":
        assert len(counts) == 1
    else:
        assert len(counts) > 5
        assert max(counts) < 4 * total / len(counts), "no unit is much larger than the others"


def test_rows_behind_the_last_known_key_are_in_the_last_unit(keyed: Address) -> None:
    """What came after the plan is in a unit, too, at either end."""
    with connect(keyed) as connection:
        made = plan(connection, keyed, relation_of(connection, keyed, "dense"), unit_bytes=SMALL)
        assert units_of(connection, keyed, made, [("-9223372036854775808",), ("9223372036854775807",)]) == [
            0,
            len(made.parts) - 1,
        ]


def test_a_plan_reads_a_part_of_the_table(keyed: Address) -> None:
    """A bound is found in a sample, and the condition of a range is one that an index answers."""
    with connect(keyed) as connection:
        made = plan(connection, keyed, relation_of(connection, keyed, "pair"), unit_bytes=SMALL)
        connection.execute("ANALYZE public.pair")
        query = psycopg.sql.SQL("EXPLAIN SELECT * FROM {} WHERE {}").format(
            made.table, condition(made, made.parts[2])
        )
        shown = "\n".join(str(row[0]) for row in connection.execute(query).fetchall())
    assert "Index Cond: ((ROW(a, b)" in shown


READ_ONE = """
import pickle, resource, sys
from pathlib import Path
from truecut.sources.postgres.unit_read import read_unit
address, plan, path = pickle.loads(Path(sys.argv[1]).read_bytes())
record = read_unit(address, plan, 0, path)
print(record.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_unit_that_grew_takes_no_more_memory(keyed: Address, tmp_path: Path) -> None:
    """However wrong a plan has become: made while a table was nearly empty and never analyzed, its only unit
    is the whole table by now. Its rows stream into the file."""
    peaks = []
    with connect(keyed) as connection:
        connection.execute(
            "CREATE TABLE public.grown (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)"
        )
        connection.execute("INSERT INTO public.grown VALUES (0, '')")
        made = plan(connection, keyed, relation_of(connection, keyed, "grown"))
        assert len(made.parts) == 1
        for rows in (1, 160_001):
            connection.execute(
                "INSERT INTO public.grown SELECT i, repeat(md5(i::text), 30) FROM generate_series(2, %s) i",
                (rows,),
            )
            given, path = tmp_path / f"{rows}.given", tmp_path / f"{rows}.arrow"
            given.write_bytes(pickle.dumps((keyed, made, path)))
            command = [sys.executable, "-c", READ_ONE, str(given)]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            assert int(told[0]) == rows
            peaks.append(int(told[1]) << 10)
        (size,) = connection.execute("SELECT sum(length(v)) FROM public.grown").fetchone() or (0,)
    assert size > 150_000_000
    assert peaks[1] - peaks[0] < size // 2


# --- values ---------------------------------------------------------------------------------------------


@pytest.fixture
def every_type(postgres: PostgresServer) -> Iterator[Live]:
    with live(postgres, f"unit_values_{next(_numbers)}") as found:
        yield found


def address_of(database: Live) -> Address:
    return Address(Secret(database.writer.info.dsn), "none", "all_tables")


def unit_of(address: Address, relation: Relation, folder: Path) -> pa.Table:
    """A whole table as one unit, read back by Arrow's own reader."""
    with connect(address) as connection:
        made = replace(
            plan(connection, address, relation), parts=plan(connection, address, relation).parts[:1]
        )
    record = read_unit(address, made, 0, folder / f"{relation.oid}.1.arrow")
    found = pa.ipc.open_stream(folder / record.file).read_all()
    assert found.num_rows == record.rows
    return found


def exact(one: pa.ChunkedArray | pa.Array) -> object:
    """Type, values and NULLs, bit by bit: equality of floats is not."""
    whole = one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one
    sink = pa.BufferOutputStream()
    fresh = pa.concat_arrays([whole.slice(0, 0), whole]) if whole.offset else whole
    taken = fresh.take(pa.array(range(len(fresh)), pa.int64()))
    batch = pa.RecordBatch.from_arrays([taken], names=["v"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return whole.type, sink.getvalue().to_pybytes()


def test_a_unit_has_the_values_that_the_stream_tells(every_type: Live, tmp_path: Path) -> None:
    """For every type, with values worth a look and drawn ones, in columns and in arrays: the rows of a unit
    are those that the stream's decoder gives, bit by bit, and the key's text is that of the stream."""
    database = every_type
    database.do("CREATE TABLE things ()")
    database.do(values.SETUP)
    random = Random(21)
    kinds = list(values.TYPES)
    for number, kind in enumerate(kinds):
        fill(database, kind, f"t{number}", literals(kind, random))
    for number, kind in enumerate(("bigint", "text", "mood", "bytea", "timestamptz", "bpchar")):
        known = literals(kind, random) if kind in values.TYPES else ["a ", "", None]
        fill(database, f"{kind}[]", f"a{number}", [None, "{}", *(array(known, 1, random) for _ in range(9))])
    tables = {table.relation.name.table: table for table in database.decoded().tables}
    assert len(tables) == len(kinds) - 1 + 6 + (len(literals("xml", random)) == 1)
    address = address_of(database)
    for table in tables.values():
        order = pc.sort_indices(pc.struct_field(table.rows.column(AFTER), "id"))
        streamed = table.rows.column(AFTER).take(order)
        unit = unit_of(address, table.relation, tmp_path).sort_by("id")
        for name in ("id", "v"):
            told = pc.struct_field(streamed, name)
            assert exact(unit.column(name)) == exact(told), (table.relation.columns[1].type_name, name)
        assert unit.column(f"{KEY}0").to_pylist() == [str(n) for n in unit.column("id").to_pylist()]


def test_a_composite_of_nulls_is_a_value(every_type: Live, tmp_path: Path) -> None:
    """A row of NULLs IS NULL in SQL, and is sent as (,)."""
    every_type.do("CREATE TYPE pair AS (a int, b text)")
    every_type.do("CREATE TABLE p (id int PRIMARY KEY, v pair)")
    every_type.do("INSERT INTO p VALUES (1, ROW(NULL, NULL)), (2, NULL)")
    relation = next(one for one in every_type.relations().values() if one.name.table == "p")
    unit = unit_of(address_of(every_type), relation, tmp_path).sort_by("id")
    assert unit.column("v").to_pylist() == ["(,)", None]


def test_a_value_that_cannot_be_stored_is_named_by_its_column(every_type: Live, tmp_path: Path) -> None:
    """The same words as the stream's, and no value."""
    every_type.do("CREATE TABLE n (id int PRIMARY KEY, v numeric(10,2))")
    every_type.do("INSERT INTO n VALUES (1, 'NaN')")
    relation = next(one for one in every_type.relations().values() if one.name.table == "n")
    with pytest.raises(TruecutError, match=r"TC3050 public\.n: a value of column v cannot be stored"):
        unit_of(address_of(every_type), relation, tmp_path)


def test_rows_that_a_policy_hides_are_an_error(every_type: Live, tmp_path: Path) -> None:
    """A copy without them would pass for whole."""
    every_type.do("CREATE TABLE hidden (id int PRIMARY KEY)")
    every_type.do("INSERT INTO hidden VALUES (1), (2)")
    every_type.do("ALTER TABLE hidden ENABLE ROW LEVEL SECURITY")
    every_type.do("DROP ROLE IF EXISTS humble")
    every_type.do("CREATE ROLE humble LOGIN; GRANT SELECT ON hidden TO humble")
    relation = next(one for one in every_type.relations().values() if one.name.table == "hidden")
    humble = every_type.writer.info.dsn.replace("user=postgres", "user=humble")
    with pytest.raises(TruecutError, match="TC2136 humble may not read all rows"):
        unit_of(Address(Secret(humble), "none", "all_tables"), relation, tmp_path)


def test_only_the_published_rows_and_the_table_s_own(every_type: Live, tmp_path: Path) -> None:
    """A unit has what the stream would tell: rows that the publication's condition lets through, and none of
    a table that inherits."""
    every_type.do("CREATE TABLE parent (id int PRIMARY KEY, v int); CREATE TABLE child () INHERITS (parent)")
    every_type.do(
        "INSERT INTO parent SELECT i, i FROM generate_series(1, 9) i; INSERT INTO child VALUES (50, 50)"
    )
    every_type.do("CREATE PUBLICATION a_part FOR TABLE ONLY parent WHERE (id > 4)")
    relation = next(one for one in every_type.relations().values() if one.name.table == "parent")
    unit = unit_of(replace(address_of(every_type), publication="a_part"), relation, tmp_path)
    assert sorted(unit.column("id").to_pylist()) == [5, 6, 7, 8, 9]
