"""A source, its mirrors, and the one question: is each of them its share of the source, bit for bit?

Both sides are written and read with plain DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import yaml
from pyspark.sql import SparkSession

from tests.content.exact import Row, rows_of
from tests.e2e.world import Rows, World
from truecut.lake import lake_of
from truecut.model.cursor import Hold
from truecut.model.table import Mode
from truecut.sinks.ducklake.cursor import find_cursor

TABLE = "lake.main.t"


class Quoted(str):
    """A text that YAML might take for something else: PyYAML writes 5e-324 without quotes, as YAML 1.1 has no
    such number."""


yaml.SafeDumper.add_representer(
    Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')
)


class Mirrors(World):
    """One table `main.t` with the key `id`, routed by `route_by`; sink name → its route."""

    def __init__(
        self,
        folder: Path,
        *,
        source: str,
        catalogs: Mapping[str, str],
        routes: Mapping[str, str | None],
        mode: Mode = "mirror",
        modes: Mapping[str, Mode] | None = None,
        key: tuple[str, ...] = ("id",),
        route_by: str = "tenant",
        inlining: int | None = None,
    ) -> None:
        nobody = cast(SparkSession, None.__class__)  # is asked for a job
        super().__init__(
            folder, nobody, _document(source, catalogs, routes, modes or {}, mode, key, route_by)
        )
        self.routes = routes
        self.route_by = route_by
        if inlining is not None:
            self.source(f"CALL lake.set_option('data_inlining_row_limit', {inlining})")

    def share(self, sink: str, columns: str = "*") -> list[Row]:
        """What the source says is the sink's, now."""
        route = str(self.routes[sink]).replace("'", "''")
        query = f"SELECT {columns} FROM {TABLE} WHERE {self.route_by}::VARCHAR = '{route}'"
        with self._attached(lake_of(self.pipeline().source.address)) as connection:
            return rows_of(connection, query)

    def content(self, sink: str, columns: str = "*") -> list[Row]:
        """What the sink holds."""
        address = next(lake_of(s.address) for s in self.pipeline().sinks if s.name == sink)
        with self._attached(address) as connection:
            return rows_of(connection, f"SELECT {columns} FROM {TABLE}")

    def at_sink(self, sink: str, statement: str) -> None:
        """What its tenant does there, perhaps before anybody else."""
        address = next(lake_of(s.address) for s in self.pipeline().sinks if s.name == sink)
        with self._attached(address, create=True) as connection:
            connection.execute(statement)

    def types(self, sink: str | None = None) -> Rows:
        """Names and types of the columns, at a sink or at the source."""
        query = f"SELECT column_name, column_type FROM (DESCRIBE {TABLE})"
        return self.source_rows(query) if sink is None else self.sink_rows(sink, query)

    def hold(self, sink: str) -> Hold | None:
        """Why the sink's copy does not go on, as its cursor says; None where it does."""
        address = next(lake_of(s.address) for s in self.pipeline().sinks if s.name == sink)
        with self._attached(address) as connection:
            cursor = find_cursor(connection, "lake", "mirrors")
        assert cursor is not None
        return cursor.copies["main.t"].hold

    def assert_exact(self) -> None:
        """Every sink is its share, bit for bit, in columns of the same types."""
        names = ", ".join(f'"{name}"' for name, _ in self.types())
        types: dict[str, str] = dict(self.types())
        for sink in self.routes:
            there: dict[str, str] = dict(self.types(sink))
            assert {name: there.get(name) for name in types} == types, sink
            held, wanted = self.content(sink, names), self.share(sink, names)
            unlike = [row for row in held if row not in wanted], [row for row in wanted if row not in held]
            assert held == wanted, f"{sink}: not at the source, not at the sink: {unlike}"


def _document(
    source: str,
    catalogs: Mapping[str, str],
    routes: Mapping[str, str | None],
    modes: Mapping[str, Mode],
    mode: Mode,
    key: tuple[str, ...],
    route_by: str,
) -> dict[str, object]:
    return {
        "apiVersion": "truecut/v1",
        "kind": "Pipeline",
        "metadata": {"name": "mirrors"},
        "spec": {
            "source": {"type": "ducklake", "catalog": source, "data_path": "source-data"},
            "tables": [{"name": "main.t", "key": list(key), "route_by": route_by}],
            "sinks": [
                {
                    "name": name,
                    "type": "ducklake",
                    "catalog": catalogs[name],
                    "data_path": f"{name}-data",
                    "mode": modes.get(name, mode),
                    **({} if route is None else {"route": Quoted(route)}),
                }
                for name, route in routes.items()
            ],
            "batch": {"interval": "20ms"},
        },
    }
