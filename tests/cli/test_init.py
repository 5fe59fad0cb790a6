"""`truecut init`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
import yaml

from tests.cli.commands import truecut
from tests.postgres_server import PostgresServer
from truecut.cli.init import pipeline_text
from truecut.config.beginning import Beginning, FoundTable
from truecut.config.finding import ConfigError
from truecut.config.kinds import SINKS
from truecut.config.load import load
from truecut.lake import LakeAddress, attach_sql, connect, lake_of, parse_address
from truecut.sources.ducklake.beginning import catalog_text


def text_for(path: Path, catalog: str, tables: list[FoundTable] | None) -> str:
    """The file that init would write for a lake with that catalog."""
    beginning = Beginning(f"type: ducklake\ncatalog: {catalog}\n", tables)
    example = SINKS["ducklake"].example
    return pipeline_text(path, beginning, sink=example("copy"), tenant_sink=example("lakes/{tenant}"))


def make_lake(catalog: str, base: Path, *statements: str) -> LakeAddress:
    """A real DuckLake."""
    address = parse_address(catalog, "./data", base=base)
    connection = connect()
    connection.execute(attach_sql(address, "lake", create=True))
    connection.execute("USE lake")
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return address


def test_without_a_dsn_the_file_is_right_as_it_is(tmp_path: Path) -> None:
    """The file it writes can be loaded, and its comments show what else there is."""
    result = truecut("init", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "wrote pipeline.yaml; next: truecut validate pipeline.yaml\n"
    pipeline = load(tmp_path / "pipeline.yaml", environ={})
    assert pipeline.name == "pipeline"
    assert [str(table.name) for table in pipeline.tables] == ["main.events"]
    text = (tmp_path / "pipeline.yaml").read_text()
    keys = ("route_by", "for_each", "batch", "lease", "existing", "on_gap", "certificate")
    assert all(f"{key}:" in text for key in keys)


def test_a_key_that_is_missing_is_the_next_step(tmp_path: Path) -> None:
    """A file that `validate` would refuse is not said to be ready."""
    make_lake("source.db", tmp_path, "CREATE TABLE plans (name VARCHAR)", "CREATE TABLE events (id INTEGER)")
    result = truecut("init", "--dsn", "source.db", cwd=tmp_path)
    told = "wrote pipeline.yaml; next: name the key of main.plans, then truecut validate pipeline.yaml\n"
    assert result.stderr == told


def test_what_the_comments_show_is_right(tmp_path: Path) -> None:
    """With every commented section switched on, the file is still right."""
    truecut("init", cwd=tmp_path)
    lines = (tmp_path / "pipeline.yaml").read_text().splitlines()
    sections = ("batch:", "certificate:", "lease:", "spark:")
    for_each = [
        line.replace("# ", "", 1)
        for line in lines[[x.strip() for x in lines].index('# - name: "t-{tenant}"') :][:6]
    ]
    switched = [
        line.replace("# ", "", 1) if line.strip("# ").startswith(sections) else line for line in lines
    ]
    place = next(i for i, line in enumerate(switched) if line.startswith("  batch:"))
    text = "\n".join([*switched[:place], *for_each, *switched[place:]])
    text = text.replace("key: [id]", "key: [id]\n      route_by: tenant")
    (tmp_path / "tenants.csv").write_text("tenant\na\n")
    (tmp_path / "on.yaml").write_text(text)
    pipeline = load(tmp_path / "on.yaml", environ={})
    assert [sink.name for sink in pipeline.sinks] == ["copy", "t-a"]
    assert pipeline.spark.master == "local[*]"
    assert pipeline.certificate is not None
    assert pipeline.certificate.path == tmp_path / "certificates"


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    """What is there stays."""
    (tmp_path / "mine.yaml").write_text("precious")
    result = truecut("init", "--output", "mine.yaml", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("TC1062 mine.yaml exists already")
    assert (tmp_path / "mine.yaml").read_text() == "precious"


def test_the_tables_of_a_lake_are_listed(tmp_path: Path) -> None:
    """Every table with its key where a column is named id; awkward names survive; views are left out."""
    make_lake(
        "sqlite:./source.sqlite",
        tmp_path,
        "CREATE TABLE main.events (tenant VARCHAR, id BIGINT)",
        'CREATE SCHEMA "odd: $x"',
        'CREATE TABLE "odd: $x"."no #1 ""q"" é" ("ID" INTEGER)',
        'CREATE TABLE main.keyless (a INTEGER, "b c" INTEGER)',
        'CREATE TABLE main."x*y" (id INTEGER)',
        "CREATE VIEW main.v AS SELECT 1 AS id",
        "CREATE SCHEMA _truecut",
        "CREATE TABLE _truecut.cursor (id INTEGER)",
    )
    (tmp_path / "sub").mkdir()
    result = truecut("init", "--dsn", "sqlite:./source.sqlite", "--output", "sub/p.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    written = yaml.safe_load((tmp_path / "sub" / "p.yaml").read_text())
    assert written["spec"]["tables"] == [
        {"name": "main.events", "key": ["id"]},
        {"name": "main.keyless", "key": []},
        {"name": 'odd: $$x.no #1 "q" é', "key": ["ID"]},
    ]
    validated = truecut("validate", "sub/p.yaml", cwd=tmp_path)
    assert validated.returncode == 2
    assert validated.stderr.count("\n") == 1
    assert "TC1046  tables.main.keyless.key: names no column" in validated.stderr
    text = (tmp_path / "sub" / "p.yaml").read_text()
    assert 'name the columns that identify a row; it has a, "b c"' in text
    (tmp_path / "sub" / "p.yaml").write_text(text.replace("key: []", "key: [a]"))
    pipeline = load(tmp_path / "sub" / "p.yaml", environ={})
    connection = connect()
    source = lake_of(pipeline.source.address)
    connection.execute(attach_sql(source, "lake", read_only=True))  # the path leads there
    names = connection.execute(
        "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE database_name = 'lake'"
    ).fetchall()
    assert {str(table.name) for table in pipeline.tables} <= {name for (name,) in names}


def test_an_empty_lake(tmp_path: Path) -> None:
    """The file says so and validate asks for tables."""
    path = tmp_path / "p.yaml"
    path.write_text(text_for(path, "./source.ducklake", []))
    with pytest.raises(ConfigError) as caught:
        load(path, environ={})
    assert [(f.path, f.message) for f in caught.value.findings] == [("tables", "must not be empty")]


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("source.ducklake", "/base/source.ducklake"),
        ("./deep/../source.ducklake", "/base/source.ducklake"),
        ("/else/where is it.ducklake", "/else/where is it.ducklake"),
        ("sqlite:a$b.sqlite", "/base/a$b.sqlite"),
    ],
)
def test_the_catalog_is_found_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str, expected: str
) -> None:
    """A path given relative to the working folder leads to the same place from the file's folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sub" / "p.yaml"
    path.parent.mkdir()
    path.write_text(text_for(path, catalog_text(dsn, folder=path.parent), None))
    target = Path(lake_of(load(path, environ={}).source.address).target.reveal())
    assert target.resolve() == Path(expected.replace("/base", str(tmp_path)))


def test_a_password_is_not_written_into_the_file(tmp_path: Path, postgres: PostgresServer) -> None:
    """A PostgreSQL catalog is taken from the environment; the message says which variable."""
    dsn = "postgres:" + postgres.create_database("init") + " password=geheim"
    make_lake(dsn, tmp_path, "CREATE TABLE main.events (id INTEGER)")
    result = truecut("init", "--dsn", dsn, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "SOURCE_CATALOG" in result.stderr
    text = (tmp_path / "pipeline.yaml").read_text()
    assert "geheim" not in text + result.stderr + result.stdout
    pipeline = load(tmp_path / "pipeline.yaml", environ={"SOURCE_CATALOG": dsn})
    assert lake_of(pipeline.source.address).target.reveal() == dsn.removeprefix("postgres:")
    assert [str(table.name) for table in pipeline.tables] == ["main.events"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--source", "mariadb"], 2, "TC1061 The source type is not available yet"),
        (["--sink", "kafka"], 2, "TC1061 The sink type is not available yet"),
        (["--sink", "geheim"], 2, "TC1061 There is no such sink type"),
        (["--dsn", "nope.ducklake"], 2, "TC1064 There is no catalog at duckdb:"),
        (["--dsn", "postgresql://u:geheim@127.0.0.1:1/d"], 3, "TC2100 the source's PostgreSQL cannot be"),
        (
            ["--dsn", "postgresql://h/d", "--source", "ducklake"],
            2,
            "write the path of a DuckDB file, sqlite:",
        ),
        (["--dsn", "postgres:host=127.0.0.1 port=1 password=geheim"], 3, "TC4005 "),
        (["--dsn", "plain.duckdb"], 2, "TC1065 There is a database at duckdb:"),
        (["--dsn", "notes.txt"], 2, "TC1065 There is a file at duckdb:"),
        (["--dsn", "people.csv"], 2, "TC1065 There is a file at duckdb:"),
        (["--dsn", "lite.db"], 2, "fix: Write `sqlite:` before its path."),
        (["--output", "nope/p.yaml"], 2, "TC1063 nope/p.yaml cannot be written"),
    ],
)
def test_wrong_input_writes_nothing(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    """A clear message, the right exit code, no file, no secret."""
    duckdb.connect(str(tmp_path / "plain.duckdb")).close()
    (tmp_path / "notes.txt").write_text("not a database, " * 1000)
    (tmp_path / "people.csv").write_text("id,name\n1,geheim\n")
    with closing(sqlite3.connect(tmp_path / "lite.db")) as lite:
        lite.execute("CREATE TABLE x (i)")
    there = sorted(path.name for path in tmp_path.iterdir())
    result = truecut("init", *arguments, cwd=tmp_path)
    assert result.returncode == code
    assert message in result.stderr
    assert "geheim" not in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == there
