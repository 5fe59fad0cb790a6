"""A DuckLake, read by plain DuckDB, all of it at one version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from truecut_verify.batches import Raw, canonical_columns
from truecut_verify.columns import holds
from truecut_verify.digest import Form, encode
from truecut_verify.documents import Copy
from truecut_verify.live import Standing, standing_of
from truecut_verify.verdict import Fail, Unknown

_EXTENSIONS = ("sqlite_scanner", "postgres_scanner", "ducklake")
_BATCH_ROWS = 20_000
# Not lossless, a uuid comes as a text.
_SETTINGS: dict[str, Any] = {"threads": 1, "memory_limit": "1GB", "arrow_lossless_conversion": True}


@contextmanager
def open_lake(dsn: str) -> Iterator[Lake]:
    """Read-only, at the newest version of now."""
    with duckdb.connect(config=_SETTINGS) as connection:
        try:
            for name in _EXTENSIONS:
                connection.execute(f"LOAD {_literal(_extension(name))}")
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"ATTACH {_literal(dsn)} AS lake (READ_ONLY, CREATE_IF_NOT_EXISTS false)")
            found = connection.execute("FROM ducklake_current_snapshot('lake')").fetchone()
        except duckdb.Error as error:
            raise Unknown(f"the lake cannot be opened ({type(error).__name__})") from error
        assert found is not None
        yield Lake(connection, int(found[0]))


def _extension(name: str) -> str:
    """From its wheel where that is installed, otherwise where DuckDB keeps its own."""
    spec = find_spec(f"duckdb_extension_{name}")
    if spec is None or not spec.submodule_search_locations:
        return name
    folder = Path(spec.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}"
    return str(folder / f"{name}.duckdb_extension")


class Lake:
    """A lake at its newest version as a sink; as a source at the version of each copy."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, newest: int) -> None:
        self._connection, self._newest = connection, newest
        self._version = newest

    def standing(self, pipeline: str, sink: str, table: str) -> Standing | None:
        """From the newest row of the pipeline in `_truecut.cursor`."""
        sql = (
            f"SELECT state FROM lake._truecut.cursor AT (VERSION => {self._newest}) "
            f"WHERE pipeline = {_literal(pipeline)} ORDER BY number DESC LIMIT 1"
        )
        try:
            found = self._connection.execute(sql).fetchone()
        except duckdb.Error as error:
            raise Fail(f"the sink has no cursor that can be read ({type(error).__name__})") from error
        return None if found is None else standing_of(str(found[0]), table)

    def identity(self) -> str:
        """The uuid of its first schema."""
        sql = (
            "SELECT schema_uuid::VARCHAR FROM __ducklake_metadata_lake.ducklake_schema "
            "ORDER BY schema_id, begin_snapshot LIMIT 1"
        )
        found = self._connection.execute(sql).fetchone()
        return "" if found is None else str(found[0])

    def position(self, copy: Copy) -> str:
        """A place is a version: it can be read again until it expires."""
        version = int(copy.at[9:], 16)
        if version > self._newest:  # whatever it holds now, it is not what was certified
            raise Unknown("the source stands before what is certified", version=self._newest)
        self._version = version
        return "at"

    def rows(self, copy: Copy) -> Iterator[list[Raw]]:
        """By name, at the version."""
        schema, _, table = (copy.called or copy.table).partition(".")
        names = ", ".join(_identifier(name) for name, _, _ in copy.columns)
        place = f"lake.{_identifier(schema)}.{_identifier(table)}"
        sql = f"SELECT {names} FROM {place} AT (VERSION => {self._version})"
        try:
            if self._connection.execute(self._is_table(schema, table)).fetchone() is None:
                raise Fail("the table is not there, or what stands in its place is none")
            reader = self._connection.execute(sql).to_arrow_reader(_BATCH_ROWS)
            for field, (name, _, form) in zip(reader.schema, copy.columns, strict=True):
                if not holds(field.type, form):
                    raise Fail("a column is of another type than what is certified", column=name)
            for batch in reader:
                yield canonical_columns(copy, batch.columns, _canonical)
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise Fail("the table, or a column of it, is not there") from error
        except (duckdb.Error, OSError) as error:
            raise Unknown(f"it cannot be read ({type(error).__name__})") from error

    def _is_table(self, schema: str, table: str) -> str:
        """What a view shows is somewhere else."""
        return (
            "SELECT 1 FROM __ducklake_metadata_lake.ducklake_table t JOIN "
            "__ducklake_metadata_lake.ducklake_schema s USING (schema_id) WHERE lower(schema_name) = "
            f"lower({_literal(schema)}) AND lower(table_name) = lower({_literal(table)}) "
            f"AND t.begin_snapshot <= {self._version} AND coalesce({self._version} < t.end_snapshot, true)"
        )


def _canonical(value: pa.Scalar, form: Form) -> bytes | None:
    return encode(value, form) if value.is_valid else None


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
