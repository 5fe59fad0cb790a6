"""Lakes that tenants had before, made by plain DuckDB and not by Truecut."""

from __future__ import annotations

from pathlib import Path

import duckdb

from truecut.lake import connect


def make_lake(folder: Path, name: str, *statements: str) -> None:
    """A lake `NAME.db`, with its files in `NAME-data`."""
    with connect() as tenant:
        path, data = folder / f"{name}.db", folder / f"{name}-data"
        tenant.execute(f"ATTACH 'ducklake:{path}' AS lake (DATA_PATH '{data}')")
        for statement in statements:
            tenant.execute(statement)


def make_newer(catalog: Path) -> None:
    """As a later version of DuckLake would leave it."""
    with duckdb.connect(str(catalog)) as metadata:
        metadata.execute("UPDATE ducklake_metadata SET value = '99.0' WHERE key = 'version'")
