"""A PostgreSQL whose disk fills up under an order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

from tests.cli.tiny_disk import TinyDisk, tiny_disk
from tests.e2e.world import eventually
from tests.postgres_server import ROOMY, PostgresServer, postgres_server
from tests.sinks.database import cursor_of, places_of, read, sink
from truecut.config.secret import Secret
from truecut.errors import Retry
from truecut.model.change import INSERT, READ, UPDATE
from truecut.sinks.postgres.address import PostgresAddress
from truecut.testing.orders import Change, applied, changes, order, packets, position, seed

MIB, MORE_MIB = 16, 96  # an empty database has 8
SEED = [(READ, 4, n, f"secret {n}") for n in range(100)]


def window(count: int, *, bits: int) -> list[Change]:
    """All rows change, and new ones come, which no server can make smaller."""
    drawn = Random(1)
    new = [f"secret {drawn.getrandbits(bits):x}" for _ in range(count)]
    return [(UPDATE, 5, n, "new") for n in range(100)] + [
        (INSERT, 5, 100 + n, one) for n, one in enumerate(new)
    ]


def after(changes: list[Change]) -> list[tuple[int, str]]:
    return sorted((n, value) for _, _, n, value in changes)


@dataclass(frozen=True)
class Tiny:
    """A database on a small disk."""

    address: PostgresAddress
    disk: TinyDisk


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Nobody else's: its folder has a disk in it."""
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["staging", "tables"])
def tiny(request: pytest.FixtureRequest, server: PostgresServer) -> Iterator[Tiny]:
    """What fills it: where rows are staged, or the tables themselves while rows are staged elsewhere."""
    name, path = f"tiny_{request.param}", server.folder / str(request.param)
    with tiny_disk(path, mib=MIB) as disk:
        os.chown(path, *server.owner)
        server.psql(f"CREATE TABLESPACE {name} LOCATION '{path}'")
        server.psql(f"CREATE DATABASE {name} TABLESPACE {name}")
        if request.param == "tables":
            server.psql(f"ALTER DATABASE {name} SET temp_tablespaces = 'pg_default'")
        yield Tiny(PostgresAddress(Secret(server.conninfo(name))), disk)
        server.psql(f"DROP DATABASE {name} WITH (FORCE)")
        server.psql(f"DROP TABLESPACE {name}")


def test_a_full_disk_leaves_the_sink_as_it_was(tiny: Tiny) -> None:
    """Retryable, said without a value, as often as it is tried; cursor and content are untouched. Once there
    is room the same order is carried out."""
    target = tiny.address
    applied(sink(target).recover(epoch=1, token=1))
    applied(sink(target).apply(order(None, 4, t=seed(), log=seed("append")), packets(t=SEED, log=SEED)))
    found = window(12_000, bits=4_000)
    wanted = order(4, 5, t=changes(), log=changes("append"))
    places = places_of(target)
    for _ in range(2):
        fault = sink(target).apply(wanted, packets(t=found, log=found)).fault
        assert fault is not None
        assert (fault.code, fault.retry) == ("TC4039", Retry.RETRYABLE)
        assert "secret" not in repr(fault)
        assert cursor_of(target) == (str(position(4)), 1)
        assert places_of(target) == places
        assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == [one[2:] for one in SEED]
        assert read(target, "SELECT count(*) FROM main.log") == [(len(SEED),)]
    tiny.disk.grow(mib=MORE_MIB)
    applied(sink(target).apply(wanted, packets(t=found, log=found)))
    assert cursor_of(target) == (str(position(5)), 1)
    assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == after(found)
    assert read(target, "SELECT id, value FROM main.log WHERE _truecut_op <> 'read' ORDER BY 1") == after(
        found
    )


def test_a_full_disk_of_the_servers_log_leaves_the_sink_as_it_was() -> None:
    """The server itself dies of it, and does not come back before there is room: retryable as long as that
    takes; then it recovers, and the same order is carried out."""
    with postgres_server(settings=(*ROOMY, "restart_after_crash=off")) as server:
        log, path = server.folder / "data" / "pg_wal", server.folder / "tiny"
        server.stop()
        with tiny_disk(path, mib=40) as disk:
            shutil.copytree(log, path / "pg_wal")
            shutil.rmtree(log)
            log.symlink_to(path / "pg_wal")
            for one in (path, log, *path.rglob("*")):
                os.chown(one, *server.owner, follow_symlinks=False)
            server.start()
            target = PostgresAddress(Secret(server.create_database("tiny")))
            applied(sink(target).recover(epoch=1, token=1))
            applied(sink(target).apply(order(None, 4, t=seed()), packets(t=SEED)))
            found = window(8_000, bits=24_000)
            for codes in ({"TC4039", "TC4030"}, {"TC4030"}):  # whoever of the server finds it first
                fault = sink(target).apply(order(4, 5, t=changes()), packets(t=found)).fault
                assert fault is not None
                assert (fault.code in codes, fault.retry) == (True, Retry.RETRYABLE), fault
                eventually(lambda: not server.is_up(), what="the server is down")
            disk.grow(mib=200)
            server.start()
            assert cursor_of(target) == (str(position(4)), 1)
            applied(sink(target).apply(order(4, 5, t=changes()), packets(t=found)))
            assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == after(found)
            server.stop()
