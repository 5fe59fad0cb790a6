"""DuckDB and DuckLake as both source and sink use them: addresses, connections, attaching, errors.

A connection is opened with the extensions from the installed wheels: nothing is downloaded.
"""

from __future__ import annotations

import os
import re
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
    # "Did you mean …" would look for similar names in every attached lake: one that does not answer
    # must not hold up a statement about another.
    connection.execute("SET catalog_error_max_schemas = 0")
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


def attach_sql(
    address: LakeAddress,
    alias: str,
    *,
    read_only: bool = False,
    create: bool = False,
    trust_data_path: bool = False,
    small_blocks: bool = False,
) -> str:
    """The ATTACH statement. It may hold a password: execute it, never log it.

    A catalog keeps its data path as its maker wrote it, often relative to wherever that was. With
    `trust_data_path` the address knows better; without it, an address that disagrees is refused.
    `small_blocks` is for a DuckDB file that does not exist yet.
    """
    scheme = {"duckdb": "ducklake:", "sqlite": "ducklake:sqlite:", "postgres": "ducklake:postgres:"}
    options = []
    if address.data_path is not None:
        options.append(f"DATA_PATH {literal(address.data_path)}")
        if trust_data_path:
            options.append("OVERRIDE_DATA_PATH true")
    if read_only:
        options.append("READ_ONLY")
    if not create:
        options.append("CREATE_IF_NOT_EXISTS false")
    if small_blocks:
        options.append("META_BLOCK_SIZE 16384")
    if address.kind == "sqlite":
        options.append("META_BUSY_TIMEOUT 3000")
        if not read_only:
            # The default journal mode wedges two overlapping writers for good; a reader may not change it.
            options.append("META_JOURNAL_MODE 'WAL'")
    target = literal(scheme[address.kind] + address.target.reveal())
    return f"ATTACH {target} AS {identifier(alias)}" + (f" ({', '.join(options)})" if options else "")


def identifier(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class _Symptom:
    """Words of an error message (any of them), and what they mean."""

    words: tuple[str, ...]
    code: str
    meaning: str
    fix: str
    retry: Retry = Retry.NOT_RETRYABLE


# The first that fits counts. A lost race comes first: DuckLake quotes the catalog's own words after it.
_SYMPTOMS = (
    _Symptom(
        ("exceeded the maximum retry count", "transaction conflict", "serialize access"),
        "TC4006",
        "somebody else committed at the same time",
        "None needed; it is tried again.",
        Retry.RETRYABLE,
    ),
    _Symptom(
        ("could not set lock", "conflicting lock", "database is locked", "unique file handle conflict"),
        "TC4001",
        "the catalog is locked by another process",
        "Close the other process, or keep the catalog in SQLite or PostgreSQL, which may be shared.",
        Retry.RETRYABLE,
    ),
    _Symptom(
        ("no space left", "enospc", "disk quota", "file too large", "disk is full"),
        "TC4002",
        "the disk is full",
        "Free space; it goes on by itself.",
        Retry.RETRYABLE,
    ),
    _Symptom(
        ("permission denied", "read-only file system", "readonly database"),
        "TC4003",
        "no permission to write",
        "Make the folder writable for this user.",
    ),
    _Symptom(
        ("catalog version mismatch", "created with a newer", "newer version"),
        "TC4004",
        "the catalog has a format that this version does not know",
        "Upgrade truecut (and its DuckLake extension) to one that reads this catalog.",
    ),
    _Symptom(
        ("does not match existing data path",),
        "TC4009",
        "the catalog keeps its data elsewhere than `data_path` says",
        "Give the catalog's own data path, or leave `data_path` out.",
    ),
    _Symptom(
        ("data_path is not set",),
        "TC4015",
        "a new lake in SQLite or PostgreSQL needs to know where its files go",
        "Give the sink a `data_path`.",
    ),
    _Symptom(
        ("explicitly disabled",),
        "TC4014",
        "the catalog does not exist",
        "Check the path of the catalog.",
    ),
    _Symptom(
        ("not a valid duckdb database", "file is not a database"),
        "TC4008",
        "the file is not a DuckLake catalog",
        "Give the path of a catalog, or of a file that does not exist yet.",
    ),
    _Symptom(
        ("not a directory", "no such file or directory", "unable to open database file", "file exists"),
        "TC4007",
        "a folder is missing or cannot be created",
        "Check the paths of catalog and data, and that their parents are folders.",
    ),
    _Symptom(
        ("connect", "translate host name", "timeout", 'execute query "rollback"', "server closed"),
        "TC4005",
        "no connection to the catalog",
        "Check server, network and credentials.",
        Retry.RETRYABLE,
    ),
    _Symptom(
        ("conflict", "duplicate key", "unique constraint", "primary key"),
        "TC4006",
        "somebody else committed at the same time",
        "None needed; it is tried again.",
        Retry.RETRYABLE,
    ),
)
_QUOTED = re.compile(r'"(?!rollback)[^"]*"')  # paths, statements, connection strings: not symptoms


def fault_of(error: duckdb.Error | OSError, *, what: str) -> Fault:
    """Classify what DuckDB raised. Its text may hold row values or a password, so none of it is kept."""
    text = _QUOTED.sub("", str(error).lower())
    for symptom in _SYMPTOMS:
        if any(word in text for word in symptom.words):
            return Fault(symptom.code, f"{what}: {symptom.meaning}", symptom.fix, symptom.retry)
    return Fault(
        "TC4099",
        f"{what}: {type(error).__name__}",
        "Run again with --log-level debug and report it if it persists.",
        Retry.RETRYABLE,
    )
