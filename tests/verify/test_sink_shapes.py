"""What is not the copy though its values look so: other columns, other tables, functions of somebody else."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.postgres_server import PostgresServer
from tests.verify import issuer
from tests.verify.at_sinks import Case, DatabaseSink, LakeSink, Sink, Typed, a_row, certified, numbers
from tests.verify.issuer import CopyOf, World
from truecut_verify.documents import Copy
from truecut_verify.main import main
from truecut_verify.postgres import open_postgres
from truecut_verify.verdict import Unknown

UUID = "00112233-4455-6677-8899-aabbccddeeff"
SERVER = pytest.mark.parametrize("sink", ["postgres"], indirect=True)
Columns = list[tuple[str, int, Any, pa.DataType]]


@pytest.fixture
def lake(tmp_path: Path) -> LakeSink:
    """An empty one."""
    return LakeSink(f"ducklake:{tmp_path / 'lake.catalog'}")


class Shaped(CopyOf):
    """With columns of one's own."""

    shape: Columns

    @property
    def columns(self) -> Columns:
        return self.shape


def shaped(
    sink: Sink, folder: Path, columns: str, shape: Columns, row: issuer.Json, *, values: str = ""
) -> Case:
    """One row, certified, and at the sink."""
    copy = Shaped("main.t", "lake")
    copy.shape = shape
    world = World(folder / "certificates", [copy])
    world.base(copy, [row], upto=7)
    insert = (
        f"INSERT INTO main.t VALUES ({values or ', '.join('?' * len(row))})",
        () if values else [*row.values()],
    )
    return certified(world, sink, folder, columns, [insert])


def made_anew(case: Case, columns: str, values: str) -> None:
    """The table, by somebody else."""
    case.sink.each(
        [
            ("DROP TABLE main.t", ()),
            (f"CREATE TABLE main.t ({columns})", ()),
            (f"INSERT INTO main.t VALUES ({values})", ()),
        ]
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("VARCHAR", "'hello'"),
        ("VARCHAR", f"'{UUID}'"),
        ("VARCHAR", f"'{UUID.replace('-', '').upper()}'"),
        ("BLOB", "unhex('00112233445566778899aabbccddeeff')"),
    ],
)
def test_a_uuid_is_no_text(
    lake: LakeSink, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, value: str
) -> None:
    """A column of uuids that became one of texts or bytes fails, whatever stands in it; nothing crashes."""
    shape: Columns = [("id", 1, "int", pa.int64()), ("u", 2, "uuid", pa.string())]
    case = shaped(lake, tmp_path, "id BIGINT, u UUID", shape, {"id": 1, "u": UUID})
    assert case.verify(capsys)[0] == 0
    made_anew(case, f"id BIGINT, u {kind}", f"1, {value}")
    code, found = case.verify(capsys)
    assert (code, found["verdict"], found["witness"]) == (4, "fail", {"column": "u"})


@pytest.mark.parametrize("fields", ["c INTEGER, b INTEGER", "b INTEGER, a INTEGER", "a INTEGER"])
def test_fields_of_another_name(
    lake: LakeSink, tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: str
) -> None:
    """A struct's fields renamed, swapped or taken away: digests go by their order, so their names must be
    those that are certified."""
    form = {"struct": [["a", "int"], ["b", "int"]]}
    kind = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    shape: Columns = [("id", 1, "int", pa.int64()), ("s", 2, {"list": form}, pa.list_(kind))]
    row = {"id": 1, "s": [{"a": 1, "b": 2}]}
    case = shaped(
        lake,
        tmp_path,
        "id BIGINT, s STRUCT(a INTEGER, b INTEGER)[]",
        shape,
        row,
        values="1, [{'a': 1, 'b': 2}]",
    )
    assert case.verify(capsys)[0] == 0
    names = [one.split()[0] for one in fields.split(", ")]
    told = ", ".join(f"'{name}': {n + 1}" for n, name in enumerate(names))
    made_anew(case, f"id BIGINT, s STRUCT({fields})[]", f"1, [{{{told}}}]")
    code, found = case.verify(capsys)
    assert (code, found["verdict"], found["witness"]) == (4, "fail", {"column": "s"})


@pytest.mark.parametrize(
    ("kind", "form", "value"), [("BOOLEAN", "bool", False), ("BLOB", "bytes", b"\0"), ("BIGINT", "int", 7)]
)
def test_no_key_is_null(
    lake: LakeSink, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, form: str, value: Any
) -> None:
    """NULL has no bytes that could be taken for those of a key."""
    shape: Columns = [("id", 1, form, pa.scalar(value).type), ("v", 2, "text", pa.string())]
    case = shaped(lake, tmp_path, f"id {kind}, v VARCHAR", shape, {"id": value, "v": "x"})
    assert case.verify(capsys)[0] == 0
    case.sink.run("UPDATE main.t SET id = NULL")
    code, found = case.verify(capsys)
    assert (code, found["verdict"], found["witness"]) == (4, "fail", {"column": "id"})


def test_a_value_that_cannot_be_told_names_its_row(
    lake: LakeSink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One value of many that no form has room for: a failure with its column and key."""
    shape: Columns = [("id", 1, "int", pa.int64()), ("d", 2, "decimal:0", pa.decimal128(38, 0))]
    case = shaped(lake, tmp_path, "id BIGINT, d DECIMAL(38,0)", shape, {"id": 1, "d": 5})
    assert case.verify(capsys)[0] == 0
    made_anew(case, "id BIGINT, d HUGEINT", "1, 5")
    code, found = case.verify(capsys)
    assert (code, found["verdict"], found["witness"]) == (4, "fail", {"column": "d"})


def test_wide_numbers_and_truths_are_told_as_they_are(
    lake: LakeSink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole numbers of sixteen bytes, with and without a sign, booleans and uuids, also within others."""
    kinds = {"h": "HUGEINT", "b": "BOOLEAN[]", "u": "UUID[]"}
    shape: Columns = [
        ("id", 1, "int", pa.int64()),
        ("h", 2, "int", pa.decimal128(38, 0)),
        ("b", 3, {"list": "bool"}, pa.list_(pa.bool_())),
        ("u", 4, {"list": "uuid"}, pa.list_(pa.string())),
    ]
    row = {"id": 1, "h": -(2**70), "b": [True, None, False], "u": [UUID, None]}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    values = f"1, -{2**70}, [true, NULL, false], ['{UUID}', NULL]"
    case = shaped(lake, tmp_path, f"id BIGINT, {columns}", shape, row, values=values)
    assert case.verify(capsys)[0] == 0, case.verify(capsys)


def test_what_is_no_table_is_not_the_copy(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """A view that shows what is certified, while the table is somewhere else or gone."""
    case.sink.run("ALTER TABLE main.t RENAME TO hidden")
    case.sink.run("CREATE VIEW main.t AS SELECT * FROM main.hidden")
    code, found = case.verify(capsys)
    assert (code, found["verdict"]) == (4, "fail"), found


@SERVER
def test_functions_of_somebody_else_are_not_asked(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever owns the database may say where names are looked up: the reader does not follow."""
    assert isinstance(case.sink, DatabaseSink)
    case.sink.run("UPDATE main.t SET v = 'other' WHERE id = 3")
    case.sink.run("CREATE SCHEMA evil")
    body = "SELECT CASE $1 WHEN 'other' THEN 'xxx' ELSE $1 END"
    case.sink.run(f"CREATE FUNCTION evil.concat(text) RETURNS text LANGUAGE sql AS $${body}$$")
    case.sink.run(
        "CREATE FUNCTION evil.concat(varchar) RETURNS text LANGUAGE sql AS $$SELECT evil.concat($1::text)$$"
    )
    (name,) = case.sink.run("SELECT current_database()")[0]
    case.sink.run(f'ALTER DATABASE "{name}" SET search_path = evil, pg_catalog')
    code, found = case.verify(capsys)
    assert (code, found["witness"]["key"]) == (4, {"id": 3})


def test_texts_do_not_depend_on_where_names_are_looked_up(postgres: PostgresServer) -> None:
    """A `regclass` is shown with its schema, whatever the reader's role or the database prefers."""
    database = DatabaseSink(postgres.create_database(f"audited_{next(numbers)}"))
    database.run("CREATE TABLE t (c regclass)")
    database.run("INSERT INTO t VALUES ('public.t')")
    copy = a_copy("public.t", (("c", 1, "text"),))
    with open_postgres(database.dsn, is_source=False) as reader:
        assert list(reader.rows(copy)) == [[[b"public.t"]]]


def a_copy(table: str, columns: tuple[tuple[str, int, Any], ...]) -> Copy:
    """As a certificate would tell it."""
    given: Any = dict.fromkeys(field.name for field in fields(Copy))
    return Copy(**given | {"table": table, "columns": columns, "key": ()})


def test_a_copy_that_is_of_the_pipeline_no_more_is_not_asked_for(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table is taken out of the pipeline and dropped at the sink, the other goes on: a pass."""
    world = case.world
    retired = Typed("main.u", "lake")
    world.copies.append(retired)
    world.base(retired, [a_row(1)], upto=7)
    world.certify()
    world.copies.remove(retired)
    world.certify()
    case.move()
    capsys.readouterr()
    arguments = ["--secret", str(tmp_path / "secret"), "--sink", case.sink.dsn, "--json", str(world.folder)]
    code, checks = main(arguments), json.loads(capsys.readouterr().out)["checks"]
    assert [(one["table"], one["verdict"]) for one in checks if one["level"] == "V5"] == [("main.t", "pass")]
    assert code == 0
    source = main(
        ["--secret", str(tmp_path / "secret"), "--source", case.sink.dsn, "--json", str(world.folder)]
    )
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert source in (4, 5)
    assert {one["table"] for one in checks if one["level"] == "V4"} == {"main.t"}


def test_truncated_after_the_snapshot_is_not_missing(postgres: PostgresServer) -> None:
    """A run that empties or rewrites the copy while it is read has not lost its rows."""
    database = DatabaseSink(postgres.create_database(f"audited_{next(numbers)}"))
    database.run("CREATE TABLE t (v text)")
    database.run("INSERT INTO t VALUES ('a')")
    with open_postgres(database.dsn, is_source=False) as reader:
        database.run("TRUNCATE t")
        with pytest.raises(Unknown, match="truncated, rewritten"):
            list(reader.rows(a_copy("public.t", (("v", 1, "text"),))))
