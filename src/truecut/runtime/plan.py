"""From a wave that the core asks for to a Spark job: reads, routes and one order for each sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from truecut.config.settings import Pipeline, SinkSettings, TableSettings, copy_fingerprint
from truecut.core.delivery import CopySettings, SinkOrder, SinkState, Wave
from truecut.model.cursor import Hold
from truecut.model.order import Order, TableOrder
from truecut.model.position import Position
from truecut.model.table import Mode, TableName, TableSchema
from truecut.sources.contract import Source, TableRead, Window, WindowLimits
from truecut.spark.reading import Reading
from truecut.spark.route import TableRoute
from truecut.spark.wave import WaveJob


def wanted(pipeline: Pipeline, *, accept: bool = False) -> dict[str, SinkState]:
    """Where the delivery machine starts: every sink with the tables that the pipeline wants there."""
    tables = {str(table.name): table for table in pipeline.tables}
    return {
        sink.name: SinkState(
            {
                name: CopySettings(mode, tables[name].on_gap, copy_fingerprint(tables[name], sink), accept)
                for name, mode in sink.modes.items()
            }
        )
        for sink in pipeline.sinks
    }


@dataclass(frozen=True, slots=True)
class Planner:
    """Knows the pipeline's settings by name."""

    pipeline: Pipeline
    source_identity: str

    def window(self, source: Source, wave: Wave, *, parallelism: int) -> Window:
        """What to read for this wave. An idle cursor needs no read at all."""
        if wave.kind == "persist":
            return Window(wave.upto_max, 0, (), {}, 0)
        tables = {t.name: t for t in self.pipeline.tables}
        wanted = [tables[TableName.parse(name)] for name in wave.tables]
        if wave.kind == "seed":
            reads = [_read(table) for table in wanted]
            return source.plan_seed(reads, at=wave.upto_max, parallelism=parallelism)
        modes = self._modes(wave)
        places = {table.name: (_read(table), _place(wave, table), modes[str(table.name)]) for table in wanted}
        batch = self.pipeline.batch
        limits = WindowLimits(batch.rows_max, batch.bytes_max, not_before=wave.after)
        return source.plan_window(places, upto_max=wave.upto_max, limits=limits, parallelism=parallelism)

    def job(self, wave: Wave, window: Window, *, slots: int, deadline_ms: int) -> WaveJob:
        """The Spark job that carries the window."""
        settings = {sink.name: sink for sink in self.pipeline.sinks}
        sinks = tuple(settings[name] for name in wave.sinks)
        tables = tuple(wave.tables)
        return WaveJob(
            pipeline=self.pipeline.name,
            reading=Reading(
                tasks=tuple(window.tasks),
                tables=tables,
                routes=tuple(self._route(name, sinks) for name in tables),
                orders=tuple(self._order(wave, window, sink, wave.sinks[sink.name]) for sink in sinks),
                commit_all=wave.kind != "changes" or bool(window.faults),
            ),
            sinks=sinks,
            slots=max(1, min(slots, len(sinks))),
            deadline_ms=deadline_ms,
            aside=wave.late or wave.kind == "seed",
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
        carried = [name for name in wave.tables if name in sink.modes]
        holds = {**known.holds, **self._faults(wave, window, carried, known)}
        tables = {
            name: TableOrder(
                kind="replace" if wave.kind == "seed" else "changes",
                mode=sink.modes[name],
                key=self._table(name).key,
                schema=_schema(window, name),
                fingerprint=copy_fingerprint(self._table(name), sink),
            )
            for name in carried
            if name not in holds
        }
        held = {
            name: TableOrder("hold", sink.modes[name], self._table(name).key, None, hold)
            for name, hold in holds.items()
        }
        return Order(
            sink=sink.name,
            epoch=known.epoch,
            token=known.token,
            expected=known.expected,
            upto=window.upto,
            source_identity=self.source_identity,
            tables={**tables, **held},
            carried=frozenset(sink.modes),
        )

    def _faults(self, wave: Wave, window: Window, carried: list[str], known: SinkOrder) -> Mapping[str, Hold]:
        faults = {str(name): fault for name, fault in window.faults.items()}
        return {
            name: Hold(_held_at(wave, name, known), faults[name].code, faults[name].message)
            for name in carried
            if name in faults
        }

    def _table(self, name: str) -> TableSettings:
        return next(table for table in self.pipeline.tables if str(table.name) == name)


def _read(table: TableSettings) -> TableRead:
    return TableRead(table.name, table.key, table.route_by)


def _place(wave: Wave, table: TableSettings) -> Position:
    place = wave.tables[str(table.name)]
    assert place is not None, "a table that streams has a place"
    return place


def _held_at(wave: Wave, name: str, known: SinkOrder) -> Position:
    return wave.tables[name] or known.expected or wave.upto_max


def _schema(window: Window, name: str) -> TableSchema:
    return window.schemas[TableName.parse(name)]
