"""A catalog that was restored from a backup is read as it is, whatever this process remembers of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.sinks.conftest import MakeLake
from tests.sinks.world import (
    ITEMS,
    applied,
    changes,
    cursor_of,
    order,
    packets,
    position,
    read,
    rows,
    seed,
    sink,
    tenant,
)
from truecut.lake import LakeAddress
from truecut.model.change import INSERT, READ
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet

Restore = Callable[[], None]
WIDER = TableSchema("7", (*ITEMS.columns, Column(3, "extra", "INTEGER")))


def _backup_sqlite(address: LakeAddress, folder: Path) -> Restore:
    """By SQLite's own backup, into the same file: whoever has it open goes on with it."""
    path, kept = address.target.reveal(), str(folder / "kept.db")

    def copy(source: str, target: str) -> None:
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)

    copy(path, kept)
    return lambda: copy(kept, path)


def _backup_file(address: LakeAddress, folder: Path) -> Restore:
    """Another file of the same name: whoever has the old one open writes to nowhere."""
    path, kept = address.target.reveal(), str(folder / "kept.db")
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(kept)) as other:
        one.backup(other)

    def restore() -> None:
        for extra in ("-wal", "-shm"):
            Path(f"{path}{extra}").unlink(missing_ok=True)
        os.replace(shutil.copy(kept, f"{kept}.copy"), path)

    return restore


def _backup_duckdb(address: LakeAddress, folder: Path) -> Restore:
    """Nobody has it open between two calls: a copy, put back under its name."""
    path, kept = address.target.reveal(), str(folder / "kept.db")
    assert not Path(f"{path}.wal").exists()
    shutil.copy(path, kept)
    return lambda: os.replace(kept, path)


FILES = {"sqlite": _backup_sqlite, "file": _backup_file, "duckdb": _backup_duckdb}


def _backup_postgres(server: PostgresServer, address: LakeAddress) -> Restore:
    """As `pg_restore --clean` does it: other tables of the same names; connections stay."""
    database = next(w for w in address.target.reveal().split() if w.startswith("dbname="))[len("dbname=") :]
    loop = (
        "DO $$ DECLARE t text; BEGIN FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '{}' "
        "LOOP EXECUTE format('{}', t, t); END LOOP; END $$"
    )
    keep = loop.format("public", "CREATE TABLE kept.%I (LIKE public.%I INCLUDING ALL)")
    fill = loop.format("public", "INSERT INTO kept.%I TABLE public.%I")
    back = loop.format("kept", "CREATE TABLE public.%I (LIKE kept.%I INCLUDING ALL)")
    refill = loop.format("kept", "INSERT INTO public.%I TABLE kept.%I")
    clear = loop.format("public", "DROP TABLE public.%I")
    server.psql(f"CREATE SCHEMA kept; {keep}; {fill}", database=database)
    return lambda: _done(server.psql(f"{clear}; {back}; {refill}", database=database))


def _done(_: object) -> None:
    return None


def _wider() -> Iterator[Packet]:
    return iter([Packet("main.items", rows([(INSERT, 5, 2, "b", 3)], WIDER))])


@pytest.mark.parametrize("how", [*FILES, "postgres"])
def test_a_restored_catalog_is_read_again(
    how: str, make_lake: MakeLake, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Also when it has come to the same snapshot number by another way: the number does not name it."""
    address = make_lake("sqlite" if how == "file" else how)
    acme = sink(address)
    applied(acme.recover(epoch=1, token=1))
    applied(acme.apply(order(None, 4, items=seed()), packets(items=[(READ, 4, 1, "a")])))
    restore = _backup_postgres(postgres, address) if how == "postgres" else FILES[how](address, tmp_path)
    wider = order(4, 5, items=changes(schema=WIDER))
    applied(acme.apply(wider, _wider()))
    restore()
    tenant(address, "CREATE TABLE lake.main.mine (i INTEGER)")  # as many commits as were lost
    known = applied(acme.recover(epoch=2, token=1)).cursor
    assert known is not None
    assert known.position == position(4)
    applied(acme.apply(wider, _wider()))
    assert read(address, "items") == [(1, "a", None), (2, "b", 3)]
    assert cursor_of(address) == (str(position(5)), 1)
