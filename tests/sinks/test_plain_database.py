"""A sink's catalog that is somebody's own database."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from tests.postgres_server import PostgresServer
from truecut.config.settings import SinkSettings
from truecut.errors import Retry
from truecut.lake import parse_address
from truecut.sinks.registry import look_at_sinks, open_sink

MAKE = ("CREATE TABLE own (i INTEGER)", "INSERT INTO own VALUES (7)")


def _make_duckdb(path: Path) -> None:
    with closing(duckdb.connect(str(path))) as own:
        for statement in MAKE:
            own.execute(statement)


def _make_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as own:
        for statement in MAKE:
            own.execute(statement)
        own.commit()


def _sink(catalog: str, folder: Path) -> SinkSettings:
    return SinkSettings(
        name="lake",
        type="ducklake",
        address=parse_address(catalog, "data", base=folder),
        route=None,
        existing="refuse",
        modes={},
    )


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_database_file_with_tables_of_its_own_is_refused_and_left_as_it_is(
    kind: str, tmp_path: Path
) -> None:
    """By a look at it and by whoever takes it over: no table of a lake is made in it, not a byte changes."""
    (_make_duckdb if kind == "duckdb" else _make_sqlite)(tmp_path / "plain.db")
    sink = _sink("plain.db" if kind == "duckdb" else "sqlite:plain.db", tmp_path)
    before = hashlib.sha256((tmp_path / "plain.db").read_bytes()).hexdigest()
    look = look_at_sinks([sink], pipeline="p")["lake"]
    receipt = open_sink(sink, pipeline="p").recover(epoch=1, token=1)
    for fault in (look.fault, receipt.fault):
        assert fault is not None
        assert (fault.code, fault.retry) == ("TC4014", Retry.NOT_RETRYABLE)
    assert hashlib.sha256((tmp_path / "plain.db").read_bytes()).hexdigest() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["plain.db"]


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_database_file_with_nothing_in_it_becomes_a_lake(kind: str, tmp_path: Path) -> None:
    """It is nobody's; and it is taken over once more as the lake that it is then."""
    if kind == "duckdb":
        duckdb.connect(str(tmp_path / "empty.db")).close()
    else:
        (tmp_path / "empty.db").touch()
    sink = _sink("empty.db" if kind == "duckdb" else "sqlite:empty.db", tmp_path)
    look = look_at_sinks([sink], pipeline="p")["lake"]
    assert (look.fault, look.missing[0][0]) == (None, "catalog")
    for token in (1, 2):
        receipt = open_sink(sink, pipeline="p").recover(epoch=token, token=token)
        assert receipt.fault is None
    assert look_at_sinks([sink], pipeline="p")["lake"].fault is None


def test_a_lake_may_stand_beside_others_in_a_servers_database(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """There that is usual; what was there stays."""
    conninfo = postgres.create_database("beside")
    for statement in MAKE:
        postgres.psql(statement, database="beside")
    sink = _sink(f"postgres:{conninfo}", tmp_path)
    assert look_at_sinks([sink], pipeline="p")["lake"].fault is None
    assert open_sink(sink, pipeline="p").recover(epoch=1, token=1).fault is None
    assert postgres.psql("SELECT i FROM own", database="beside") == "7"


def test_no_other_lake_is_asked(tmp_path: Path) -> None:
    """One that is kept attached, and whose file is gone since, keeps no other from being taken over."""
    (tmp_path / "gone").mkdir()
    gone, kept = _sink("sqlite:gone.db", tmp_path / "gone"), _sink("kept.db", tmp_path)
    assert open_sink(gone, pipeline="p").recover(epoch=1, token=1).fault is None
    assert open_sink(kept, pipeline="p").recover(epoch=1, token=1).fault is None
    shutil.rmtree(tmp_path / "gone")
    assert open_sink(kept, pipeline="p").recover(epoch=2, token=2).fault is None
