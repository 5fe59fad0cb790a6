"""Values of every type from one PostgreSQL into another: the sink holds what the source has, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.postgres_server import PostgresServer
from tests.sinks.database import sink
from tests.sources.postgres import values
from tests.sources.postgres.live import Live, live
from tests.sources.postgres.test_types import array, fill, literals
from truecut.certificate.digest import Buckets, Keyed
from truecut.certificate.scope import scope_of
from truecut.config.kinds import SINKS
from truecut.config.secret import Secret
from truecut.config.settings import SinkSettings
from truecut.model.change import AFTER, CONTROL_NAMES
from truecut.model.order import Receipt
from truecut.sinks.contract import Packet
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sources.postgres.decode import TableChanges
from truecut.sources.postgres.types import table_schema
from truecut.testing.orders import applied, copy_of, order_of, seed

# What stands at the sink under another type: the type, and that every text there is the source's.
ELSEWHERE = {
    "mood": "text",
    "vector(3)": "text",
    "pair": "text",
    "regclass": "text",
    "price": "numeric(12,3)",
    '"Net Price"': "numeric(12,3)",
    "grid": "integer[]",
    "time(2)": "time without time zone",
    "timestamp(3)": "timestamp without time zone",
    "mood[]": "text[]",
    "price[]": "numeric(12,3)[]",
    '"char"[]': "text[]",
}
MORE = {
    "time(3) with time zone": ["23:59:59.999-15:59", "00:00:00+00"],
    "interval(6)": ["infinity", "-infinity", "178956970 years 7 mons 2147483646 days"],
    "interval(2)": ["1.25 seconds", "-1 mons +1 day"],
    "interval day to second(3)": ["1 day 00:00:01.125"],
    "bpchar": ["ab  ", ""],
    "cid": ["0", "4294967295"],
    "tid": ["(0,1)", "(4294967295,65535)"],
    "oidvector": ["1 4294967295"],
    "pg_snapshot": ["10:20:10,14,15"],
    "refcursor": ["c"],
    "character varying(3)[]": ["{ab,NULL}"],
    "box[]": ["{(1,1),(0,0);(2,2),(0,0)}"],
}
ARRAYS = ("boolean", "bigint", "numeric(10,2)", "double precision", "text", "bytea", "uuid", "jsonb", "mood",
          "price", "interval", "name", '"char"', "timestamptz", "timetz", "point", "inet")  # fmt: skip
KEYED = Keyed(b"sixteen bytes of")
_numbers = itertools.count(1)


@pytest.fixture
def source(postgres: PostgresServer) -> Iterator[Live]:
    with live(postgres, f"native_source_{next(_numbers)}") as found:
        yield found


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresAddress:
    return PostgresAddress(Secret(postgres.create_database(f"native_sink_{next(_numbers)}")))


def rows_of(table: TableChanges) -> pa.Table:
    """As a wave hands them to a sink."""
    after = table.rows.column(AFTER)
    control = {name: table.rows.column(name) for name in CONTROL_NAMES}
    columns = {column.name: pc.struct_field(after, column.name) for column in table.relation.columns}
    return pa.table(control | columns)


def delivered(tables: dict[str, TableChanges], target: PostgresAddress) -> Receipt:
    """All of them in one order, as seeds."""
    applied(sink(target).recover(epoch=1, token=1))
    schemas = {name: table_schema(table.relation) for name, table in tables.items()}
    order = order_of({name: seed(schema=schemas[name]) for name in tables}, None, 1)
    return applied(sink(target).apply(order, (Packet(f"main.{n}", rows_of(t)) for n, t in tables.items())))


def copied(source: Live, target: PostgresAddress) -> dict[str, TableChanges]:
    """What the source has written goes through slot, decoder and sink."""
    found = {table.relation.name.table: table for table in source.decoded().tables}
    assert {name: table.stop for name, table in found.items()} == dict.fromkeys(found)
    receipt = delivered(found, target)
    assert {name: copy_of(receipt, name).hold for name in found} == dict.fromkeys(found)
    return found


def dump(connection: psycopg.Connection, name: str, *, form: str, typed: str = "v") -> bytes:
    """All rows, as the server itself sends them."""
    with connection.cursor() as cursor:
        sql = f"COPY (SELECT id, {typed} FROM {name} ORDER BY id) TO STDOUT (FORMAT {form})"
        with cursor.copy(sql) as copy:
            return b"".join(map(bytes, copy))


def differing(source: Live, target: PostgresAddress, kinds: dict[str, str]) -> dict[str, str]:
    """Tables whose type at the sink, or whose values, are not those of the source."""
    wrong = {}
    source.writer.execute("SET search_path = pg_catalog")  # how the names of objects are shown
    with psycopg.connect(target.dsn.reveal(), autocommit=True) as there:
        for name, kind in kinds.items():
            quoted = name.replace('"', '""')
            here, its = f'public."{quoted}"', f'main."{quoted}"'
            expected = ELSEWHERE.get(kind) or declared(source.writer, here)
            form = "text" if kind in ELSEWHERE else "binary"
            if declared(there, its) != expected:
                wrong[kind] = f"{declared(there, its)}, not {expected}"
            elif dump(source.writer, here, form=form) != dump(there, its, form=form):
                wrong[kind] = "values"
    return wrong


def declared(connection: psycopg.Connection, name: str) -> str:
    sql = (
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attname = 'v'"
    )
    ((found,),) = connection.execute(sql, (name,)).fetchall()
    return str(found)


def read_back(tables: dict[str, TableChanges], target: PostgresAddress) -> dict[str, str]:
    """Tables of which verification reads other values than those that were sent."""
    settings = SinkSettings(
        "acme", "postgres", target, None, "refuse", {f"main.{n}": "mirror" for n in tables}
    )
    wrong = {}
    with SINKS["postgres"].pin(settings, pipeline="tenants") as pinned:
        for name, table in tables.items():
            columns = table_schema(table.relation).columns
            scope = scope_of("source-1", f"main.{name}", columns, key=("id",), mode="mirror")
            sent, found = Buckets.empty(), Buckets.empty()
            sent.add(scope.digest(KEYED, rows_of(table)))
            for piece in pinned.content(f"main.{name}", columns, key=("id",), mode="mirror", pieces=1):
                for batch in piece.read():
                    found.add(scope.digest(KEYED, pa.Table.from_batches([batch])))
            if found.root() != sent.root():
                wrong[name] = table.relation.columns[1].type_name
    return wrong


def test_every_type_comes_into_another_postgres_bit_for_bit(source: Live, target: PostgresAddress) -> None:
    """The column is of the source's own type, PostgreSQL's binary form of each value is the same, and so is
    what verification reads of it."""
    source.do("CREATE TABLE things ()")
    source.do(values.SETUP)
    random = Random(21)
    kinds = {f"of_{n}": kind for n, kind in enumerate([*values.TYPES, *MORE])}
    for name, kind in kinds.items():
        fill(source, kind, name, literals(kind, random) if kind in values.TYPES else [None, *MORE[kind]])
    found = copied(source, target)
    assert differing(source, target, kinds) == {}
    assert read_back(found, target) == {}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_arrays_come_into_another_postgres_bit_for_bit(
    source: Live, target: PostgresAddress, depth: int
) -> None:
    """Of any element, nested as declared; NULL, quoted and empty ones."""
    source.do(values.SETUP)
    random = Random(depth)
    kinds = {f"many_{n}": kind + "[]" for n, kind in enumerate(ARRAYS)}
    for name, kind in kinds.items():
        texts = literals(kind.removesuffix("[]"), random)
        made = [array(texts, depth, random) for _ in range(20)] if depth < 3 else ["{{{NULL}},{{NULL}}}"]
        fill(source, kind + "[]" * (depth - 1), name, [None, "{}", *made])
    found = copied(source, target)
    assert differing(source, target, kinds) == {}
    assert read_back(found, target) == {}


def test_an_infinite_interval_is_refused_where_there_are_none(
    source: Live, postgres_16: PostgresServer
) -> None:
    """Before PostgreSQL 17 its bits are the longest finite ones: the table is held, with the reason."""
    fill(source, "interval", "endless", [None, "1 day", "infinity"])
    found = {table.relation.name.table: table for table in source.decoded().tables}
    older = PostgresAddress(Secret(postgres_16.create_database(f"native_sink_{next(_numbers)}")))
    hold = copy_of(delivered(found, older), "endless").hold
    assert hold is not None
    assert (hold.code, "infinite intervals" in hold.message) == ("TC3028", True)
