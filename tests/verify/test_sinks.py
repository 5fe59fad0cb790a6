"""What a sink holds, and its cursor, against the certificate: real lakes, real PostgreSQL."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg.conninfo import make_conninfo

from tests.postgres_server import PostgresServer
from tests.verify import issuer
from tests.verify.at_sinks import ROW, TYPES, Case, DatabaseSink, LakeSink, Typed, a_row, numbers
from tests.verify.issuer import SECRET, UPDATE, Change, CopyOf, Json, World
from truecut_verify.digest import encode
from truecut_verify.documents import Copy
from truecut_verify.main import main
from truecut_verify.postgres import open_postgres
from truecut_verify.verdict import Fail, Unknown

CHEATS: dict[str, tuple[str, Json | None, Json]] = {
    "a row changed": ("UPDATE main.t SET v = 'other' WHERE id = 3", {"id": 3}, {"differs": 1}),
    "a row deleted": ("DELETE FROM main.t WHERE id = 3", None, {"missing": 1}),
    "a row added": ("INSERT INTO main.t (id) VALUES (3000000000)", {"id": 3000000000}, {"extra": 1}),
    "a row duplicated": ("INSERT INTO main.t SELECT * FROM main.t WHERE id = 2", {"id": 2}, {"differs": 1}),
    "a value swapped": (
        "UPDATE main.t SET v = CASE id WHEN 1 THEN 'xx' ELSE 'x' END WHERE id IN (1, 2)",
        None, {"differs": 2}),
    "keys swapped": ("UPDATE main.t SET id = 3 - id WHERE id IN (1, 2)", None, {"differs": 2}),
    "NULL for a value": ("UPDATE main.t SET v = NULL WHERE id = 3", {"id": 3}, {"differs": 1}),
    "empty for NULL": ("UPDATE main.t SET \"list\" = NULL WHERE id = 1", {"id": 1}, {"differs": 1}),
    "a trailing space": ("UPDATE main.t SET v = v || ' ' WHERE id = 3", {"id": 3}, {"differs": 1}),
    "-0.0": ("UPDATE main.t SET n = '-0.0' WHERE id = 3", {"id": 3}, {"differs": 1}),
    "a cent": ("UPDATE main.t SET amount = 1.51 WHERE id = 3", {"id": 3}, {"differs": 1}),
    "a microsecond": (
        "UPDATE main.t SET moment = moment + INTERVAL '1 microsecond' WHERE id = 3",
        {"id": 3}, {"differs": 1}),
    "a trailing zero byte": (
        "UPDATE main.t SET raw = raw || '\\x00'::BYTEA WHERE id = 3", {"id": 3}, {"differs": 1}),
    "an element that is NULL": (
        "UPDATE main.t SET \"list\" = ARRAY[1, 0, 3] WHERE id = 3", {"id": 3}, {"differs": 1}),
    "an element too many": (
        "UPDATE main.t SET \"list\" = ARRAY[1, NULL, 3, NULL] WHERE id = 3", {"id": 3}, {"differs": 1}),
    "no for yes": ("UPDATE main.t SET yes = NOT yes WHERE id = 3", {"id": 3}, {"differs": 1}),
    "a day": ("UPDATE main.t SET day = '1970-01-01' WHERE id = 3", {"id": 3}, {"differs": 1}),
    "another zone": (
        "UPDATE main.t SET moment = '2026-01-01 00:00:00+01' WHERE id = 3", {"id": 3}, {"differs": 1}),
    "a row beyond the largest key": (
        "INSERT INTO main.t (id) VALUES (9223372036854775807)", {"id": 9223372036854775807}, {"extra": 1}),
    "two errors that cancel in a sum": (
        "UPDATE main.t SET amount = amount + CASE id WHEN 1 THEN 0.5 ELSE -0.5 END WHERE id IN (1, 2)",
        None, {"differs": 2}),
    "all of it": ("DELETE FROM main.t", None, {"missing": 5}),
}  # fmt: skip


def test_a_copy_that_is_as_certified_passes(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when the cursor moved on without rows, and when another wrote elsewhere."""
    assert case.verify(capsys)[0] == 0
    case.move(at=issuer.position(9))
    code, found = case.verify(capsys)
    assert (code, found["frontier"]) == (0, issuer.position(9))


def test_what_was_changed_at_the_sink_is_named(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """One after another, each healed again: verdict, count and key."""
    for name, (sql, key, counts) in CHEATS.items():
        case.sink.run(sql)
        code, found = case.verify(capsys)
        assert (code, found["verdict"]) == (4, "fail"), name
        assert {one: found[one] for one in counts} == counts, (name, found)
        assert sum(found[one] for one in ("missing", "extra", "differs")) == sum(counts.values()), (
            name,
            found,
        )
        if key is not None:
            assert found["witness"]["key"] == key, name
        assert found["witness"]["at_sink"] in counts
        case.sink.each([("DELETE FROM main.t", ()), *((ROW, list(a_row(n).values())) for n in range(5))])
    assert case.verify(capsys)[0] == 0


def test_a_numeric_with_another_scale(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """A column that became wider is not of its form any more where it holds more digits."""
    if isinstance(case.sink, LakeSink):
        case.sink.run("ALTER TABLE main.t DROP COLUMN amount")
        case.sink.run("ALTER TABLE main.t ADD COLUMN amount DECIMAL(12,3)")
        case.sink.run("UPDATE main.t SET amount = 1.501")
    else:
        case.sink.run("ALTER TABLE main.t ALTER COLUMN amount TYPE numeric(12,3) USING 1.501")
    assert case.verify(capsys)[0] == 4


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("id", "DOUBLE PRECISION"),
        ("id", "VARCHAR"),
        ("n", "DECIMAL(5,1)"),
        ("amount", "DECIMAL(10,1)"),
        ("amount", "DECIMAL(12,3)"),
        ("amount", "DOUBLE PRECISION"),
        ("day", "TIMESTAMP"),
        ("list", "DOUBLE PRECISION[]"),
        ("yes", "VARCHAR"),
    ],
)
def test_a_column_of_another_type(
    case: Case, capsys: pytest.CaptureFixture[str], column: str, kind: str
) -> None:
    """Also where every value is the same as before, or looks so: 1.5 in what was a whole number is no 1."""
    if isinstance(case.sink, LakeSink):
        case.sink.run(
            f'CREATE TABLE main.u AS SELECT * REPLACE (CAST("{column}" AS {kind}) AS "{column}") FROM main.t'
        )
        case.sink.run("DROP TABLE main.t")
        case.sink.run("ALTER TABLE main.u RENAME TO t")
    else:
        case.sink.run(f'ALTER TABLE main.t ALTER COLUMN "{column}" TYPE {kind} USING "{column}"::{kind}')
    code, found = case.verify(capsys)
    assert (code, found["verdict"], found["witness"]) == (4, "fail", {"column": column})


def test_a_table_of_another_name_is_read_there(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """A sink may keep its tables in a schema of its own: they are read there, and one of the source's name
    that stands beside them is not looked at."""
    case.sink.each([("CREATE SCHEMA shop", ()), ("CREATE TABLE shop.t AS SELECT * FROM main.t", ())])
    case.sink.run("DELETE FROM main.t")
    assert case.verify(capsys)[0] == 4
    case.world.copies[0].called = "shop.t"
    case.world.certify()
    case.move()
    assert case.verify(capsys)[0] == 0
    case.sink.run("DELETE FROM shop.t WHERE id = 3")
    code, found = case.verify(capsys)
    assert (code, found["table"], found["missing"]) == (4, "main.t", 1)


def test_an_old_certificate_is_not_taken_for_new(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """The sink has gone on: unknown. It was set back: fail. It follows another chain: fail."""
    copy = case.world.copies[0]
    old = case.world.state("lake")
    case.world.changes(copy, [Change(8, 0, UPDATE, {**a_row(1), "v": "later"})], upto=8)
    case.move()
    code, found = case.verify(capsys)
    assert (code, found["verdict"]) == (5, "unknown")
    case.sink.run("UPDATE main.t SET v = 'later' WHERE id = 1")
    case.world.certify()
    assert case.verify(capsys)[0] == 0
    case.move(**json.loads(old)["copies"]["main.t"])
    code, found = case.verify(capsys)
    assert (code, found["witness"]["cursor"]) == (4, issuer.position(7))
    case.move()
    honest = case.world.previous
    case.world.previous = "0" * 64
    case.move()
    assert case.verify(capsys)[1]["witness"] == {"certificate_digest": "0" * 64}
    case.world.previous = honest
    case.move(source_identity="another server")
    assert case.verify(capsys)[0] == 4
    case.move(evidence="0" * 64)
    assert case.verify(capsys)[0] == 4


def test_a_chain_that_goes_on_elsewhere_is_not_passed(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """The sink has gone on, its evidence is here, its content is right; but its cursor names a certificate.
    One that has followed is found; one that is nowhere may be another chain's: unknown."""
    copy, world = case.world.copies[0], case.world
    case.sink.run("UPDATE main.t SET v = 'later' WHERE id = 1")
    at_first = json.loads(world.state("lake"))["certificate"]
    world.changes(copy, [Change(8, 0, UPDATE, {**a_row(1), "v": "later"})], upto=8)
    named_by_head(world)
    case.move()
    assert json.loads(world.state("lake"))["certificate"] == at_first
    code, found = case.verify(capsys)
    assert (code, "extended by 1 unsigned segments" in found["detail"]) == (0, True)
    fork = world.previous = "1" * 64
    case.move()
    code, found = case.verify(capsys)
    assert (code, found["verdict"], found["witness"]) == (5, "unknown", {"certificate_digest": fork})
    world.previous = at_first
    world.certify()
    case.move()
    first = Case(world, case.sink, case.folder)
    assert first.verify(capsys, upto="0000000001.json")[0] == 0  # the next one is here, and names it
    assert case.verify(capsys)[0] == 0


def named_by_head(world: World) -> None:
    """The last segment's file as the format names it: so that it is found from a cursor's head."""
    header = world.copies[0].pending[-1]
    (name,) = header["files"]
    table = pq.read_table(world.folder / name)
    about = {**{key: one for key, one in header.items() if key != "files"}, "rows": 0, "sha256": ""}
    head_before = _last_claim(world)["evidence"]
    told = {b"truecut.previous": head_before.encode(), b"truecut.about": issuer.canonical(about)}
    (world.folder / name).unlink()
    made = world.folder / "evidence/copy/made.parquet"
    made.parent.mkdir(exist_ok=True)
    pq.write_table(table.replace_schema_metadata(told), made)
    hashed = hashlib.sha256(hashlib.sha256(made.read_bytes()).digest()).hexdigest()
    bare = {key: one for key, one in header.items() if key != "files"} | {"sha256": hashed}
    head = hashlib.sha256(bytes.fromhex(head_before) + issuer.canonical(bare))
    made.rename(made.with_name(f"{head.hexdigest()}.parquet"))
    world.copies[0].head = head.digest()
    world.copies[0].pending[-1] = {**bare, "files": [f"evidence/copy/{head.hexdigest()}.parquet"]}


def _last_claim(world: World) -> Json:
    (last,) = pq.read_table(max(world.folder.glob("copies/*.parquet"))).to_pylist()
    return dict(last)


def test_a_certificate_that_was_trimmed_is_no_other_chain(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sink that was written last long ago names a certificate that is gone by now: its content decides."""
    long_ago = case.world.state("lake")
    case.world.bend_certificate = lambda value: {**value, "kept_from": max(1, value["number"] - 1)}
    for _ in range(3):
        case.world.certify()
    for path in sorted(case.world.folder.glob("*.json"))[:2]:
        path.unlink()
    assert json.loads(long_ago)["certificate"] != case.world.previous
    assert case.verify(capsys)[1]["verdict"] == "pass"
    case.sink.run("UPDATE main.t SET v = 'other' WHERE id = 3")
    assert case.verify(capsys)[1]["verdict"] == "fail"


def test_what_is_not_there_is_said(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """No column, no table, no cursor: fail. No server, another secret: unknown."""
    (case.folder / "secret").write_bytes(bytes(16))
    assert case.verify(capsys)[1]["verdict"] == "unknown"
    (case.folder / "secret").write_bytes(SECRET)
    case.sink.run("ALTER TABLE main.t DROP COLUMN v")
    assert case.verify(capsys)[1]["verdict"] == "fail"
    case.sink.run("DROP TABLE main.t")
    assert case.verify(capsys)[1]["verdict"] == "fail"
    case.sink.run("DROP TABLE _truecut.cursor")
    assert case.verify(capsys)[1]["verdict"] == "fail"
    case.sink = type(case.sink)(case.sink.dsn + "0")  # type: ignore[call-arg]
    assert case.verify(capsys)[1]["verdict"] == "unknown"


def test_without_evidence_the_root_still_tells(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """V5 needs the signed root; only to name the key it needs evidence."""
    (case.world.folder / "evidence/000001.parquet").unlink()
    code, found = case.verify(capsys)
    assert (code, found["verdict"]) == (5, "pass")
    case.sink.run("DELETE FROM main.t WHERE id = 3")
    code, found = case.verify(capsys)
    assert (code, found["verdict"], found["witness"]) == (4, "fail", None)


def test_a_lake_as_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """V4 at the certified version, also after the source went on; with V5 the copy equals the source."""
    source = LakeSink(f"ducklake:{tmp_path / 'source.catalog'}")
    columns = ", ".join(f'"{name}" {kind}' for name, _, _, _, kind in TYPES)
    source.run(f"CREATE TABLE main.t ({columns})")
    source.run(ROW, *a_row(1).values())
    (version,) = source.run("FROM ducklake_current_snapshot('lake')")[0]
    (identity,) = source.run("SELECT schema_uuid::VARCHAR FROM __ducklake_metadata_lake.ducklake_schema")[0]
    (tmp_path / "secret").write_bytes(SECRET)

    def v4(rows: list[Json], identity: str) -> Json:
        folder = tmp_path / str(next(numbers))
        world = World(folder, [Typed("main.t", "lake")], identity=identity)
        world.base(world.copies[0], rows, upto=version)
        world.certify()
        capsys.readouterr()
        main(["--secret", str(tmp_path / "secret"), "--source", source.dsn, "--json", str(folder)])
        (found,) = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["level"] == "V4"]
        return dict(found)

    source.run("UPDATE main.t SET v = 'later'")
    assert v4([a_row(1)], identity)["verdict"] == "pass"
    assert v4([a_row(1)], "another")["verdict"] == "fail"
    found = v4([{**a_row(1), "v": "other"}], identity)
    assert (found["verdict"], found["witness"]["key"]) == ("fail", {"id": 1})


def test_each_copy_of_a_lake_is_read_at_its_own_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever version the copy before it was at; a version that is not there yet is unknown. So is a part of
    a table by a route, unless the certificate names a column of texts that tells it; then the rows of other
    routes do not count, and those of its own do."""
    source = LakeSink(f"ducklake:{tmp_path / 'source.catalog'}")
    columns = ", ".join(f'"{name}" {kind}' for name, _, _, _, kind in TYPES)
    for table in ("a", "b"):
        source.run(f"CREATE TABLE main.{table} ({columns})")
        source.run(ROW.replace("main.t", f"main.{table}"), *a_row(1).values())
    (early,) = source.run("FROM ducklake_current_snapshot('lake')")[0]
    source.run("UPDATE main.b SET v = 'later'")
    (late,) = source.run("FROM ducklake_current_snapshot('lake')")[0]
    (identity,) = source.run("SELECT schema_uuid::VARCHAR FROM __ducklake_metadata_lake.ducklake_schema")[0]
    (tmp_path / "secret").write_bytes(SECRET)

    def v4(row: Json, upto: int, route: str | None = None, by: str | None = None) -> list[str]:
        folder = tmp_path / str(next(numbers))
        copies: list[CopyOf] = [Typed("main.a", "lake"), Typed("main.b", "lake")]
        world = World(folder, copies, identity=identity)
        world.base(copies[0], [a_row(1)], upto=early)
        world.base(copies[1], [row], upto=upto)
        copies[1].route, copies[1].route_by = route, by
        world.certify()
        capsys.readouterr()
        main(["--secret", str(tmp_path / "secret"), "--source", source.dsn, "--json", str(folder)])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return [one["verdict"] for one in checks if one["level"] == "V4"]

    later = {**a_row(1), "v": "later"}
    assert v4(later, late) == ["pass", "pass"]
    assert v4(a_row(1), late) == ["pass", "fail"]
    assert v4(later, late + 1) == ["pass", "unknown"]
    assert v4(later, late, route="acme") == ["pass", "unknown"]
    source.run(ROW.replace("main.t", "main.b"), *(a_row(2) | {"v": "beside"}).values())
    (last,) = source.run("FROM ducklake_current_snapshot('lake')")[0]
    assert v4(later, last) == ["pass", "fail"]
    assert v4(later, last, "later", "v") == ["pass", "pass"]
    assert v4(a_row(2) | {"v": "beside"}, last, "beside", "v") == ["pass", "pass"]
    assert v4(later, last, "beside", "v") == ["pass", "fail"]
    assert v4(later, last, "1", "id") == ["pass", "unknown"]


def test_a_postgres_as_source(
    tmp_path: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """V4 at an exported snapshot: pass where it has what is certified, also of one route; where it has not,
    and stands elsewhere in its log, nobody knows."""
    name = f"source_{next(numbers)}"
    source = DatabaseSink(postgres.create_database(name))
    columns = ", ".join(f'"{name}" {kind}' for name, _, _, _, kind in TYPES)
    source.run("CREATE SCHEMA main")
    source.run(f"CREATE TABLE main.t ({columns})")
    source.run(ROW, *a_row(1).values())
    (system,) = source.run("SELECT system_identifier::text FROM pg_control_system()")[0]
    (tmp_path / "secret").write_bytes(SECRET)
    world = World(tmp_path / "c", [Typed("main.t", "lake")], identity=f"{system}/{name}/slot/0/1")
    world.base(world.copies[0], [a_row(1)], upto=5)
    world.certify()

    def v4() -> Json:
        capsys.readouterr()
        main(["--secret", str(tmp_path / "secret"), "--source", source.dsn, "--json", str(world.folder)])
        (found,) = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["level"] == "V4"]
        return dict(found)

    assert v4()["verdict"] == "pass", v4()
    source.run(ROW, *(a_row(2) | {"v": "beside"}).values())
    assert v4()["verdict"] == "unknown"
    routed = Typed("main.t", "lake", route="beside", route_by="v")
    world = World(tmp_path / "routed", [routed], identity=f"{system}/{name}/slot/0/1")
    world.base(routed, [a_row(2) | {"v": "beside"}], upto=5)
    world.certify()
    assert v4()["verdict"] == "pass", v4()
    source.run("UPDATE main.t SET v = 'later'")
    assert v4()["verdict"] == "unknown"


@pytest.mark.parametrize("is_source", [True, False])
def test_a_read_that_fails_keeps_the_snapshot(
    tmp_path: Path, postgres: PostgresServer, is_source: bool
) -> None:
    """A table that is not there, one whose values are not of their form, and one that may not be read: what
    is read after them is still the content of the moment at which all began."""
    database = DatabaseSink(postgres.create_database(f"audited_{next(numbers)}"))
    database.run("CREATE SCHEMA main")
    for table, kind in (("t", "BIGINT"), ("odd", "TEXT"), ("secret", "BIGINT")):
        database.run(f"CREATE TABLE main.{table} (id {kind})")
        database.run(f"INSERT INTO main.{table} VALUES (1)")
    database.run("INSERT INTO main.odd SELECT 'no number' FROM generate_series(1, 20000)")
    reader_of = f"reader_{next(numbers)}"
    database.run(f"CREATE ROLE {reader_of} LOGIN REPLICATION")
    database.run(f"GRANT USAGE ON SCHEMA main TO {reader_of}")
    database.run(f"GRANT SELECT ON main.t, main.odd TO {reader_of}")
    dsn = make_conninfo(database.dsn, user=reader_of)

    def copy_of(table: str) -> Copy:
        given: Any = dict.fromkeys(field.name for field in fields(Copy))
        return Copy(**given | {"table": f"main.{table}", "columns": [("id", 1, "int")]})

    with open_postgres(dsn, is_source=is_source) as reader:
        database.run("UPDATE main.t SET id = 2")
        with pytest.raises(Fail):
            list(reader.rows(copy_of("nowhere")))
        with pytest.raises(Fail):
            list(reader.rows(copy_of("odd")))
        with pytest.raises(Unknown):
            list(reader.rows(copy_of("secret")))
        assert list(reader.rows(copy_of("t"))) == [[[(1).to_bytes(8, "big")]]]


@pytest.mark.parametrize("sink", ["postgres"], indirect=True)
def test_rows_that_a_policy_hides_are_not_known(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Not missing: whoever reads with few rights must not be told that the copy is wrong."""
    role = f"reader_{next(numbers)}"
    case.sink.each(
        [
            (f"CREATE ROLE {role} LOGIN", ()),
            (f"GRANT USAGE ON SCHEMA main, _truecut TO {role}", ()),
            (f"GRANT SELECT ON main.t, _truecut.cursor TO {role}", ()),
        ]
    )
    own, case.sink = case.sink, DatabaseSink(make_conninfo(case.sink.dsn, user=role))
    assert case.verify(capsys)[1]["verdict"] == "pass"
    own.run("ALTER TABLE main.t ENABLE ROW LEVEL SECURITY")
    own.run("CREATE POLICY few ON main.t USING (id < 3)")
    code, found = case.verify(capsys)
    assert (code, found["verdict"]) == (5, "unknown")


def test_blanks_in_arrays_are_kept(postgres: PostgresServer) -> None:
    """Values of `character(n)` have them at their ends; numbers and enumerations are as they were; an address
    has no mask that its own text has not."""
    database = DatabaseSink(postgres.create_database(f"audited_{next(numbers)}"))
    database.run("CREATE SCHEMA main")
    database.run("CREATE TYPE main.mood AS ENUM ('so so')")
    database.run("CREATE TABLE main.t (c character(3)[], v text[], m main.mood[], n int[], d numeric(5,2)[])")
    database.run("ALTER TABLE main.t ADD i inet[], ADD b box[]")
    database.run(
        "INSERT INTO main.t VALUES ('{a,NULL}', '{\"b \"}', '{so so}', '{7}', '{1.50}', '{10.0.0.1}', "
        "'{(1,1),(0,0)}')"
    )
    forms = {"c": "text", "v": "text", "m": "text", "n": "int", "d": "decimal:2", "i": "text", "b": "text"}
    columns = [(name, n, {"list": form}) for n, (name, form) in enumerate(forms.items())]
    given: Any = dict.fromkeys(field.name for field in fields(Copy))
    with open_postgres(database.dsn, is_source=False) as reader:
        (batch,) = reader.rows(Copy(**given | {"table": "main.t", "columns": columns}))
    values: list[pa.Scalar[Any]] = [
        pa.scalar(["a  ", None]),
        pa.scalar(["b "]),
        pa.scalar(["so so"]),
        pa.scalar([7]),
        pa.scalar([Decimal("1.50")]),
        pa.scalar(["10.0.0.1"]),
        pa.scalar(["(1,1),(0,0)"]),
    ]
    wanted = [[encode(value, form)] for value, (_, _, form) in zip(values, columns, strict=True)]
    assert batch == wanted
