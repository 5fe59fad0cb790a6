"""A lake as `truecut init` begins with it: the tables it has, and its section of the file."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb

from truecut.config.beginning import Beginning, FoundTable, quoted
from truecut.errors import ExitCode, TruecutError
from truecut.lake import LakeAddress, attach_sql, connect, fault_of, literal, parse_address, usable_catalog

_CATALOG_VARIABLE = "SOURCE_CATALOG"
_OWN_SCHEMA = "_truecut"  # what a sink keeps in a lake is not the lake's own
_SECTION = """\
type: ducklake
catalog: {catalog}    # a DuckDB file; or sqlite:PATH; or postgres:CONNINFO
{data_path}
"""
_NO_DATA_PATH = "# data_path: ./source-data      # where the catalog does not already know it"


def begin(dsn: str | None, *, folder: Path) -> Beginning:
    """For a file in `folder`. With a DSN the lake is looked at; Unusable when it is none."""
    if dsn is None:
        return Beginning(_SECTION.format(catalog="./source.ducklake", data_path=_NO_DATA_PATH))
    address = parse_address(usable_catalog(dsn), None, base=Path.cwd())
    secret = address.kind == "postgres"
    note = f"set the environment variable {_CATALOG_VARIABLE} to the --dsn you gave" if secret else ""
    tables, told = _look(address)
    data_path = _data_path_text(told, folder=folder)
    section = _SECTION.format(catalog=catalog_text(dsn, folder=folder), data_path=data_path)
    return Beginning(section, tables, note)


def _data_path_text(told: str, *, folder: Path) -> str:
    """A path that the catalog has from its maker's folder is written out: the file is used from anywhere."""
    if not told or "://" in told or os.path.isabs(told):
        return _NO_DATA_PATH
    return f"data_path: {quoted('./' + os.path.relpath(Path.cwd() / told, folder))}"


def catalog_text(dsn: str, *, folder: Path) -> str:
    """As the file says it: relative to the file, and without a password in it."""
    if dsn.startswith("postgres:"):
        return "${" + _CATALOG_VARIABLE + "}"
    prefix = "sqlite:" if dsn.startswith("sqlite:") else ""
    path = dsn.removeprefix("sqlite:")
    relative = os.path.relpath(Path.cwd() / path, folder)
    return quoted(prefix + (path if os.path.isabs(path) else f"./{relative}"))


def _look(address: LakeAddress) -> tuple[list[FoundTable], str]:
    """Its tables, and where its catalog says that its files are."""
    if address.is_file and not Path(address.target.reveal()).is_file():
        raise TruecutError(
            "TC1064",
            f"There is no catalog at {address}",
            fix="Give --dsn the path of a DuckLake's catalog, or leave it out.",
            exit_code=ExitCode.WRONG_INPUT,
        )
    connection = connect()
    try:
        connection.execute(attach_sql(address, "lake", read_only=True, trust_data_path=True))
        rows = connection.execute(
            "SELECT schema_name, table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
            f"WHERE database_name = 'lake' AND schema_name <> {literal(_OWN_SCHEMA)} AND NOT internal "
            "AND (schema_name, table_name) IN "
            "(SELECT (schema_name, table_name) FROM duckdb_tables() WHERE database_name = 'lake') "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        told = connection.execute(
            "SELECT max(value) FROM __ducklake_metadata_lake.ducklake_metadata WHERE key = 'data_path'"
        ).fetchone()
    except duckdb.Error as error:
        if "explicitly disabled" in str(error):  # a database that a lake would have to be made in
            raise _no_lake(address, "a database") from None
        fault = fault_of(error, what=f"The catalog {address}")
        if fault.code == "TC4008":
            raise _no_lake(address, "a file") from None
        if fault.code == "TC4018":  # without its `sqlite:`
            raise TruecutError.of(fault, ExitCode.WRONG_INPUT) from None
        raise TruecutError.of(fault, ExitCode.UNFIT_ENVIRONMENT) from None
    finally:
        connection.close()
    tables = [FoundTable(schema, name, tuple(columns)) for schema, name, columns in rows]
    return tables, str((told or ("",))[0] or "")


def _no_lake(address: LakeAddress, found: str) -> TruecutError:
    return TruecutError(
        "TC1065",
        f"There is {found} at {address}, but no DuckLake in it",
        fix="Give --dsn the catalog of a lake: what `ATTACH 'ducklake:PATH'` names.",
        exit_code=ExitCode.WRONG_INPUT,
    )
