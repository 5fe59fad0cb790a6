"""What verification reads of a sink: cursor and content of one moment, every value as it was sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

from tests.content.values import FLOATS, SCALARS
from tests.sinks import database, world
from tests.sinks.conftest import MakeDatabase, MakeLake
from tests.sinks.test_postgres_types import EXACT, LISTS
from tests.sinks.test_types import TABLES, table_of
from truecut.cells import batches
from truecut.certificate.digest import Buckets, Keyed
from truecut.certificate.scope import scope_of
from truecut.config.kinds import SINKS
from truecut.config.secret import Secret
from truecut.config.settings import SinkSettings
from truecut.errors import TruecutError
from truecut.model.change import OP, POSITION, SEQ
from truecut.model.table import Column, Mode, TableSchema
from truecut.sinks.contract import Packet, Pinned, Sink
from truecut.sinks.ducklake.sink import DuckLakeSink
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.decode import reader
from truecut.sinks.postgres.server import connect
from truecut.sinks.postgres.sink import PostgresSink
from truecut.sinks.postgres.types import Target
from truecut.testing.orders import ITEMS, applied, changes, order, packets, position, seed

KEYED = Keyed(b"sixteen bytes of")
Bench = tuple[Sink[Any], Callable[[], AbstractContextManager[Pinned]]]


@pytest.fixture(params=["duckdb", "sqlite", "postgres catalog", "postgres"])
def bench(request: Any, make_lake: MakeLake, make_database: MakeDatabase) -> Bench:
    """A sink of each kind, and how it is pinned."""
    kind: str = request.param
    address: Any = make_database() if kind == "postgres" else make_lake(kind.split(" ")[0])
    name = "postgres" if kind == "postgres" else "ducklake"
    opened: Any = database.sink(address) if kind == "postgres" else world.sink(address)
    applied(opened.recover(epoch=1, token=1))
    settings = SinkSettings("acme", name, address, None, "refuse", {"main.t": "mirror"})
    return opened, lambda: SINKS[name].pin(settings, pipeline="tenants")


def sums(pinned: Pinned, schema: TableSchema, *, pieces: int, mode: Mode = "mirror") -> Buckets:
    scope = scope_of("source-1", "main.t", schema.columns, key=("id",), mode=mode)
    found = Buckets.empty()
    for piece in pinned.content("main.t", schema.columns, key=("id",), mode=mode, pieces=pieces):
        for batch in piece.read():
            found.add(scope.digest(KEYED, pa.Table.from_batches([batch])))
    return found


def expected(schema: TableSchema, rows: pa.Table) -> Buckets:
    found = Buckets.empty()
    found.add(scope_of("source-1", "main.t", schema.columns, key=("id",), mode="mirror").digest(KEYED, rows))
    return found


@pytest.mark.parametrize("kinds", ["scalars", "nested"])
def test_every_value_is_read_back(bench: Bench, kinds: str) -> None:
    """By the bit, for every type that the sink holds, in one piece or in several."""
    sink, pin = bench
    if sink.__class__.__name__ == "PostgresSink":
        chosen = EXACT if kinds == "scalars" else LISTS
    else:
        chosen = SCALARS | FLOATS if kinds == "scalars" else TABLES["nested"]
    schema, rows = table_of(chosen, rows=40)
    applied(sink.apply(order(None, 1, t=seed(schema=schema)), iter([Packet("main.t", rows)])))
    with pin() as pinned:
        for pieces in (1, 3):
            found = sums(pinned, schema, pieces=pieces)
            assert found.rows == 40
            assert found.root() == expected(schema, rows).root()
        assert pinned.altered("main.t", schema.columns, mode="mirror") is None


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_a_column_that_somebody_has_altered_is_told(bench: Bench, mode: Mode) -> None:
    """Another type, also one that shows the same values, a column or a table that is gone; as of the moment
    that is pinned. A column that somebody has added is his own."""
    sink, pin = bench
    applied(sink.apply(order(None, 1, t=seed(mode)), packets(t=[(4, 1, 1, "10")])))

    def told(*statements: str) -> str | None:
        for statement in statements:
            if isinstance(sink, PostgresSink):
                with closing(connect(sink.address)) as connection:
                    connection.execute(statement.encode())
                    connection.commit()
            else:
                assert isinstance(sink, DuckLakeSink)
                world.tenant(sink.address, statement.replace("main.", "lake.main."))
        with pin() as pinned:
            return pinned.altered("main.t", ITEMS.columns, mode=mode)

    assert told() is None
    assert told("ALTER TABLE main.t ADD COLUMN own INTEGER") is None
    is_lake = isinstance(sink, DuckLakeSink)
    wide = "DOUBLE" if is_lake else "double precision"
    cast = f"CREATE TABLE main.u AS SELECT * FROM (SELECT id::{wide} AS wide, * FROM main.t) s"
    swap = ("DROP TABLE main.t", "ALTER TABLE main.u DROP COLUMN id", "ALTER TABLE main.u RENAME wide TO id")
    assert told(cast, *swap, "ALTER TABLE main.u RENAME TO t") == (
        f"column id is {wide}, and was made {'BIGINT' if is_lake else 'bigint'}"
    )
    assert told("ALTER TABLE main.t DROP COLUMN id") == "column id is not there"
    assert told("DROP TABLE main.t") == "its table is not there"


def test_what_is_no_table_is_told(bench: Bench) -> None:
    """A view in the table's place may show what is certified, and be anything tomorrow."""
    sink, pin = bench
    applied(sink.apply(order(None, 1, t=seed()), packets(t=[(4, 1, 1, "10")])))
    for statement in ("ALTER TABLE main.t RENAME TO u", "CREATE VIEW main.t AS SELECT * FROM main.u"):
        if isinstance(sink, PostgresSink):
            with closing(connect(sink.address)) as connection:
                connection.execute(statement.encode())
                connection.commit()
        else:
            assert isinstance(sink, DuckLakeSink)
            world.tenant(sink.address, statement.replace("main.", "lake.main."))
    with pin() as pinned:
        assert pinned.altered("main.t", ITEMS.columns, mode="mirror") == "no table stands in its place"


def test_cursor_and_content_are_of_one_moment(bench: Bench) -> None:
    """Whatever is committed meanwhile is not seen, neither by the cursor nor by a piece."""
    sink, pin = bench
    applied(sink.apply(order(None, 1, t=seed()), packets(t=[(4, 1, 1, "10"), (4, 1, 2, "20")])))
    with pin() as pinned:
        assert pinned.cursor is not None
        pieces = pinned.content("main.t", ITEMS.columns, key=("id",), mode="mirror", pieces=2)
        applied(sink.apply(order(1, 2, t=changes()), packets(t=[(2, 2, 1, "11"), (1, 2, 3, "30")])))
        assert pinned.cursor.copies["main.t"].at == position(1)
        rows = [row for piece in pieces for batch in piece.read() for row in batch.to_pylist()]
        assert sorted(row["id"] for row in rows) == [1, 2]
        assert {row["id"]: row[ITEMS.names[1]] for row in rows} == {1: "10", 2: "20"}
    with pin() as later:
        assert later.cursor is not None
        assert later.cursor.copies["main.t"].at == position(2)
        assert sums(later, ITEMS, pieces=1).rows == 3


def test_a_table_that_is_made_anew_is_not_found_empty(make_database: MakeDatabase) -> None:
    """Under the snapshot of a server it would be; a run does so where a column's type has changed."""
    address = make_database()
    sink = database.sink(address)
    applied(sink.recover(epoch=1, token=1))
    applied(sink.apply(order(None, 1, t=seed()), packets(t=[(4, 1, 1, "10"), (4, 1, 2, "20")])))
    settings = SinkSettings("acme", "postgres", address, None, "refuse", {"main.t": "mirror"})
    with SINKS["postgres"].pin(settings, pipeline="tenants") as pinned, closing(connect(address)) as other:
        (piece,) = pinned.content("main.t", ITEMS.columns, key=("id",), mode="mirror", pieces=1)
        assert sum(batch.num_rows for batch in piece.read()) == 2
        other.execute("CREATE TABLE main.new (LIKE main.t)")
        other.execute("DROP TABLE main.t")
        other.execute("ALTER TABLE main.new RENAME TO t")
        with pytest.raises(TruecutError) as told:
            list(piece.read())
    assert told.value.fault.code == "TC4047"


def test_an_append_table_is_read_with_its_events(bench: Bench) -> None:
    """Position and number name an event; what happened is part of it."""
    sink, pin = bench
    applied(sink.apply(order(None, 1, t=seed("append")), packets(t=[(4, 1, 1, "10")])))
    applied(sink.apply(order(1, 2, t=changes("append")), packets(t=[(2, 2, 1, "11"), (3, 2, 1, "11")])))
    with pin() as pinned:
        columns = ITEMS.columns
        pieces = pinned.content("main.t", columns, key=("id",), mode="append", pieces=2)
        rows = [row for piece in pieces for batch in piece.read() for row in batch.to_pylist()]
        assert sorted((row[POSITION], row[SEQ], row[OP]) for row in rows) == [
            (str(position(1)), f"{0:016X}", "read"),
            (str(position(2)), f"{0:016X}", "update"),
            (str(position(2)), f"{1:016X}", "delete"),
        ]
        assert sums(pinned, ITEMS, pieces=2, mode="append").rows == 3


def test_rows_that_a_policy_hides_are_not_left_out(target: PostgresAddress) -> None:
    """The piece cannot be read; it is not shorter than the copy."""
    applied(database.sink(target).recover(epoch=1, token=1))
    events = packets(t=[(4, 1, 1, "10"), (4, 1, 2, "20")])
    applied(database.sink(target).apply(order(None, 1, t=seed()), events))
    database.owner(
        target,
        "CREATE ROLE onlooker LOGIN",
        "GRANT USAGE ON SCHEMA main, _truecut TO onlooker",
        "GRANT SELECT ON ALL TABLES IN SCHEMA main, _truecut TO onlooker",
        "ALTER TABLE main.t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON main.t USING (id < 2)",
    )
    address = replace(target, dsn=Secret(make_conninfo(target.dsn.reveal(), user="onlooker")))
    settings = SinkSettings("acme", "postgres", address, None, "refuse", {"main.t": "mirror"})
    with SINKS["postgres"].pin(settings, pipeline="tenants") as pinned:
        (piece,) = pinned.content("main.t", ITEMS.columns, key=("id",), mode="mirror", pieces=1)
        with pytest.raises(TruecutError) as caught:
            list(piece.read())
    assert caught.value.fault.code == "TC4033"


def test_blanks_in_arrays_are_kept(target: PostgresAddress) -> None:
    """An array of `character(n)`, as the sink holds it."""
    database.owner(target, "CREATE TABLE public.c (v character(3)[])")
    database.owner(target, "INSERT INTO public.c VALUES ('{a,NULL}')")
    one = reader(Column(1, "v", "VARCHAR[]"), Target("v", "character(3)[]", "text"))
    sql = f"COPY (SELECT {one.sql('v')} FROM public.c) TO STDOUT (FORMAT binary)"
    with (
        closing(connect(target)) as connection,
        connection.cursor() as cursor,
        cursor.copy(sql.encode()) as copy,
    ):
        (cells,) = list(batches(copy, columns=1))
    assert one.read(cells[0]).to_pylist() == [["a  ", None]]
