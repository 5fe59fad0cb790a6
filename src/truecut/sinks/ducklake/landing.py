"""Where a lake takes files that others have written, and how they become rows of a table.

Files go into the folder of their table and are registered as they are. Not every table takes them so: where
its tenant has partitioned or sorted it, where a column may not be NULL (nobody would look), or where it has
columns beside ours, the same files are inserted row by row instead. A lake whose files are encrypted, whose
data path is relative, or a column of a type that a registered file is not known to keep: the seed is staged
whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import duckdb

from truecut.lake import literal, told_data_path
from truecut.model.order import Order
from truecut.model.table import TableName, TableSchema
from truecut.model.types import SIGNED, UNSIGNED, Type
from truecut.object_store import is_remote
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.schema import qualified
from truecut.sinks.parts import Landing

# Seen to come back bit for bit from registered files, and to be found by their values.
_KNOWN = frozenset(
    {
        *((SIGNED | UNSIGNED) - {"HUGEINT", "UHUGEINT"}),
        *("BOOLEAN", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "JSON", "BLOB", "UUID", "DATE", "TIME"),
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
    }
)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")  # DuckLake calls the folder of such a table by its name


def takes_files(schema: TableSchema) -> bool:
    """Whether every column is of a type that a registered file keeps."""
    return all(_is_known(column.parsed) for column in schema.columns)


def _is_known(kind: Type) -> bool:
    if kind.kind == "scalar":
        return kind.name in _KNOWN
    return kind.kind != "unknown" and not kind.parameters and all(map(_is_known, kind.parts))


def landing_in(lake: Lake, order: Order) -> Landing | None:
    """The folders of the order's tables; None where files are not taken."""
    root = told_data_path(lake.connection, lake.attachment.alias)
    if not (root.startswith("/") or is_remote(root)) or _is_encrypted(lake):
        return None
    root = root if root.endswith("/") else f"{root}/"
    return Landing({table: _folder(lake, root, TableName.parse(table)) for table in order.tables})


def _is_encrypted(lake: Lake) -> bool:
    found = lake.connection.execute(
        f"SELECT count(*) FROM {lake.metadata}.ducklake_metadata WHERE key = 'encrypted' AND value = 'true'"
    ).fetchone()
    return found != (0,)


def _folder(lake: Lake, root: str, table: TableName) -> str:
    """The table's own, or what it will be when it is made; in another one a file works just as well, but its
    path is noted whole."""
    inside = _paths(
        lake,
        f"SELECT path, path_is_relative FROM {lake.metadata}.ducklake_schema "
        f"WHERE end_snapshot IS NULL AND schema_name = {literal(table.schema)}",
        otherwise=table.schema,
    )
    own = _paths(
        lake,
        "SELECT t.path, t.path_is_relative "
        f"FROM {lake.metadata}.ducklake_table t JOIN {lake.metadata}.ducklake_schema s USING (schema_id) "
        "WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL "
        f"AND s.schema_name = {literal(table.schema)} AND t.table_name = {literal(table.table)}",
        otherwise=table.table,
    )
    return f"{root}{inside}{own}"


def _paths(lake: Lake, sql: str, *, otherwise: str) -> str:
    found = lake.connection.execute(sql).fetchone()
    if found is not None and found[1] and found[0]:
        return str(found[0])
    return f"{otherwise}/" if _PLAIN_NAME.fullmatch(otherwise) else "truecut/"


# --- files that become rows -----------------------------------------------------------------------------


def listed(files: Iterable[str]) -> str:
    """SQL for a list of files."""
    return f"[{', '.join(map(literal, files))}]"


def of_files(files: Iterable[str]) -> str:
    """SQL to select their rows. A folder's name tells no column."""
    return f"read_parquet({listed(files)}, hive_partitioning = false)"


def rows_in(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> int:
    """How many rows they say they have."""
    if not files:
        return 0
    found = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({listed(files)})").fetchone()
    assert found is not None
    return int(found[0] or 0)


def registers(lake: Lake, table: str, columns: Sequence[str]) -> bool:
    """Whether files with exactly these columns may stand in the table as they are."""
    described = lake.connection.execute(f"DESCRIBE {qualified(lake, table)}").fetchall()
    if [row[0] for row in described] != list(columns) or any(row[2] == "NO" for row in described):
        return False
    return not any(_has(lake, kind, table) for kind in ("ducklake_partition_info", "ducklake_sort_info"))


def _has(lake: Lake, kind: str, table: str) -> bool:
    name = TableName.parse(table)
    try:
        found = lake.connection.execute(
            f"SELECT count(*) FROM {lake.metadata}.{kind} i JOIN {lake.metadata}.ducklake_table t "
            f"USING (table_id) JOIN {lake.metadata}.ducklake_schema s USING (schema_id) "
            "WHERE i.end_snapshot IS NULL AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL "
            f"AND s.schema_name = {literal(name.schema)} AND t.table_name = {literal(name.table)}"
        ).fetchone()
    except duckdb.CatalogException:  # a catalog of a version that knows nothing of it
        return False
    return found != (0,)


def register(lake: Lake, table: str, files: Sequence[str]) -> None:
    """The lake owns the files from now on: what they hold is in the table."""
    name = TableName.parse(table)
    lake.connection.execute(
        f"CALL ducklake_add_data_files({literal(lake.attachment.alias)}, {literal(name.table)}, "
        f"{listed(files)}, schema => {literal(name.schema)}, hive_partitioning => false)"
    )


def unknown_to(lake: Lake, files: Sequence[str]) -> list[str]:
    """Those of which the catalog does not know, in any snapshot that it has, nor for its own clean-up."""
    names = ", ".join(literal(file.rpartition("/")[2]) for file in files)
    known: set[str] = set()
    for kind in ("ducklake_data_file", "ducklake_files_scheduled_for_deletion"):
        rows = lake.connection.execute(
            f"SELECT DISTINCT name FROM (SELECT regexp_extract(path, '[^/]*$') AS name "
            f"FROM {lake.metadata}.{kind}) WHERE name IN ({names})"
        ).fetchall()
        known.update(name for (name,) in rows)
    return [file for file in files if file.rpartition("/")[2] not in known]
