"""Columns of a live PostgreSQL that change under `truecut run`: what can be followed is at the sinks, as
their own clients tell it; what cannot stops that table alone, until somebody says how to go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.e2e.process import Process, run, running, started, truecut
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer, dropped_slots
from tests.sources.postgres.piped import pipeline_document
from tests.sources.postgres.processes import place

MADE = (
    "CREATE TABLE forms (id int PRIMARY KEY, b text, c varchar(9), d numeric(8,2), gone int, big text)",
    "ALTER TABLE forms ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE calm (id int PRIMARY KEY, n int)",
    "INSERT INTO forms SELECT i, 'b' || i, 'c', i / 4.0, i, repeat(md5(i::text), 99)"
    " FROM generate_series(1, 40) i",
    "INSERT INTO calm SELECT i, 0 FROM generate_series(1, 40) i",
)
# One after another, each followed by rows; none of them rewrites the table.
CHANGES = (
    "ALTER TABLE forms ADD COLUMN e int",
    "ALTER TABLE forms ADD COLUMN f text DEFAULT 'it''s'",
    "ALTER TABLE forms ALTER c TYPE varchar(90), ALTER d TYPE numeric(12,2)",
    "ALTER TABLE forms DROP COLUMN gone",
    "ALTER TABLE forms ALTER c TYPE text",
)
COLUMNS = "id, b, c, d, big, e, f"


class Forms:
    """The source, and a world around it."""

    def __init__(self, folder: Path, postgres: PostgresServer, source: str, target: str) -> None:
        self.source, self.target, self.postgres = source, target, postgres
        self.dsn, out = postgres.create_database(source), postgres.create_database(target)
        self.rounds = 0
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in MADE:
                connection.execute(statement.encode())
        sinks = [
            {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "./lake-data"},
            {"name": "warehouse", "type": "postgres", "dsn": out, "schema": "shop"},
            {"name": "log", "type": "postgres", "dsn": out, "schema": "log", "mode": "append"},
        ]
        tables = [{"name": "public.forms"}, {"name": "public.calm"}]
        document = pipeline_document(source, self.dsn, tables, sinks=sinks, lease={"duration": "5s"})
        document["spec"] |= {"batch": {"interval": "100ms"}, "state": "./state"}
        self.world = World(folder, None, document)
        self.world.save()

    def do(self, *statements: str) -> None:
        """One transaction each."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self) -> None:
        """Some that come, change, move and go; large values are not sent with most of them."""
        self.rounds += 1
        n = self.rounds
        self.do(
            f"INSERT INTO forms (id, b, c, d) VALUES ({1000 + n}, 'new', 'c{n}', {n})",
            f"UPDATE forms SET b = 'b{n}' WHERE id % 5 = {n % 5}",
            f"UPDATE forms SET id = id + 10000 WHERE id = {n}",
            f"DELETE FROM forms WHERE id = {30 + n}",
            f"UPDATE calm SET n = {n}",
        )

    def texts(self, table: str, columns: str, *, database: str | None = None) -> str:
        asked = f"SELECT ROW({columns})::text FROM {table} ORDER BY id"
        return self.postgres.psql(asked, database=database or self.source)

    def arrived(self, table: str, columns: str) -> bool:
        """Whether the warehouse has what the source has now."""
        return self.texts(f"shop.{table}", columns, database=self.target) == self.texts(table, columns)

    def wait_for(self, process: Process, table: str, columns: str) -> None:
        def there() -> bool:
            assert not process.is_dead()
            try:
                return self.arrived(table, columns)
            except RuntimeError:  # the table, or the column, is not there yet
                return False

        eventually(there, what=f"{table} is followed")

    def assert_exact(self, table: str, columns: str) -> None:
        """In the lake, too."""
        assert self.arrived(table, columns)
        assert self.in_lake(table, columns)

    def in_lake(self, table: str, columns: str) -> bool:
        """Whether the lake has what the source has now."""
        with psycopg.connect(self.dsn) as source:
            expected = source.execute(f"SELECT {columns} FROM {table} ORDER BY id".encode()).fetchall()
        try:
            found = self.world.sink_rows("lake", f"SELECT {columns} FROM lake.public.{table} ORDER BY id")
        except duckdb.Error:  # the column is not there yet
            return False
        return list(map(repr, found)) == list(map(repr, expected))

    def states(self) -> dict[tuple[str, str], tuple[str, str | None]]:
        """For each table and sink, its copy's state and why."""
        told = json.loads(truecut("status", self.world.file, "--json").stdout)
        return {
            (one["table"].removeprefix("public."), one["sink"]): (
                one["state"],
                (one["error"] or {}).get("code"),
            )
            for one in told["copies"]
        }


@pytest.fixture
def forms(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Iterator[Forms]:
    name = request.function.__name__.removeprefix("test_columns_")
    made = Forms(tmp_path, postgres, name, f"{name}_to")
    with dropped_slots(made.dsn):
        yield made


def test_columns_change_under_a_run(forms: Forms) -> None:
    """Added with a default and without, widened, dropped, made text: every sink follows, while rows come, in
    one run."""
    with running(forms.world) as process:
        forms.wait_for(process, "forms", "id, b, c, d, big")
        for change in CHANGES[:4]:
            forms.do(change)
            forms.rows()
        forms.wait_for(process, "forms", COLUMNS)  # a column that changes twice unseen is held
        forms.do(CHANGES[4])
        forms.rows()
        forms.wait_for(process, "forms", COLUMNS)
        forms.wait_for(process, "calm", "id, n")
        eventually(lambda: forms.in_lake("forms", COLUMNS), what="the lake follows")
        eventually(lambda: forms.in_lake("calm", "id, n"), what="the lake follows")
        stopped = process.stop()
        assert stopped.code == 0, stopped.stderr
    forms.assert_exact("forms", COLUMNS)
    forms.assert_exact("calm", "id, n")


@pytest.mark.soak
def test_columns_change_while_it_is_killed_and_away(forms: Forms) -> None:
    """Added, with a default and without, widened, dropped: all sinks follow while rows come. Killed, more of
    it is captured by nobody but `truecut capture`, and more of it by nobody at all: the next run reads each
    row with the columns of its place. What cannot be followed stops that table alone, `resume` goes on."""
    world = forms.world
    with running(world) as process:
        forms.wait_for(process, "calm", "id, n")
        forms.wait_for(process, "forms", "id, b, c, d, big")
        for change in CHANGES[:2]:
            forms.do(change)
            forms.rows()
        forms.wait_for(process, "forms", COLUMNS)
        process.kill()
    with started("capture", world.file) as capture:
        for change in CHANGES[2:4]:
            forms.rows()
            forms.do(change)
            forms.rows()
        wait_until_captured(forms)
        assert capture.stop().code == 0
    forms.rows()
    forms.do(CHANGES[4])
    forms.rows()
    with running(world) as process:
        forms.wait_for(process, "forms", COLUMNS)
        forms.wait_for(process, "calm", "id, n")
        with psycopg.connect(forms.dsn) as connection:  # what its rows became, nobody is told
            connection.execute("UPDATE forms SET b = 'lost'")
            connection.execute("ALTER TABLE forms ALTER d TYPE numeric(14,2)")
            connection.execute("UPDATE forms SET b = 'found' WHERE id = 12")
        sinks = ("lake", "warehouse", "log")
        held = {("forms", sink): ("failed", "TC3052") for sink in sinks}
        eventually(lambda: held.items() <= forms.states().items(), what="it is held, with the reason")
        forms.rows()
        forms.wait_for(process, "calm", "id, n")
        assert {forms.states()["calm", sink] for sink in sinks} == {("streaming", None)}
        asked = truecut("resume", world.file, "--table", "public.forms")
        assert asked.code == 0, asked.stderr
        forms.wait_for(process, "forms", COLUMNS)
        assert process.stop().code == 0
    finished = run(world, "--until-caught-up")
    assert finished.code == 0, finished.stderr
    forms.assert_exact("forms", COLUMNS)
    forms.assert_exact("calm", "id, n")


def wait_until_captured(forms: Forms) -> None:
    """Until the journal has what has committed by now."""
    with psycopg.connect(forms.dsn) as connection:
        upto = place(connection)
    eventually(lambda: _head(forms.world) >= upto, what="it is captured")


def _head(world: World) -> int:
    told = json.loads(truecut("status", world.file, "--json").stdout)
    return int(told["source"]["head"].partition("-")[2], 16)
