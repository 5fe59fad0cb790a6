"""From the file as written to the settings the program uses; checks what spans several values.

Works on the parts whose shape is right, so that one misspelt key does not hide a duplicated sink.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath

from truecut.config import file as written
from truecut.config import reserved, rules, shape, units
from truecut.config.finding import did_you_mean, show
from truecut.config.report import Document, Path, Problem
from truecut.config.secret import Secret
from truecut.config.settings import (
    BatchSettings,
    Pipeline,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    TableSettings,
)
from truecut.config.sinks import SinkBuilder, refuse_shared_catalogs
from truecut.lake import parse_address
from truecut.model.table import Mode, TableName

_GLOB_CHARS = frozenset("*?[")
_UNUSABLE_CATALOGS = ("ducklake:", "duckdb:", "mysql:", "md:", "postgresql:", "postgres://")


def resolve(document: Document, problems: list[Problem], *, path: FilePath, file: str) -> Pipeline | None:
    """The settings, if nothing is wrong; what is wrong is added to `problems`."""
    resolver = _Resolver(document, problems, path=path, file=file)
    tables = resolver.tables()
    source = resolver.source()
    sinks = resolver.sinks(tables, source)
    whole = None if problems else shape.validate(written.PipelineFile, document.data)
    if whole is None or source is None:
        return None
    state = path.parent / (whole.spec.state or f".truecut/{whole.metadata.name}")
    control = resolver.control(whole.spec.control, state)
    if problems:
        return None
    batch = whole.spec.batch
    return Pipeline(
        name=whole.metadata.name,
        path=path,
        source=source,
        tables=tuple(tables.values()),
        sinks=tuple(sinks),
        batch=BatchSettings(
            rows_max=batch.rows_max,
            bytes_max=units.size_bytes(batch.bytes_max),
            interval_ms=units.duration_ms(batch.interval),
            deadline_ms=units.duration_ms(batch.deadline),
        ),
        lease_ms=units.duration_ms(whole.spec.lease.duration),
        control=Secret(control),
        state=state,
        spark=SparkSettings(master=whole.spec.spark.master, conf=dict(whole.spec.spark.conf)),
    )


class _Resolver:
    def __init__(self, document: Document, problems: list[Problem], *, path: FilePath, file: str) -> None:
        self._document = document
        self._problems = problems
        self._base = path.parent
        self._file = file
        # Of a source that is not available yet nobody knows here what its tables need.
        source = document.value(("spec", "source", "type"))
        self._known_source = not (isinstance(source, str) and source in reserved.SOURCE_TYPES)
        self._broken = {broken[:length] for broken in document.broken for length in (2, 3)}

    def _complain(self, rule: rules.Rule, path: Path, message: str) -> None:
        self._problems.append(Problem(rule, path, message))

    def _usable(self, path: Path) -> bool:
        return path not in self._broken

    def _shown(self, path: Path, value: str) -> str:
        return "its value" if self._document.expanded(path) else show(value)

    # --- tables ---------------------------------------------------------------------------------------

    def tables(self) -> dict[str, TableSettings]:
        """By name text, in the order of the file."""
        found: dict[str, TableSettings] = {}
        seen: dict[str, Path] = {}
        items = self._document.value(("spec", "tables"))
        for index, data in enumerate(items if isinstance(items, list) else []):
            path: Path = ("spec", "tables", index)
            table = shape.validate(written.Table, data) if self._usable(path) else None
            name = table and self._table_name(path, table)
            if not table or not name:
                continue
            if str(name).lower() in seen:
                line = self._document.line(seen[str(name).lower()])
                self._complain(rules.DUPLICATE_TABLE, (*path, "name"), f"the same table as on line {line}")
                continue
            seen[str(name).lower()] = path
            found[str(name)] = self._table(path, name, table)
        return found

    def _table_name(self, path: Path, table: written.Table) -> TableName | None:
        here = (*path, "name")
        if _GLOB_CHARS & set(table.name):
            if self._known_source:
                message = "wildcards do not work with a DuckLake source yet; name each table"
                self._complain(rules.GLOB, here, message)
            return None
        try:
            return TableName.parse(table.name)
        except ValueError:
            message = f"{self._shown(here, table.name)} is not schema.table; write e.g. main.events"
            self._complain(rules.TABLE_NAME, here, message)
            return None

    def _table(self, path: Path, name: TableName, table: written.Table) -> TableSettings:
        key = table.key or []
        if not key and self._known_source:
            what = "is missing" if table.key is None else "names no column"
            message = (
                f"{what}; DuckLake knows no primary keys: name the columns that identify a row, e.g. [id]"
            )
            self._complain(rules.KEY_MISSING, (*path, "key"), message)
        elif len({column.lower() for column in key}) < len(key):
            self._complain(rules.OUT_OF_RANGE, (*path, "key"), "names a column twice")
        if table.broadcast and table.route_by is not None:
            message = "a table is routed (route_by) or broadcast, not both; take one out"
            self._complain(rules.BROADCAST_AND_ROUTE, (*path, "broadcast"), message)
        return TableSettings(
            name=name,
            key=tuple(key),
            route_by=table.route_by,
            broadcast=table.broadcast,
            unrouted=table.unrouted,
            on_gap=table.on_gap,
        )

    # --- source and control ---------------------------------------------------------------------------

    def source(self) -> SourceSettings | None:
        path: Path = ("spec", "source")
        source = shape.validate(written.Source, self._document.value(path)) if self._usable(path) else None
        if source is None:
            return None
        if not catalog_is_usable(source.catalog):
            self._refuse_catalog((*path, "catalog"))
            return None
        return SourceSettings(source.type, parse_address(source.catalog, source.data_path, base=self._base))

    def _refuse_catalog(self, path: Path) -> None:
        message = "not a catalog; write the path of a DuckDB file, sqlite:PATH or postgres:CONNINFO"
        self._complain(rules.OUT_OF_RANGE, path, message)

    def control(self, control: str | None, state: FilePath) -> str:
        """A file's absolute path, or a PostgreSQL URL as it is."""
        if control is None:
            return str(state / "control.db")
        if control.startswith(("postgresql://", "postgres://")):
            return control
        if "://" in control:
            self._complain(rules.OUT_OF_RANGE, ("spec", "control"), "write a file's path or postgresql://…")
        return str(self._base / control)

    # --- sinks ----------------------------------------------------------------------------------------

    def sinks(self, tables: Mapping[str, TableSettings], source: SourceSettings | None) -> list[SinkSettings]:
        """All sinks, those of `for_each` files included."""
        builder = SinkBuilder(self._document, self._problems, base=self._base, file=self._file)
        routed: dict[str, str] = {}  # table → a sink with a route that carries it
        items = self._document.value(("spec", "sinks"))
        for index, data in enumerate(items if isinstance(items, list) else []):
            path: Path = ("spec", "sinks", index)
            sink = shape.validate(written.Sink, data) if self._usable(path) else None
            if sink is None:
                continue
            modes = self._modes(path, sink, tables)
            if sink.route is not None:
                for name in modes:
                    routed.setdefault(name, self._document.describe(path))
            if not catalog_is_usable(sink.catalog):
                self._refuse_catalog((*path, "catalog"))
            else:
                builder.add(path, sink, modes)
        self._refuse_unrouted(tables, routed)
        refuse_shared_catalogs(self._problems, builder.built, None if source is None else source.address)
        return [sink for sink, _ in builder.built]

    def _modes(self, path: Path, sink: written.Sink, tables: Mapping[str, TableSettings]) -> dict[str, Mode]:
        if sink.tables is None:
            return dict.fromkeys(tables, sink.mode)
        modes: dict[str, Mode] = {}
        known = self._known_tables(tables)
        for index, table in enumerate(sink.tables):
            here = (*path, "tables", index, "name")
            if table.name in modes:
                self._complain(rules.DUPLICATE_TABLE, here, "stands twice in this sink's tables")
            elif table.name not in known:
                hint = "" if self._document.expanded(here) else did_you_mean(table.name, sorted(known))
                shown = self._shown(here, table.name)
                self._complain(rules.SINK_TABLE, here, f"{shown} is not a table of this pipeline{hint}")
            elif table.name in tables:
                modes[table.name] = table.mode or sink.mode
        return modes

    def _known_tables(self, tables: Mapping[str, TableSettings]) -> set[str]:
        """Also those that have faults of their own, which are reported where they stand."""
        items = self._document.value(("spec", "tables"))
        names = (
            (item.get("name") for item in items if isinstance(item, dict)) if isinstance(items, list) else ()
        )
        return {*tables, *(name for name in names if isinstance(name, str))}

    def _refuse_unrouted(self, tables: Mapping[str, TableSettings], routed: Mapping[str, str]) -> None:
        items = self._document.value(("spec", "tables"))
        for index, item in enumerate(items if isinstance(items, list) else []):
            name = item.get("name") if isinstance(item, dict) else None
            table = tables.get(name) if isinstance(name, str) else None
            if (
                table is None
                or table.route_by is not None
                or table.broadcast
                or str(table.name) not in routed
            ):
                continue
            message = (
                f"has no route_by, but {routed[str(table.name)]} has a route and would get everybody's rows; "
                "add route_by, or broadcast: true if that is meant"
            )
            self._complain(rules.ROUTE_WITHOUT_COLUMN, ("spec", "tables", index), message)


def catalog_is_usable(catalog: str) -> bool:
    """Whether it has one of the three forms; `ducklake:x` or a PostgreSQL URL would be taken for a file."""
    if catalog.startswith(_UNUSABLE_CATALOGS) or catalog == "sqlite:":
        return False
    return catalog.startswith("postgres:") or not catalog.endswith(os.sep)
