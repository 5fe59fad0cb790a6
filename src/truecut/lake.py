"""DuckDB and DuckLake as both source and sink use them: addresses, connections, attaching, errors.

A connection is opened with the extensions from the installed wheels: nothing is downloaded.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import duckdb

from truecut.config.secret import Secret
from truecut.errors import ExitCode, Fault, Retry, TruecutError

_EXTENSIONS = ("sqlite_scanner", "postgres_scanner", "ducklake")
MEMORY_LIMIT = "1GB"  # for one worker process; more spills to disk


@dataclass(frozen=True, slots=True)
class LakeAddress:
    """Where a DuckLake lives. `target` is a file path, or a PostgreSQL conninfo (so it never prints)."""

    kind: Literal["duckdb", "sqlite", "postgres"]
    target: Secret
    data_path: str | None = None

    @property
    def shared(self) -> bool:
        """Whether several processes may be attached at the same time."""
        return self.kind != "duckdb"

    def __str__(self) -> str:
        return "postgres:***" if self.kind == "postgres" else f"{self.kind}:{self.target.reveal()}"


def parse_address(catalog: str, data_path: str | None, *, base: Path) -> LakeAddress:
    """`PATH`, `sqlite:PATH` or `postgres:CONNINFO`; relative paths are relative to `base`."""
    data = None if data_path is None else _absolute(data_path, base)
    if catalog.startswith("postgres:"):
        return LakeAddress("postgres", Secret(catalog.removeprefix("postgres:")), data)
    if catalog.startswith("sqlite:"):
        return LakeAddress("sqlite", Secret(_absolute(catalog.removeprefix("sqlite:"), base)), data)
    return LakeAddress("duckdb", Secret(_absolute(catalog, base)), data)


def _absolute(path: str, base: Path) -> str:
    if "://" in path:  # an object store
        return path
    return str((base / path).absolute())


def connect(*, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A private in-memory DuckDB that can attach lakes; it spills to a folder of its own."""
    connection = duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": os.path.join(tempfile.gettempdir(), f"truecut-duckdb-{os.getpid()}"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    for name in _EXTENSIONS:
        connection.execute(f"LOAD {literal(str(_extension(name)))}")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _extension(name: str) -> Path:
    spec = find_spec(f"duckdb_extension_{name}")
    if spec is None or not spec.submodule_search_locations:
        raise TruecutError(
            "TC5001",
            f"The DuckDB extension {name} is not installed",
            fix=f"pip install duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        )
    folder = Path(spec.submodule_search_locations[0])
    return folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"


def attach_sql(address: LakeAddress, alias: str, *, read_only: bool = False, create: bool = False) -> str:
    """The ATTACH statement. It may hold a password: execute it, never log it."""
    scheme = {"duckdb": "ducklake:", "sqlite": "ducklake:sqlite:", "postgres": "ducklake:postgres:"}
    options = []
    if address.data_path is not None:
        options.append(f"DATA_PATH {literal(address.data_path)}")
    if read_only:
        options.append("READ_ONLY")
    if not create:
        options.append("CREATE_IF_NOT_EXISTS false")
    if address.kind == "sqlite":
        # The default journal mode wedges two overlapping processes for good.
        options.append("META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 3000")
    target = literal(scheme[address.kind] + address.target.reveal())
    return f"ATTACH {target} AS {identifier(alias)}" + (f" ({', '.join(options)})" if options else "")


def identifier(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"


def fault_of(error: duckdb.Error | OSError, *, what: str) -> Fault:
    """Classify what DuckDB raised. Its text may hold row values or a password, so none of it is kept."""
    text = str(error).lower()
    if "could not set lock" in text or "conflicting lock" in text or "database is locked" in text:
        return Fault(
            "TC4001",
            f"{what}: the catalog is locked by another process",
            "Close the other process, or keep the catalog in SQLite or PostgreSQL, which may be shared.",
            Retry.RETRYABLE,
        )
    if "no space left" in text or "enospc" in text or "disk quota" in text:
        return Fault(
            "TC4002", f"{what}: the disk is full", "Free space; it goes on by itself.", Retry.RETRYABLE
        )
    if "permission denied" in text or "read-only file system" in text:
        return Fault("TC4003", f"{what}: no permission to write", "Make the folder writable for this user.")
    if (
        "ducklake" in text
        and "version" in text
        and ("newer" in text or "unsupported" in text or "mismatch" in text)
    ):
        return Fault(
            "TC4004",
            f"{what}: the catalog has a format that this version does not know",
            "Upgrade truecut (and its DuckLake extension) to one that reads this catalog.",
        )
    if "connection" in text or "could not connect" in text or "timeout" in text:
        return Fault(
            "TC4005", f"{what}: no connection to the catalog", "Check server and network.", Retry.RETRYABLE
        )
    if (
        "conflict" in text
        or "primary key" in text
        or "serialize access" in text
        or "unique constraint" in text
    ):
        return Fault(
            "TC4006", f"{what}: somebody else committed at the same time", "None needed.", Retry.RETRYABLE
        )
    return Fault(
        "TC4099",
        f"{what}: {type(error).__name__}",
        "Run again with --log-level debug and report it if it persists.",
        Retry.RETRYABLE,
    )
