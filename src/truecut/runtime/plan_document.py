"""The document behind `truecut plan`: what `run` would do now.

Promises to write nothing. Which copies are seeded, held or follow the log is the delivery machine's own
verdict (`dry_run`); sizes are the source's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from truecut.config.settings import Pipeline, SinkSettings
from truecut.core.delivery import CHANGED_CODE, Copy
from truecut.errors import Fault
from truecut.model.position import Position, text_of
from truecut.model.table import TableName
from truecut.runtime.control_readonly import peek_reports
from truecut.runtime.database import is_postgres
from truecut.runtime.dry_run import Outlook, is_outstanding, look_ahead
from truecut.runtime.pauses import how_to_resume
from truecut.runtime.revision import told
from truecut.sources.contract import Outstanding, Survey, TableFacts, TableRead
from truecut.sources.registry import survey_source

SCHEMA = "truecut.plan/v1"


def plan_document(pipeline: Pipeline) -> dict[str, Any]:
    """`truecut.plan/v1`. TruecutError when the source or the control store cannot be read."""
    outlook = look_ahead(pipeline)
    survey = survey_source(pipeline.source, generation=outlook.seen.head.generation)
    facts = {
        str(table.name): survey.facts(TableRead(table.name, table.key, table.route_by), outlook.seen)
        for table in pipeline.tables
    }
    running = peek_reports(pipeline.control, pipeline=pipeline.name).runners
    return _Forecast(pipeline, outlook, survey, facts, told(running)).document()


class _Forecast:
    """One plan in the making."""

    def __init__(
        self,
        pipeline: Pipeline,
        outlook: Outlook,
        survey: Survey,
        facts: Mapping[str, TableFacts | Fault],
        restart: list[str],
    ) -> None:
        self._pipeline = pipeline
        self._outlook = outlook
        self._facts = facts
        self._restart = restart
        # One question for each place, not for each sink.
        self._lacks = {
            (table, at): survey.outstanding(TableName.parse(table), after=at, seen=outlook.seen)
            for table, at in sorted(set(self._places()))
        }

    def document(self) -> dict[str, Any]:
        seen = self._outlook.seen
        return {
            "schema": SCHEMA,
            "pipeline": self._pipeline.name,
            "observed_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "source": {
                "type": self._pipeline.source.type,
                "head": str(seen.head),
                "oldest": str(seen.oldest),
            },
            "tables": [_table(name, facts) for name, facts in self._facts.items()],
            "creates": [*self._state_files(), *self._missing(), *self._tables()],
            "seeds": list(self._seeds()),
            "stops": list(self._stops()),
            "sinks": [self._sink(sink) for sink in self._pipeline.sinks],
            "unrouted": dict(self._outlook.known.unrouted),
            "restart_to_apply": self._restart,
            "retires": sorted(self._outlook.known.sinks - {sink.name for sink in self._pipeline.sinks}),
        }

    # --- what would be made ---------------------------------------------------------------------------

    def _state_files(self) -> Iterator[dict[str, Any]]:
        if not self._pipeline.state.exists():
            yield _create("state", str(self._pipeline.state))
        if not self._outlook.known.exists:
            control = self._pipeline.control.reveal()
            yield _create("control", "postgres:***" if is_postgres(control) else control)

    def _missing(self) -> Iterator[dict[str, Any]]:
        for sink in self._pipeline.sinks:
            for kind, name in self._outlook.looks[sink.name].missing:
                yield _create(kind, name, sink.name)

    def _tables(self) -> Iterator[dict[str, Any]]:
        for sink in self._pipeline.sinks:
            look = self._outlook.looks[sink.name]
            for seed in self._sink_seeds(sink):
                if seed["table"] not in look.tables:
                    yield _create("table", seed["table"], sink.name)

    # --- what would be copied -------------------------------------------------------------------------

    def _seeds(self) -> Iterator[dict[str, Any]]:
        for sink in self._pipeline.sinks:
            yield from self._sink_seeds(sink)

    def _sink_seeds(self, sink: SinkSettings) -> Iterator[dict[str, Any]]:
        refused = self._refused(sink)
        for table, copy in self._copies(sink).items():
            if table in refused:
                continue
            if copy.status == "unseeded":
                yield _seed(sink, table, self._outlook.reason(sink.name, table))
            elif _needs_accept(copy):
                yield _seed(sink, table, "settings changed", needs_accept=True)

    def _stops(self) -> Iterator[dict[str, Any]]:
        for sink in self._pipeline.sinks:
            for table, fault in self._refused(sink).items():
                yield _stop(sink, table, fault)
            for table, copy in self._copies(sink).items():
                if copy.hold is not None:
                    yield _stop(sink, table, Fault(copy.hold.code, copy.hold.message, _way_out(table, copy)))

    def _refused(self, sink: SinkSettings) -> dict[str, Fault]:
        """Tables that the source cannot give, or that somebody else has made at the sink."""
        wanted = {t for t, copy in self._copies(sink).items() if copy.status != "held"}
        faults = {name: facts for name, facts in self._facts.items() if isinstance(facts, Fault)}
        both = {**faults, **self._outlook.looks[sink.name].refused}
        return {table: fault for table, fault in both.items() if table in wanted}

    def _copies(self, sink: SinkSettings) -> dict[str, Copy]:
        return dict(self._outlook.state.sinks[sink.name].copies)

    # --- where each sink stands -----------------------------------------------------------------------

    def _sink(self, sink: SinkSettings) -> dict[str, Any]:
        state = self._outlook.state.sinks[sink.name]
        lacks = [self._lacks[place] for place in self._streams(sink)]
        return {
            "name": sink.name,
            "action": self._action(sink, lacks),
            "cursor": text_of(state.cursor),
            "outstanding": {
                "snapshots": max((lack.transactions for lack in lacks), default=0),
                "changes_estimate": sum(lack.changes for lack in lacks),
                "bytes_estimate": sum(lack.size_bytes for lack in lacks),
            },
            "error": None if state.fault is None else state.fault.document(),
        }

    def _action(self, sink: SinkSettings, lacks: list[Outstanding]) -> str:
        state = self._outlook.state.sinks[sink.name]
        if state.fault is not None:
            return "unknown"
        if state.paused:
            return "paused"
        if any(not seed["needs_accept"] for seed in self._sink_seeds(sink)):
            return "seed"
        if lacks:
            return "changes"
        return "held" if any(copy.hold for copy in state.copies.values()) or self._refused(sink) else "none"

    def _places(self) -> list[tuple[str, Position]]:
        return [place for sink in self._pipeline.sinks for place in self._streams(sink)]

    def _streams(self, sink: SinkSettings) -> list[tuple[str, Position]]:
        return [
            (table, copy.at)
            for table, copy in self._copies(sink).items()
            if copy.at is not None and is_outstanding(copy, self._outlook.seen)
        ]


def _table(name: str, facts: TableFacts | Fault) -> dict[str, Any]:
    if isinstance(facts, Fault):
        return {
            "name": name,
            "rows": None,
            "bytes": None,
            "units": None,
            "left_out": [],
            "error": facts.document(),
        }
    told = {
        "rows": facts.rows,
        "bytes": facts.size_bytes,
        "units": facts.units,
        "left_out": list(facts.left_out),
    }
    return {"name": name, **told, "error": None}


def _create(kind: str, name: str, sink: str | None = None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "sink": sink}


def _seed(sink: SinkSettings, table: str, reason: str, *, needs_accept: bool = False) -> dict[str, Any]:
    return {"table": table, "sink": sink.name, "reason": reason, "needs_accept": needs_accept}


def _stop(sink: SinkSettings, table: str, fault: Fault) -> dict[str, Any]:
    return {
        "table": table,
        "sink": sink.name,
        "code": fault.code,
        "message": fault.message,
        "fix": fault.fix,
    }


def _needs_accept(copy: Copy) -> bool:
    return copy.hold is not None and copy.hold.code == CHANGED_CODE


def _way_out(table: str, copy: Copy) -> str:
    if _needs_accept(copy):
        return "Run once with --accept to replace the copy, or take the change of the settings back."
    return how_to_resume(table, "" if copy.hold is None else copy.hold.fix)
