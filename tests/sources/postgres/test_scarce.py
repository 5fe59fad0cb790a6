"""A server that has too little left for us, or is too old: findings have the SQL that mends it, and a run
says the same."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.test_checks import codes, mend, refusal
from truecut.config.secret import Secret
from truecut.model.table import TableName
from truecut.sources.postgres.checks import findings, warnings
from truecut.sources.postgres.server import Address

SETTINGS = ("fsync=off", "wal_level=logical", "max_wal_senders=1")


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(settings=SETTINGS, version=request.param) as running:
        running.psql("CREATE TABLE t (id int PRIMARY KEY)")
        running.psql("CREATE ROLE ann LOGIN REPLICATION; ALTER TABLE t OWNER TO ann")
        running.psql("GRANT CREATE ON DATABASE postgres TO ann")
        running.psql("ALTER SYSTEM SET max_connections = 11")
        running.stop()
        running.start()
        yield running


def address(server: PostgresServer, user: str = "ann") -> Address:
    conninfo = server.conninfo().replace("user=postgres", f"user={user}")
    return Address(Secret(conninfo), "cut", "truecut", (TableName("public", "t"),))


def test_streaming_needs_a_process_of_its_own(server: PostgresServer, tmp_path: Path) -> None:
    """Somebody else has the only one."""
    with psycopg.connect(f"{server.conninfo()} replication=database", autocommit=True):
        (found, *_) = findings(address(server))
        assert (found.fault.code, refusal(address(server), tmp_path)) == ("TC2107", "TC2107")
        assert "SET max_wal_senders = 6" in found.fault.fix


def test_sessions_for_all_that_a_run_reads(server: PostgresServer) -> None:
    """Units are read by a session each, beside those of capture and looks: fewer than that are found, by
    whatever limit, and mended by the SQL; sessions that only others have just now are a warning."""
    place = address(server)
    (found,) = findings(place)
    assert (found.fault.code, "the server allows 8 sessions" in found.fault.message) == ("TC2158", True)
    assert findings(place, readers=3) == []
    assert codes(findings(address(server, "postgres"))) == []  # has what is reserved, too
    with psycopg.connect(address(server).conninfo.reveal()):
        assert findings(place, readers=3) == []
        ((what, taken),) = warnings(place, readers=3)
        assert (what, taken.fault.code) == ("source", "TC2158")
        assert "others have 1 of them" in taken.fault.message
    mend(server, found)
    server.stop()
    server.start()
    assert findings(place) == []
    assert warnings(place) == []
    for limited in ("ROLE ann", "DATABASE postgres"):
        server.psql(f"ALTER {limited} CONNECTION LIMIT 4")
        (found,) = findings(place)
        assert (found.fault.code, "allows 4 sessions" in found.fault.message) == ("TC2158", True)
        mend(server, found)
        assert findings(place) == []


def test_no_session_left(server: PostgresServer, tmp_path: Path) -> None:
    """Not taken for a server that is not there: a run waits for one, and says for what."""
    server.psql("ALTER ROLE ann CONNECTION LIMIT 2")
    with ExitStack() as others:
        for _ in range(2):
            others.enter_context(psycopg.connect(address(server).conninfo.reveal()))
        (found,) = findings(address(server))
        assert found.fault.code == refusal(address(server), tmp_path) == "TC2159"
    server.psql("ALTER ROLE ann CONNECTION LIMIT -1")


def test_a_server_before_15_is_too_old(tmp_path: Path) -> None:
    """By the version that it tells when it lets us in."""
    with of_version("14.11") as port:
        place = Address(
            Secret(f"host=127.0.0.1 port={port} user=ann dbname=shop sslmode=disable"), "cut", "truecut"
        )
        (found,) = findings(place)
        assert found.fault.code == refusal(place, tmp_path) == "TC2103"
        assert "version 14; 15 or newer" in found.fault.message


@contextmanager
def of_version(version: str) -> Iterator[int]:
    """The port of somebody who lets everybody in, says that, and waits."""
    told = b"server_version\0" + version.encode() + b"\0"
    greeting = b"R" + struct.pack(">ii", 8, 0) + b"S" + struct.pack(">i", 4 + len(told)) + told
    told = b"client_encoding\0UTF8\0"
    greeting += b"S" + struct.pack(">i", 4 + len(told)) + told + b"Z" + struct.pack(">i", 5) + b"I"
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    lines.append(line)
                    line.recv(4096)
                    line.sendall(greeting)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    for line in lines:
        line.close()
