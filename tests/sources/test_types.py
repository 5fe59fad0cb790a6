"""Every type we accept arrives exactly; every type that would not is refused, with the reason."""

from __future__ import annotations

import io

import duckdb
import pyarrow as pa
import pytest

from tests.sources.conftest import MakeLake
from truecut.errors import Retry, TruecutError
from truecut.model.change import CONTROL_NAMES
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import TableRead, WindowLimits
from truecut.sources.ducklake.attach import UNREADABLE
from truecut.sources.ducklake.schema import TYPE_UNSUPPORTED
from truecut.sources.ducklake.source import DuckLakeSource

TABLE = TableRead(TableName("main", "t"), ("id",), None)

# type → values worth a look, as SQL. (-0.0 beside 0.0 is not one: DuckDB's own storage makes them one run.)
ACCEPTED = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UBIGINT": ["0", "18446744073709551615"],
    "FLOAT": ["'nan'", "'-inf'", "'-0.0'", "1.1", "0.0", "3.4028235e38"],
    "DOUBLE": ["'nan'", "'inf'", "'-0.0'", "0.1", "0.0", "1.7976931348623157e308", "5e-324"],
    "DECIMAL(4,1)": ["-999.9", "0.1"],
    "DECIMAL(18,3)": ["-999999999999999.999"],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789"],
    "VARCHAR": ["''", "'é''\"\\'", "'🦆'", "'NULL'", "'a' || chr(10) || 'b'"],
    "BLOB": ["'\\x00\\xFF'::BLOB", "''::BLOB"],
    "DATE": ["'0044-03-15 (BC)'", "'9999-12-31'", "'1969-12-31'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'", "'12:34:56.789012'"],
    "TIMESTAMP": ["'1677-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"],
    "TIMESTAMP_S": ["'2026-01-01 01:02:03'", "'1901-01-01 00:00:00'"],
    "TIMESTAMP_MS": ["'2026-01-01 01:02:03.456'"],
    "TIMESTAMP_NS": ["'2026-01-01 01:02:03.456789123'"],
    "TIMESTAMP WITH TIME ZONE": ["'2026-01-01 01:02:03.456789+05:30'", "'1900-01-01 00:00:00+00'"],
    "UUID": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "JSON": ["""'{"b": 1, "a":  [null]}'""", "'null'"],
    "INTEGER[]": ["[1, NULL, 3]", "[]"],
    "VARCHAR[][]": ["[['a'], [], NULL]"],
    'STRUCT("a" INTEGER, "b c" VARCHAR)': ["{'a': 1, 'b c': NULL}", "{'a': NULL, 'b c': ''}"],
    "MAP(VARCHAR, INTEGER)": ["MAP {'a': 1, 'b': NULL}", "MAP {}"],
    'STRUCT("u" UUID, "d" DECIMAL(9,2))[]': ["[{'u': NULL, 'd': 1.25}]"],
}

REFUSED = {
    "HUGEINT": "int128",
    "UHUGEINT": "uint128",
    "INTERVAL": "interval",
    "TIME WITH TIME ZONE": "timetz",
    "VARIANT": "variant",
    "HUGEINT[]": "int128",
    "STRUCT(a INTERVAL)": "interval",
}


def through_ipc(batch: pa.RecordBatch) -> pa.Table:
    """As a packet travels: Arrow IPC bytes."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def arrived(window_batches: list[pa.RecordBatch], spelling: str) -> list[str]:
    """The values after IPC and a cast to the spelled type, by id, as DuckDB writes them."""
    table = pa.concat_tables(through_ipc(batch) for batch in window_batches)
    with duckdb.connect() as plain:
        plain.execute("SET TimeZone = 'UTC'")
        plain.register("arrived", table)
        plain.execute(f"CREATE TABLE t (id INTEGER, v {spelling})")
        plain.execute("INSERT INTO t SELECT id, v FROM arrived")
        return [row[0] for row in plain.execute("SELECT v::VARCHAR FROM t ORDER BY id").fetchall()]


@pytest.mark.parametrize("inlining", [0, 100])
def test_accepted_types_arrive_exactly(make_lake: MakeLake, inlining: int) -> None:
    """Source → Arrow IPC → a column of the reported type: the same values, by feed and by seed."""
    writer = make_lake(inlining=inlining)
    tables = {
        spelling: TableRead(TableName("main", f"t{n}"), ("id",), None) for n, spelling in enumerate(ACCEPTED)
    }
    writer.run(*(f"CREATE TABLE {t.name} (id INTEGER, v {spelling})" for spelling, t in tables.items()))
    created = Position(1, writer.head())
    expected = {}
    for spelling, table in tables.items():
        values = ", ".join(f"({n}, {value})" for n, value in enumerate([*ACCEPTED[spelling], "NULL"]))
        writer.run(f"INSERT INTO {table.name} VALUES {values}")
        rows = writer.rows(f"SELECT v::VARCHAR FROM {table.name} ORDER BY id")
        expected[spelling] = [row[0] for row in rows]
    writer.release()
    source = DuckLakeSource(writer.address, generation=1)
    head = source.observe().head
    changes = source.plan_window(
        {table.name: (table, created, frozenset({"mirror"})) for table in tables.values()},
        upto_max=head,
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
        parallelism=1,
    )
    seed = source.plan_seed(list(tables.values()), at=head, parallelism=1)
    for spelling, table in tables.items():
        for window in (changes, seed):
            assert window.schemas[table.name].columns[1].type == spelling
            tasks = [task for task in window.tasks if task.tables == (table.name,)]
            batches = [batch for task in tasks for _, batch in task.read()]
            assert arrived(batches, spelling) == expected[spelling], spelling


@pytest.mark.parametrize(("spelling", "named"), REFUSED.items())
def test_types_that_would_not_survive_are_refused(make_lake: MakeLake, spelling: str, named: str) -> None:
    """A clear fault that names column and type, never a value that is nearly right."""
    writer = make_lake()
    writer.run(f"CREATE TABLE t (id INTEGER, v {spelling})")
    writer.release()
    source = DuckLakeSource(writer.address, generation=1)
    with pytest.raises(TruecutError) as caught:
        source.describe(TABLE, at=source.observe().head)
    assert caught.value.fault.code == TYPE_UNSUPPORTED
    assert f"column v has the type {named}" in caught.value.fault.message


def test_hugeint_is_lost_by_the_lake_itself(make_lake: MakeLake) -> None:
    """The reason for refusing it: what is in Parquet is not what was inserted."""
    writer = make_lake(inlining=0)
    writer.run("CREATE TABLE t (id INTEGER, v HUGEINT)", "INSERT INTO t VALUES (1, 9007199254740993)")
    assert writer.rows("SELECT v FROM lake.t") != [(9007199254740993,)]


def test_names_of_all_kinds(make_lake: MakeLake) -> None:
    """Quotes, dots, blanks, and names that the extension or we use ourselves."""
    names = ['a"b', "c.d", "e f", "snapshot_id", "rowid", "filename", "place", "x0", "SELECT"]
    writer = make_lake(inlining=0)
    columns = ", ".join('"' + name.replace('"', '""') + '" INTEGER' for name in names)
    writer.run(f'CREATE TABLE "o.d""d" (id INTEGER, {columns})')
    table = TableRead(TableName("main", 'o.d"d'), ('a"b', "id"), "c.d")
    created = writer.head()
    writer.run(f'INSERT INTO "o.d""d" VALUES (1, {", ".join(str(n) for n in range(len(names)))})')
    writer.run('UPDATE "o.d""d" SET "rowid" = 40')
    writer.release()
    source = DuckLakeSource(writer.address, generation=1)
    head = source.observe().head
    window = source.plan_window(
        {table.name: (table, Position(1, created), frozenset({"append"}))},
        upto_max=head,
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
        parallelism=1,
    )
    seed = source.plan_seed([table], at=head, parallelism=4)
    rows = [
        {name: value for name, value in row.items() if name not in CONTROL_NAMES}
        for one in (window, seed)
        for task in one.tasks
        for _, batch in task.read()
        for row in batch.to_pylist()
    ]
    inserted = {"id": 1, **{name: n for n, name in enumerate(names)}}
    updated = {**inserted, "rowid": 40}
    assert rows == [inserted, updated, updated]


def test_a_reserved_name_is_refused(make_lake: MakeLake) -> None:
    """A column that begins with _truecut_ would meet our own."""
    writer = make_lake()
    writer.run("CREATE TABLE t (id INTEGER, _Truecut_op INTEGER)")
    writer.release()
    source = DuckLakeSource(writer.address, generation=1)
    with pytest.raises(TruecutError, match="reserved name"):
        source.describe(TABLE, at=source.observe().head)


def test_what_nobody_can_read_holds_its_table(make_lake: MakeLake) -> None:
    """Some nested values do not survive in a catalog. That is the table's own trouble, not the source's: it
    is not tried again and again, and the reason is told without a value."""
    writer = make_lake("sqlite:source.sqlite")
    writer.run(
        "CREATE TABLE t (id INTEGER, v STRUCT(d DATE))", "INSERT INTO t VALUES (1, {'d': '2026-01-02'})"
    )
    with pytest.raises(duckdb.ConversionException):
        writer.rows("SELECT * FROM lake.t")
    writer.rollback()
    writer.release()
    source = DuckLakeSource(writer.address, generation=1)
    window = source.plan_seed([TABLE], at=source.observe().head, parallelism=1)
    with pytest.raises(TruecutError) as caught:
        [list(task.read()) for task in window.tasks]
    assert (caught.value.fault.code, caught.value.fault.retry) == (UNREADABLE, Retry.NOT_RETRYABLE)
    assert "2026" not in str(caught.value)
