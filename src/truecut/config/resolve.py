"""From the file as written to the settings the program uses; checks what spans several values.

Works on the parts whose shape is right, so that one misspelt key does not hide a duplicated sink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath

from truecut.config import file as written
from truecut.config import rules, shape, units
from truecut.config.finding import did_you_mean, show
from truecut.config.kinds import SINKS, SOURCES, Address, SinkKind, SourceKind, Unusable
from truecut.config.report import Document, Path, Problem
from truecut.config.secret import Secret
from truecut.config.section import Section, SinkSection
from truecut.config.settings import (
    WILDCARDS,
    BatchSettings,
    CertificateSettings,
    JournalSettings,
    ListenSettings,
    Pipeline,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    TableSettings,
    VerifySettings,
    WitnessSettings,
)
from truecut.config.sinks import Place, SinkBuilder, refuse_shared_catalogs
from truecut.config.state import StateFolder
from truecut.listen_address import Address as ListenAddress
from truecut.model.table import Mode, TableName
from truecut.state_folder import CERTIFICATES, CONTROL, JOURNAL, UNITS

_SLOT = re.compile(r"[a-z0-9_]{1,63}")


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
    folder = StateFolder(state, named=whole.spec.state is not None, base=path.parent)
    problems += folder.problems(source, resolver.built)
    control = resolver.control(whole.spec.control, state)
    journal = resolver.journal(whole.spec.journal, state)
    listen = resolver.listen(whole.spec.listen, whole.spec.listen_token)
    witness = resolver.witness(whole.spec.certificate, whole.metadata.name)
    if problems:
        return None
    batch = whole.spec.batch
    return Pipeline(
        name=whole.metadata.name,
        path=path,
        source=replace(
            source,
            pipeline=whole.metadata.name,
            journal=journal,
            tables=tuple(tables.values()),
            units=state / UNITS,
            witness=witness,
        ),
        tables=tuple(tables.values()),
        sinks=tuple(_holding(sink, journal.bytes_max // 2) for sink in sinks),
        batch=BatchSettings(
            rows_max=batch.rows_max,
            bytes_max=units.size_bytes(batch.bytes_max),
            interval_ms=units.duration_ms(batch.interval),
            deadline_ms=units.duration_ms(batch.deadline),
        ),
        lease_ms=units.duration_ms(whole.spec.lease.duration),
        control=Secret(control),
        state=state,
        spark=resolver.spark(whole.spec.spark),
        listen=listen,
        files=(path, *resolver.for_each_files),
        certificate=resolver.certificate(whole.spec.certificate, state),
    )


def _holding(sink: SinkSettings, bytes_max: int) -> SinkSettings:
    """With how much of the journal it may hold back, where the file does not say."""
    return sink if sink.hold_bytes_max else replace(sink, hold_bytes_max=bytes_max)


class _Resolver:
    def __init__(self, document: Document, problems: list[Problem], *, path: FilePath, file: str) -> None:
        self._document = document
        self._problems = problems
        self._base = path.parent
        self._file = file
        # Of a source that is not available yet nobody knows here what its tables need.
        self._kind = SOURCES.find(document.value(("spec", "source", "type")))
        self._broken = {broken[:length] for broken in document.broken for length in (2, 3)}
        self.built: list[tuple[SinkSettings, Place]] = []
        self.for_each_files: tuple[FilePath, ...] = ()

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
        wild = not WILDCARDS.isdisjoint(table.name)
        if wild and (self._kind is None or not self._kind.lists_tables):
            if self._kind is not None:
                message = f"wildcards do not work with a {self._kind.title} source yet; name each table"
                self._complain(rules.GLOB, here, message)
            return None
        if table.exclude and not wild:
            self._complain(rules.GLOB, (*path, "exclude"), "belongs to a name with wildcards, e.g. public.*")
        try:
            return TableName.parse(table.name)
        except ValueError:
            message = f"{self._shown(here, table.name)} is not schema.table; write e.g. main.events"
            self._complain(rules.TABLE_NAME, here, message)
            return None

    def _table(self, path: Path, name: TableName, table: written.Table) -> TableSettings:
        key = table.key or []
        if not key and self._kind is not None and not self._kind.knows_keys:
            what = "is missing" if table.key is None else "names no column"
            why = f"{self._kind.title} knows no primary keys"
            message = f"{what}; {why}: name the columns that identify a row, e.g. [id]"
            self._complain(rules.KEY_MISSING, (*path, "key"), message)
        elif len({column.lower() for column in key}) < len(key):
            self._complain(rules.OUT_OF_RANGE, (*path, "key"), "names a column twice")
        if table.backfill != "initial" and self._kind is not None and not self._kind.captured:
            message = f"a {self._kind.title} source is copied whole; take it out"
            self._complain(rules.NOT_YET, (*path, "backfill"), message)
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
            backfill=table.backfill,
            on_schema_change=table.on_schema_change,
            exclude=tuple(table.exclude),
        )

    # --- source and control ---------------------------------------------------------------------------

    def source(self) -> SourceSettings | None:
        path: Path = ("spec", "source")
        if self._kind is None or not self._usable(path):
            return None
        source = shape.validate(self._kind.section, self._document.value(path))
        address = source and self._address(self._kind, path, source)
        return SourceSettings(source.type, address) if source and address else None

    def _address(self, kind: SourceKind | SinkKind, path: Path, section: Section) -> Address | None:
        try:
            return kind.settle(section, base=self._base)
        except Unusable as error:
            self._complain(rules.OUT_OF_RANGE, (*path, error.setting), error.message)
            return None

    def control(self, control: str | None, state: FilePath) -> str:
        """A file's absolute path, or a PostgreSQL URL as it is."""
        if control is None:
            return str(state / CONTROL)
        if control.startswith(("postgresql://", "postgres://")):
            return control
        if "://" in control:
            self._complain(rules.OUT_OF_RANGE, ("spec", "control"), "write a file's path or postgresql://…")
        return str(self._base / control)

    def journal(self, journal: written.Journal, state: FilePath) -> JournalSettings:
        """A folder, or a replicated log."""
        here: Path = ("spec", "journal")
        if journal.nodes is not None and journal.coordinator is None:
            self._complain(
                rules.MISSING, (*here, "coordinator"), "is missing; nodes have one that knows them"
            )
        path = state / JOURNAL if journal.path is None else self._base / journal.path
        return JournalSettings(path, units.size_bytes(journal.bytes_max), journal.coordinator)

    def certificate(
        self, certificate: written.Certificate | None, state: FilePath
    ) -> CertificateSettings | None:
        """Where they are, if they are wanted."""
        if certificate is None:
            return None
        path = state / CERTIFICATES if certificate.path is None else self._base / certificate.path
        keep_ms = None if certificate.keep is None else units.duration_ms(certificate.keep)
        asked = certificate.verify
        verify = None if asked is None else VerifySettings(asked.level, units.duration_ms(asked.interval))
        return CertificateSettings(path, units.duration_ms(certificate.interval), keep_ms, verify)

    def witness(self, certificate: written.Certificate | None, pipeline: str) -> WitnessSettings | None:
        """Only of a source that is captured: every other one keeps its history itself."""
        if certificate is None or certificate.witness is None:
            return None
        here: Path = ("spec", "certificate", "witness")
        if self._kind is not None and not self._kind.captured:
            self._complain(rules.WITNESS, here, "belongs to a source that is captured (type postgres)")
        elif not _SLOT.fullmatch(certificate.witness):
            self._complain(rules.WITNESS, here, "a slot's name has small letters, digits and _, at most 63")
        elif certificate.witness == (
            self._document.value(("spec", "source", "slot")) or f"truecut_{pipeline}"
        ):
            self._complain(rules.WITNESS, here, "is the slot that changes are captured from; name another")
        return WitnessSettings(certificate.witness, units.size_bytes(certificate.witness_bytes_max))

    def spark(self, spark: written.Spark) -> SparkSettings:
        """With the lines of what the file says, for whoever finds that Spark does not take it."""
        here: Path = ("spec", "spark")
        lines = {"master": self._document.line((*here, "master"))}
        lines |= {name: self._document.line((*here, "conf", name)) for name in spark.conf}
        return SparkSettings(spark.master, dict(spark.conf), lines)

    def listen(self, address: str | None, token: str | None) -> ListenSettings:
        """Beyond this machine only with a token."""
        here: Path = ("spec", "listen")
        secret = None if token is None else Secret(token)
        try:
            found = None if address is None else ListenAddress.parse(address)
        except ValueError:
            self._complain(rules.OUT_OF_RANGE, here, "expected HOST:PORT, e.g. 127.0.0.1:9464")
            return ListenSettings()
        if found is not None and not found.loopback and secret is None:
            message = "other machines can reach this address; give a listen_token, or listen on 127.0.0.1"
            self._complain(rules.LISTEN_OPEN, here, message)
        return ListenSettings(address, secret)

    # --- sinks ----------------------------------------------------------------------------------------

    def sinks(self, tables: Mapping[str, TableSettings], source: SourceSettings | None) -> list[SinkSettings]:
        """All sinks, those of `for_each` files included."""
        builder = SinkBuilder(self._document, self._problems, base=self._base, file=self._file)
        routed: dict[str, str] = {}  # table → a sink with a route that carries it
        items = self._document.value(("spec", "sinks"))
        for index, data in enumerate(items if isinstance(items, list) else []):
            path: Path = ("spec", "sinks", index)
            kind = SINKS.find(data.get("type")) if isinstance(data, dict) and self._usable(path) else None
            sink = None if kind is None else shape.validate(kind.section, data)
            if kind is None or sink is None:
                continue
            modes = self._modes(path, sink, tables)
            if sink.route is not None:
                for name in modes:
                    routed.setdefault(name, self._document.describe(path))
            if self._address(kind, path, sink) is not None:
                builder.add(path, sink, modes)
        self._refuse_unrouted(tables, routed)
        refuse_shared_catalogs(self._problems, builder.built, None if source is None else source.address)
        self.built = builder.built
        self.for_each_files = builder.files
        return [sink for sink, _ in builder.built]

    def _modes(self, path: Path, sink: SinkSection, tables: Mapping[str, TableSettings]) -> dict[str, Mode]:
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
