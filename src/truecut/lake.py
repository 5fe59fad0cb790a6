"""DuckDB and DuckLake as both source and sink use them: addresses, connections, attaching, errors.

A connection is opened with the extensions from the installed wheels: nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import tempfile
import threading
from collections.abc import Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal

import duckdb

from truecut import object_store
from truecut.addresses import database_identity, file_identity
from truecut.config.kinds import Address, Unusable
from truecut.config.secret import Secret
from truecut.errors import ExitCode, Fault, Retry, Symptom, TruecutError
from truecut.folders import NO_FOLDER, NO_PERMISSION
from truecut.model.finding import Check, Finding
from truecut.model.table import Column
from truecut.object_store import AMAZON, SCHEME, Storage, is_remote

_EXTENSIONS = ("sqlite_scanner", "postgres_scanner", "ducklake")
_UNUSABLE_CATALOGS = ("ducklake:", "duckdb:", "mysql:", "md:", "postgresql:", "postgres://")
MEMORY_LIMIT = "1GB"  # for one worker process; more spills to disk


@dataclass(frozen=True, slots=True)
class LakeAddress:
    """Where a DuckLake lives. `target` is a file path, or a PostgreSQL conninfo (so it never prints)."""

    kind: Literal["duckdb", "sqlite", "postgres"]
    target: Secret
    data_path: str | None = None
    storage: Storage | None = None  # of a data path in an object store, where something was said of it

    @property
    def shared(self) -> bool:
        """Whether several processes may be attached at the same time."""
        return self.kind != "duckdb"

    def identity(self, folders: dict[str, str]) -> Hashable:
        """Equal for two addresses of one lake."""
        target = self.target.reveal()
        return database_identity(target) if self.kind == "postgres" else file_identity(target, folders)

    def folders(self) -> Iterator[Path]:
        """What has to be writable on this machine: the catalog's folder, and the data's."""
        if self.is_file:
            yield Path(self.target.reveal()).parent
        data = self.data_folder()
        if isinstance(data, Path):
            yield data

    def places(self) -> Iterator[tuple[str, str]]:
        """The catalog's file and the data's folder, if they are on this machine."""
        if self.is_file:
            yield "catalog", self.target.reveal()
        if self.data_path is not None and not is_remote(self.data_path):
            yield "data_path", self.data_path

    def data_folder(self) -> PurePath | None:
        """Where the lake's files go, as far as the address alone tells."""
        if self.data_path is not None:
            return PurePosixPath(self.data_path) if is_remote(self.data_path) else Path(self.data_path)
        # DuckLake's own default; a catalog that knows another place keeps it.
        own = self.kind == "duckdb" and self.is_file
        return Path(f"{self.target.reveal()}.files") if own else None

    @property
    def is_file(self) -> bool:
        """Whether the catalog is a file of this machine."""
        return self.kind != "postgres" and "://" not in self.target.reveal()

    @property
    def is_missing(self) -> bool:
        """Whether the catalog is a file that does not exist."""
        return self.is_file and not os.path.exists(self.target.reveal())

    def __str__(self) -> str:
        return "postgres:***" if self.kind == "postgres" else f"{self.kind}:{self.target.reveal()}"


def parse_address(
    catalog: str, data_path: str | None, *, base: Path, storage: Storage | None = None
) -> LakeAddress:
    """`PATH`, `sqlite:PATH` or `postgres:CONNINFO`; relative paths are relative to `base`."""
    data = None if data_path is None else _absolute(data_path, base)
    if catalog.startswith("postgres:"):
        return LakeAddress("postgres", Secret(catalog.removeprefix("postgres:")), data, storage)
    if catalog.startswith("sqlite:"):
        return LakeAddress("sqlite", Secret(_absolute(catalog.removeprefix("sqlite:"), base)), data, storage)
    return LakeAddress("duckdb", Secret(_absolute(catalog, base)), data, storage)


def lake_of(address: Address) -> LakeAddress:
    """The address of a source or sink that is a lake."""
    if not isinstance(address, LakeAddress):
        raise AssertionError("this is no lake")
    return address


def usable_catalog(catalog: str) -> str:
    """The same, if it has one of the three forms: `ducklake:x` or a URL would be taken for a file."""
    path = "" if catalog.startswith("postgres:") else catalog.removeprefix("sqlite:")
    odd = catalog == "sqlite:" or path.endswith(os.sep) or is_remote(path)
    if catalog.startswith(_UNUSABLE_CATALOGS) or odd:
        message = "not a catalog; write the path of a DuckDB file, sqlite:PATH or postgres:CONNINFO"
        raise Unusable("catalog", message)
    return catalog


def _absolute(path: str, base: Path) -> str:
    if is_remote(path):
        return path
    return str((base / path).absolute())


def connect(*, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A private in-memory DuckDB that can attach lakes; it spills to a folder of its own."""
    own = os.path.join(tempfile.gettempdir(), f"truecut-duckdb-{os.getpid()}")
    connection = duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": own,
            # The secrets that the user keeps for DuckDB are none of the pipeline's.
            "secret_directory": os.path.join(own, "secrets"),
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


def read_versions_exactly(connection: duckdb.DuckDBPyConnection) -> None:
    """For reads of older versions: the extension hands them the head's statistics (minimum, maximum), where
    these do not hold. A plan that relies on them fails, or loses rows."""
    connection.execute("SET GLOBAL disabled_optimizers = 'statistics_propagation,compressed_materialization'")


def check_engine() -> Check:
    """Whether DuckDB and its extensions are there and fit each other."""
    try:
        connect().close()
    except TruecutError as error:
        return Check("duckdb", "an extension is missing", [Finding("duckdb", error.fault)])
    except duckdb.Error as error:
        fault = Fault(
            "TC5031",
            f"DuckDB {duckdb.__version__} cannot load its extensions ({type(error).__name__})",
            "Install truecut again: extensions must be of DuckDB's own version.",
        )
        return Check("duckdb", "an extension cannot be loaded", [Finding("duckdb", fault)])
    return Check("duckdb", f"{duckdb.__version__} with its extensions")


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


def attach(
    connection: duckdb.DuckDBPyConnection,
    address: LakeAddress,
    alias: str,
    *,
    read_only: bool = False,
    create: bool = False,
    trust_data_path: bool = False,
    small_blocks: bool = False,
) -> None:
    """As `attach_sql` says; then this DuckDB reaches the lake's files, wherever they are."""
    if address.data_path is not None and is_remote(address.data_path):
        reach(connection, address.data_path, address.storage)
    connection.execute(
        attach_sql(
            address,
            alias,
            read_only=read_only,
            create=create,
            trust_data_path=trust_data_path,
            small_blocks=small_blocks,
        )
    )
    if address.data_path is not None:
        return
    try:
        told = told_data_path(connection, alias)
        if is_remote(told):
            reach(connection, told, address.storage)
    except BaseException:
        connection.execute(f"DETACH {identifier(alias)}")
        raise


def told_data_path(connection: duckdb.DuckDBPyConnection, alias: str) -> str:
    """Where an attached lake's catalog says that its files are."""
    metadata = identifier(f"__ducklake_metadata_{alias}")
    told = connection.execute(
        f"SELECT max(value) FROM {metadata}.ducklake_metadata WHERE key = 'data_path'"
    ).fetchone()
    return str((told or ("",))[0] or "")


_reaching = threading.Lock()


def reach(connection: duckdb.DuckDBPyConnection, data_path: str, storage: Storage | None) -> None:
    """Load what speaks to object stores, and make the credentials known for all that lies there."""
    if not data_path.startswith(SCHEME):
        raise duckdb.NotSupportedError("no object store that Truecut knows")
    said = storage or AMAZON
    for extension in (
        ("httpfs", "aws") if said.by_chain else ("httpfs",)
    ):  # slow to load: where they are needed
        connection.execute(f"LOAD {literal(str(_extension(extension)))}")
    # Of what is not said of any lake in particular, once is enough.
    scope = SCHEME if storage is None else object_store.scope(data_path)
    name = f"truecut_{hashlib.sha256(scope.encode()).hexdigest()[:16]}"
    sql = _secret_sql(name, scope, said)
    if not said.by_chain:
        with _reaching:  # two that make the same one would disturb each other
            connection.execute(sql)
    elif not _has_secret(connection, name):
        try:
            connection.execute(sql)
        except duckdb.Error:  # a role may be asked over the network, so nobody waits for anybody here
            if not _has_secret(connection, name):
                raise


def _secret_sql(name: str, scope: str, storage: Storage) -> str:
    """Holds the secret: execute it, never log it."""
    options = [
        f"{key} {value if isinstance(value, bool) else literal(value)}" for key, value in storage.options()
    ]
    return f"CREATE OR REPLACE SECRET {name} (TYPE s3, SCOPE {literal(scope)}, {', '.join(options)})"


def _has_secret(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM duckdb_secrets() WHERE name = ?", [name]).fetchone() is not None


@contextmanager
def without_trace(address: LakeAddress) -> Iterator[None]:
    """Reading a SQLite catalog leaves an empty write-ahead log, which only a last writer takes away."""
    path = address.target.reveal()
    tidy = address.kind == "sqlite" and os.path.exists(path) and not os.path.exists(f"{path}-wal")
    try:
        yield
    finally:
        if tidy and os.path.exists(f"{path}-wal"):
            with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as last:
                last.execute("SELECT count(*) FROM sqlite_master").fetchone()


def identifier(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"


def sortable(value: str, column: Column) -> str:
    """SQL to sort or partition by a value of a column. DuckDB would make 0.0 of the -0.0 that it sorts by,
    also in the rows that come out; of the sum it does not matter."""
    return f"({value} + 0)" if column.parsed.is_float else value


# The first that fits counts. A lost race comes before what the catalog itself says, which DuckLake quotes
# after it; but where that is why no attempt can succeed, there was no race.
_SYMPTOMS = (
    Symptom(
        ("conflicts with a system column", "invalid type in column"),
        "TC4016",
        "a column is called as one that the catalog has itself, and its inlined rows do not fit there",
        "Set data_inlining_row_limit to 0 for that table, or rename the column.",
    ),
    Symptom(
        ("exceeded the maximum retry count", "transaction conflict", "serialize access"),
        "TC4006",
        "somebody else committed at the same time",
        "None needed: a running pipeline tries again by itself; a command can be repeated.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("could not set lock", "conflicting lock", "database is locked", "unique file handle conflict"),
        "TC4001",
        "the catalog is locked by another process",
        "Close the other process, or keep the catalog in SQLite or PostgreSQL, which may be shared.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("no space left", "enospc", "disk quota", "file too large", "disk is full"),
        "TC4002",
        "the disk is full",
        "Free space; a running pipeline goes on by itself.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("permission denied", "read-only file system", "readonly database"),
        *NO_PERMISSION,
    ),
    Symptom(
        ("catalog version mismatch", "created with a newer", "newer version"),
        "TC4004",
        "the catalog has a format that this version does not know",
        "Upgrade truecut (and its DuckLake extension) to one that reads this catalog.",
    ),
    Symptom(
        ("does not match existing data path",),
        "TC4009",
        "the catalog keeps its data elsewhere than `data_path` says",
        "Give the catalog's own data path, or leave `data_path` out.",
    ),
    Symptom(
        ("data_path is not set",),
        "TC4015",
        "a new lake in SQLite or PostgreSQL needs to know where its files go",
        "Give the sink a `data_path`.",
    ),
    Symptom(
        ("explicitly disabled",),
        "TC4014",
        "there is a database, but no DuckLake in it",
        "Give the catalog of a lake: what `ATTACH 'ducklake:PATH'` names. A sink's may be a path where"
        " nothing is yet.",
    ),
    Symptom(
        ("unsupported parameter for sqlite attach",),
        "TC4018",
        "the catalog is an SQLite file, and was opened as a DuckDB file",
        "Write `sqlite:` before its path.",
    ),
    Symptom(
        # The last one: DuckDB takes a CSV or Parquet file for the content of a database in memory.
        ("not a valid duckdb database", "file is not a database", "launch in-memory database in read-only"),
        "TC4008",
        "the file is not a DuckLake catalog",
        "Give the path of a catalog, or of a file that does not exist yet.",
    ),
    Symptom(
        ("not a directory", "no such file or directory", "unable to open database file", "file exists"),
        *NO_FOLDER,
    ),
    Symptom(
        ("connect", "translate host name", "timeout", 'execute query "rollback"', "server closed"),
        "TC4005",
        "no connection to the catalog",
        "Check server, network and credentials.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("conflict", "duplicate key", "unique constraint", "primary key"),
        "TC4006",
        "somebody else committed at the same time",
        "None needed: a running pipeline tries again by itself; a command can be repeated.",
        Retry.RETRYABLE,
    ),
)
UNKNOWN = "TC4099"
_HOLDER = re.compile(r"\(pid (\d+)\)")
_QUOTED = re.compile(r'"(?!rollback)[^"]*"')  # paths, statements, connection strings: not symptoms


def fault_of(error: duckdb.Error | OSError, *, what: str) -> Fault:
    """Classify what DuckDB raised. Its text may hold row values or a password, so none of it is kept."""
    text = _QUOTED.sub("", str(error).lower())
    of_the_store = object_store.fault_of(text, what=what)
    if of_the_store is not None:
        return of_the_store
    for symptom in _SYMPTOMS:
        if symptom.shows_in(text):
            holder = _HOLDER.search(text) if symptom.code == "TC4001" else None
            fault = symptom.fault(what)
            return (
                fault if holder is None else replace(fault, message=f"{fault.message} (process {holder[1]})")
            )
    return Fault(
        UNKNOWN,
        f"{what}: {type(error).__name__}",
        "Run again with --log-level debug and report it if it persists.",
        Retry.RETRYABLE,
    )
