"""A server that is read once more for verification: what it holds at one place; nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.errors import TruecutError
from truecut.model.table import TableName
from truecut.sources.contract import TableRead
from truecut.sources.postgres import reread as module
from truecut.sources.postgres.reread import ServerReread, reread

_numbers = count(1)
PLAIN, PARTED = "(id int PRIMARY KEY, n int)", "(id int PRIMARY KEY, n int) PARTITION BY RANGE (id)"
# What is done to a table while somebody waits to read it, and what is told of it then.
DONE: dict[str, tuple[str, str, str]] = {
    "dropped": (PLAIN, "DROP TABLE dropped", "TC7055"),
    "quiet": (PLAIN, "SELECT 1", ""),
    "written": (PLAIN, "UPDATE written SET n = -n; DELETE FROM written WHERE id < 9", ""),
    "wider": (PLAIN, "ALTER TABLE wider ADD more int DEFAULT 7", ""),
    "emptied": (PLAIN, "TRUNCATE emptied", "TC7055"),
    "retyped": (PLAIN, "ALTER TABLE retyped ALTER n TYPE bigint", "TC7055"),
    "packed": ("(id int, n int)", "VACUUM FULL packed", "TC7055"),
    "replaced": (PLAIN, f"ALTER TABLE replaced RENAME TO old; CREATE TABLE replaced {PLAIN}", "TC7055"),
    "parted": (PARTED, "SELECT 1", ""),
    "emptied_part": (PARTED, "TRUNCATE emptied_part_2", "TC7055"),
    "detached": (PARTED, "ALTER TABLE detached DETACH PARTITION detached_2", "TC7055"),
    "extended": (
        PARTED,
        "CREATE TABLE extended_3 PARTITION OF extended FOR VALUES FROM (100) TO (200)",
        "TC7055",
    ),
}
WHOLE = {(n, n) for n in range(1, 31)}


@pytest.fixture
def piped(postgres: PostgresServer, tmp_path: Path) -> Iterator[Piped]:
    name = f"again_{next(_numbers)}"
    conninfo = postgres.create_database(name)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for table, (what, _, _) in DONE.items():
            connection.execute(f"CREATE TABLE {table} {what}".encode())
            for number, low, high in ((1, 0, 15), (2, 15, 100)) if what == PARTED else ():
                part = f"PARTITION OF {table} FOR VALUES FROM ({low}) TO ({high})"
                connection.execute(f"CREATE TABLE {table}_{number} {part}".encode())
            connection.execute(f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 30) i".encode())
    found = Piped(tmp_path, conninfo, pipeline_document(name, conninfo, [{"name": "public.*"}]))
    found.capture()
    yield found
    found.close()


def rows(again: ServerReread, table: str) -> set[tuple[int, int]] | str:
    """Or the code of what keeps them from being told."""
    read = TableRead(TableName("public", table), () if table == "packed" else ("id",), None)
    try:
        window = again.plan(read, at=again.frontier, parallelism=2)
        found = [one for task in window.tasks for _, batch in task.read() for one in batch.to_pylist()]
    except TruecutError as error:
        return error.fault.code
    assert len(found) == len({one["id"] for one in found})
    return {(one["id"], one["n"]) for one in found}


def test_nobody_waits_and_nothing_wrong_is_told(piped: Piped) -> None:
    """While a place is held, a TRUNCATE and an ALTER go through at once. Each table is read as it was there,
    or it is told that its rows of then are gone: they are never taken for rows that are missing."""
    with reread(piped.pipeline().source, generation=1) as again, piped.connect() as connection:
        connection.execute("SET lock_timeout = '5s'")
        for _, statements, _ in DONE.values():
            for one in statements.split("; "):
                connection.execute(one.encode())
        told = {name: rows(again, name) for name in DONE}
    assert told == {name: code or WHOLE for name, (_, _, code) in DONE.items()}


def test_a_table_that_is_held_is_not_waited_for(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and read when it is free again."""
    monkeypatch.setattr(module, "LOCK_S", 1)
    with reread(piped.pipeline().source, generation=1) as again:
        with piped.connect() as connection, connection.transaction():
            connection.execute("LOCK TABLE written")
            assert rows(again, "written") == "TC2160"
        assert rows(again, "written") == WHOLE


def test_a_transaction_that_stays_open_is_left(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and no slot that keeps the server's log is left behind while it is open."""
    monkeypatch.setattr(module, "SLOT_S", 1)
    with piped.connect() as connection, connection.transaction():
        connection.execute("UPDATE written SET n = 0")
        with pytest.raises(TruecutError) as told, reread(piped.pipeline().source, generation=1):
            pass
        assert told.value.fault.code == "TC7056"
        left = "SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'truecut_reread%'"
        deadline = time.monotonic() + PATIENCE_S
        while connection.execute(left).fetchall():  # gone with its session, a moment later
            assert time.monotonic() < deadline
            time.sleep(0.05)
