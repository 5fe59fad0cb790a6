"""From a wave that the core asks for to a Spark job: reads, routes and one order for each sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline, SinkSettings, TableSettings, copy_fingerprint
from truecut.core.delivery import CopyOrder, CopySettings, SinkOrder, SinkState, Wave
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.cursor import Hold, Version
from truecut.model.order import Order, TableOrder
from truecut.model.position import UNTOLD, Position
from truecut.model.table import Mode, TableName, TableSchema
from truecut.runtime.certifier import wanted_of
from truecut.sources.contract import Source, TableRead, Window, WindowLimits
from truecut.spark.wave.job import WaveJob
from truecut.spark.wave.reading import Reading
from truecut.spark.wave.route import TableRoute


def wanted(pipeline: Pipeline, *, accept: bool = False) -> dict[str, SinkState]:
    """Where the delivery machine starts: every sink with the tables that the pipeline wants there."""
    tables = {str(table.name): table for table in pipeline.tables}
    return {
        sink.name: SinkState(
            {
                name: CopySettings(mode, _on_gap(tables[name]), copy_fingerprint(tables[name], sink), accept)
                for name, mode in sink.modes.items()
            }
        )
        for sink in pipeline.sinks
    }


def _on_gap(table: TableSettings) -> Literal["backfill", "stop"]:
    """A table of which only changes are wanted cannot be read again: it would lose what it has."""
    return "stop" if table.backfill == "none" else table.on_gap


@dataclass(frozen=True, slots=True)
class Planner:
    """Knows the pipeline's settings by name."""

    pipeline: Pipeline
    source_identity: str
    certificate: str = ""  # the last one's digest, for cursors to keep

    def window(self, source: Source, wave: Wave, *, parallelism: int) -> Window:
        """What to read for this wave. An idle cursor needs no read at all."""
        if wave.kind == "persist":
            return Window(wave.upto_max, 0, (), {}, 0)
        window = self._read_window(source, wave, parallelism)
        # Or renumbered, by somebody who has learnt of a later generation.
        if window.identity != self.source_identity or window.upto.generation != wave.upto_max.generation:
            raise _replaced()
        return window

    def _read_window(self, source: Source, wave: Wave, parallelism: int) -> Window:
        tables = {t.name: t for t in self.pipeline.tables}
        wanted = [tables[TableName.parse(name)] for name in wave.tables]
        if wave.kind == "seed":
            reads = [replace(_read(table), reading=self._reading(wave, str(table.name))) for table in wanted]
            return source.plan_seed(reads, at=wave.upto_max, parallelism=parallelism)
        assert wave.after is not None, "tables that stream have a place"
        modes = self._modes(wave)
        places = {table.name: (_read(table), wave.after, modes[str(table.name)]) for table in wanted}
        limits = WindowLimits(self.pipeline.batch.rows_max, self.pipeline.batch.bytes_max)
        return source.plan_window(places, upto_max=wave.upto_max, limits=limits, parallelism=parallelism)

    def _reading(self, wave: Wave, table: str) -> int:
        """How often the append tables of this wave will have been read: all of them as often."""
        editions = {
            wave.sinks[sink.name].tables[table].edition
            for sink in self.pipeline.sinks
            if sink.name in wave.sinks and sink.modes.get(table) == "append"
        }
        return max(editions, default=1)

    def job(self, wave: Wave, window: Window, *, slots: int, deadline_ms: int) -> WaveJob:
        """The Spark job that carries the window."""
        settings = {sink.name: sink for sink in self.pipeline.sinks}
        sinks = tuple(settings[name] for name in wave.sinks)
        return WaveJob(
            pipeline=self.pipeline.name,
            reading=Reading(
                tasks=tuple(window.tasks),
                tables=wave.tables,
                routes=tuple(self._route(name, sinks) for name in wave.tables),
                orders=tuple(self._order(wave, window, sink, wave.sinks[sink.name]) for sink in sinks),
                commit_all=wave.kind != "changes" or bool(window.faults) or bool(window.altered),
                evidence=wanted_of(self.pipeline),
                words=SOURCES[self.pipeline.source.type].words,
            ),
            sinks=sinks,
            slots=max(1, min(slots, len(sinks))),
            deadline_ms=deadline_ms,
            aside=wave.late or wave.kind == "seed",
            rows_estimate=window.rows_estimate if wave.kind == "seed" else 0,
            evidence=wanted_of(self.pipeline),
        )

    def _modes(self, wave: Wave) -> Mapping[str, frozenset[Mode]]:
        sinks = [sink for sink in self.pipeline.sinks if sink.name in wave.sinks]
        return {
            table: frozenset(sink.modes[table] for sink in sinks if table in sink.modes)
            for table in wave.tables
        }

    def _route(self, name: str, sinks: tuple[SinkSettings, ...]) -> TableRoute:
        table = self._table(name)
        index = {sink.name: i for i, sink in enumerate(sinks)}
        everywhere: list[int] = []
        by_value: dict[str, tuple[int, ...]] = {}
        all_wanted = False
        for sink in self.pipeline.sinks:
            if name not in sink.modes:
                continue
            here = (index[sink.name],) if sink.name in index else ()
            if sink.route is None or table.broadcast:
                all_wanted = True
                everywhere.extend(here)
            else:
                by_value[sink.route] = by_value.get(sink.route, ()) + here
        column = table.route_by if by_value else None
        stop = table.unrouted == "stop"
        return TableRoute(column, tuple(everywhere), by_value, all_wanted=all_wanted, stop_unrouted=stop)

    def _order(self, wave: Wave, window: Window, sink: SinkSettings, known: SinkOrder) -> Order:
        faults = {str(name): fault for name, fault in window.faults.items()}
        return Order(
            sink=sink.name,
            epoch=known.epoch,
            token=known.token,
            upto=window.upto,
            source_identity=self.source_identity,
            certificate=self.certificate,
            tables={
                name: self._held(name, sink, of_copy, faults[name], window)
                if name in faults
                else self._table_order(name, sink, _kept(name, of_copy, window), window)
                for name, of_copy in known.tables.items()
            },
        )

    def _table_order(self, name: str, sink: SinkSettings, wanted: CopyOrder, window: Window) -> TableOrder:
        read = wanted.kind in ("changes", "replace")
        place = wanted.at if wanted.at is not None and not read else window.upto
        code = None if wanted.hold is None else wanted.hold.code
        return TableOrder(
            wanted.kind,
            sink.modes[name],
            self._table(name).key,
            _schema(window, name) if read else None,
            wanted.expected,
            Version(wanted.edition, place, code, wanted.resumed),
            wanted.hold,
            copy_fingerprint(self._table(name), sink),
            window.upto_source if place == window.upto else UNTOLD,
            began_empty=self._table(name).backfill == "none",
        )

    def _held(
        self, name: str, sink: SinkSettings, wanted: CopyOrder, fault: Fault, window: Window
    ) -> TableOrder:
        """The window says that this table cannot be read: it is held where it was read up to."""
        before = wanted.expected or Version(0, Position(window.upto.generation, 0))
        return TableOrder(
            "hold",
            sink.modes[name],
            self._table(name).key,
            None,
            wanted.expected,
            Version(before.edition, wanted.at or before.at, fault.code, wanted.resumed),
            Hold(fault.code, fault.message, fault.fix),
            copy_fingerprint(self._table(name), sink),
        )

    def _table(self, name: str) -> TableSettings:
        return next(table for table in self.pipeline.tables if str(table.name) == name)


def _kept(name: str, wanted: CopyOrder, window: Window) -> CopyOrder:
    """A table that has nothing in a window of changes only moves on."""
    nothing = wanted.kind == "changes" and TableName.parse(name) not in window.schemas
    return replace(wanted, kind="persist", at=window.upto) if nothing else wanted


def _replaced() -> TruecutError:
    """Its places mean nothing there: the next look gives it another generation."""
    return TruecutError(
        "TC2016",
        "the source was replaced by another since it was looked at",
        fix="None needed: what was planned is dropped, and the new source is looked at.",
        retry=Retry.RETRYABLE,
    )


def _read(table: TableSettings) -> TableRead:
    return TableRead(table.name, table.key, table.route_by)


def _schema(window: Window, name: str) -> TableSchema:
    return window.schemas[TableName.parse(name)]
