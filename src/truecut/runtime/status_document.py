"""The document behind `truecut status`: what the runners last reported, put together.

While somebody runs the pipeline, lag is as that runner told it; of one that nobody runs, as the source itself
says now (`source_standing`). Totals are those of all runs. A run takes up what was added to the file, and
lets go of what was taken out, in a moment: until then that is told as it is, with a note. What waits for a
restart is named.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from truecut.config.settings import Pipeline, SinkSettings
from truecut.model.position import Position
from truecut.runtime.capture_report import Captured
from truecut.runtime.control import Reports
from truecut.runtime.pauses import Pauses, how_to_resume
from truecut.runtime.revision import told
from truecut.runtime.source_standing import Standing
from truecut.runtime.totals import Written
from truecut.runtime.verified import Results, iso

SCHEMA = "truecut.status/v1"
ADDED = "no run has taken it up yet"
REMOVED = "it was taken out of the file, and the run that delivers to it has not seen that yet"


def status_document(
    pipeline: Pipeline,
    reports: Reports,
    pauses: Pauses,
    standing: Standing | None = None,
    *,
    capture: Captured | None = None,
    certified: Mapping[tuple[str, str], str] | None = None,
    verified: Results | None = None,
) -> dict[str, Any]:
    """`truecut.status/v1`. Sinks that were taken out of the file are listed as retired, once no run delivers
    to them any more."""
    totals = reports.totals.by_sink()
    heard = capture or Captured()
    status = _Status(pipeline, reports, pauses, standing, totals, heard, certified or {}, verified or {})
    return status.document()


@dataclass(frozen=True, slots=True)
class _Status:
    """One document in the making."""

    pipeline: Pipeline
    reports: Reports
    pauses: Pauses
    standing: Standing | None  # of the source, where nobody runs the pipeline
    applied: Mapping[str, int]  # sink → rows of all runs
    capture: Captured
    certified: Mapping[tuple[str, str], str]  # (table, sink) → up to where
    verified: Results
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def document(self) -> dict[str, Any]:
        wanted = {sink.name for sink in self.pipeline.sinks}
        sinks = [self._sink(sink) for sink in self.pipeline.sinks]
        others = {name: report for name, report in self.reports.sinks.items() if name not in wanted}
        removed = [self._removed(name, report) for name, report in others.items()]
        return {
            "schema": SCHEMA,
            "pipeline": self.pipeline.name,
            "state": self._state(sinks),
            "observed_at": iso(self.now_ms),
            "restart_to_apply": told(self.reports.runners),
            "source": self._source(),
            "sinks": sinks + removed,
            "tables": [self._table(str(table.name)) for table in self.pipeline.tables],
            "copies": [copy for sink in self.pipeline.sinks for copy in self._copies(sink)],
        }

    def _state(self, sinks: list[dict[str, Any]]) -> str:
        if not self.reports.running:
            return "stopped"
        if self.pauses.everything:
            return "paused"
        return "failed" if sinks and all(sink["state"] == "failed" for sink in sinks) else "running"

    def _source(self) -> dict[str, Any]:
        last = self.reports.last
        head, oldest, error = last.get("head"), last.get("oldest"), last.get("error")
        seen_at_ms = last.get("seen_at_ms")
        if self.standing is not None:
            fault, seen = self.standing.fault, self.standing.seen
            error = None if fault is None else fault.document()
            if seen is not None:
                head, oldest, seen_at_ms = str(seen.head), str(seen.oldest), self.now_ms
        return {
            "type": self.pipeline.source.type,
            "head": head,
            "captured": head,  # what is seen is captured, or of a source that keeps its own history
            "captured_by": self.capture.state,
            "released": self._released(head),
            "oldest": oldest,
            "seen_at": None if seen_at_ms is None else iso(int(seen_at_ms)),
            "retained_bytes": self.capture.retained_bytes,
            "retained_bytes_per_s": self.capture.retained_bytes_per_s,
            "slot_lost_in_s": self.capture.slot_lost_in_s,
            "gap": self.capture.gap,
            "waits_for": self.capture.waits_for,
            "unrouted": dict(self.reports.totals.unrouted),
            "error": error,
        }

    def _released(self, head: str | None) -> str | None:
        """In the generation of what is captured."""
        place = self.capture.released
        return (
            None if place is None or head is None else str(Position(Position.parse(head).generation, place))
        )

    # --- sinks ----------------------------------------------------------------------------------------

    def _sink(self, sink: SinkSettings) -> dict[str, Any]:
        reported = self.reports.sinks.get(sink.name)
        paused = self.pauses.everything or sink.name in self.pauses.sinks
        report = reported or {"state": "behind", "cursor": None, "lag_ms": None, "error": None}
        lag_ms = self._lag_ms(sink, report)
        state = "paused" if paused else self._state_now(str(report["state"]), lag_ms)
        if self.capture.state is not None and self._is_left_behind(sink, report):
            state = "detached"
        unknown = self.reports.running and not reported and sink.name not in self.reports.owners
        return self._line(sink.name, state, {**report, "lag_ms": lag_ms}, note=ADDED if unknown else None)

    def _lag_ms(self, sink: SinkSettings, report: Mapping[str, Any]) -> int | None:
        """As told by whoever runs it. While the source does not answer, nobody knows what has come since."""
        if self.standing is not None:
            return self.standing.lag_ms(self._place(sink, report), now_ms=self.now_ms)
        told, last = report["lag_ms"], self.reports.last
        if told is None or not last.get("error"):
            return None if told is None else int(told)
        unseen_ms = self.now_ms - int(last.get("seen_at_ms") or 0)
        return max(int(told), unseen_ms)

    def _place(self, sink: SinkSettings, report: Mapping[str, Any]) -> Position | None:
        """Where a sink was left. A table that was paused then, and is not now, counts again; one that nobody
        has told of is not there at all."""
        told: Mapping[str, Any] = report.get("tables", {})
        if report.get("position") is None or sink.modes.keys() - told.keys():
            return None
        copies = [told[table] for table in sink.modes if table not in self.pauses.tables]
        places = [copy["at"] for copy in copies if copy["status"] == "streaming"]
        return Position.parse(min(places, default=report["position"]))

    def _state_now(self, state: str, lag_ms: int | None) -> str:
        """A sink that was current when it was left may be behind by now, and one that was paused then is not
        any more."""
        if self.standing is None or state not in ("current", "behind", "paused"):
            return state
        return "current" if lag_ms == 0 else "behind"

    def _is_left_behind(self, sink: SinkSettings, report: Mapping[str, Any]) -> bool:
        """Whether the journal goes on without it: a copy stands before its oldest position. One never
        made stands nowhere."""
        if (text := self._source()["oldest"]) is None:
            return False
        oldest, told = Position.parse(text), report.get("tables", {})
        durable = [told[table].get("durable") for table in sink.modes if table in told]
        places = [Position.parse(at) for at in durable if at is not None]
        return any(at.generation == oldest.generation and 0 < at.place < oldest.place for at in places)

    def _removed(self, name: str, report: Mapping[str, Any]) -> dict[str, Any]:
        """Retired, unless some run has its lease: that one still delivers to it."""
        if name in self.reports.owners:
            return self._line(name, str(report["state"]), report, in_file=False, note=REMOVED)
        return self._line(name, "retired", {**report, "lag_ms": None, "error": None}, in_file=False)

    def _line(
        self,
        name: str,
        state: str,
        report: Mapping[str, Any],
        *,
        in_file: bool = True,
        note: str | None = None,
    ) -> dict[str, Any]:
        return {
            "name": name,
            "state": state,
            "cursor": report.get("cursor"),
            "lag_ms": report["lag_ms"],
            "rows_applied": self.applied.get(name, 0),
            "error": report.get("error"),
            "in_file": in_file,
            "note": note,
        }

    # --- tables ---------------------------------------------------------------------------------------

    def _table(self, name: str) -> dict[str, Any]:
        copies = {s.name: self._told(s.name, name) for s in self.pipeline.sinks if name in s.modes}
        errors = [copy["error"] for copy in copies.values() if copy and copy["error"] is not None]
        states = {self._copy_state(sink, name, told) for sink, told in copies.items()}
        totals = self.reports.totals
        filled = [rows.backfilled for (_, table), rows in totals.written.items() if table == name]
        return {
            "name": name,
            "state": "paused" if name in self.pauses.tables else _worst(states),
            "rows_backfilled": sum(filled),
            "rows_unrouted": totals.unrouted.get(name, 0),
            "error": errors[0] if errors else None,
        }

    def _told(self, sink: str, table: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.reports.sinks.get(sink, {}).get("tables", {}).get(table, {})
        return found

    def _copies(self, sink: SinkSettings) -> Iterable[dict[str, Any]]:
        for table, mode in sink.modes.items():
            told = self._told(sink.name, table)
            error = told.get("error")
            looked = self.verified.get((table, sink.name))
            passed_at_ms = None if looked is None else looked.passed_at_ms
            yield {
                "table": table,
                "sink": sink.name,
                "mode": mode,
                "state": self._copy_state(sink.name, table, told),
                "replicated_upto": told.get("at"),
                "waits_for": told.get("waits_for"),
                "rows_applied": self.reports.totals.written.get((sink.name, table), Written()).applied,
                "error": None if error is None else {"fix": how_to_resume(table), **error},
                "certified_upto": self.certified.get((table, sink.name)),
                "verified_upto": None if looked is None else looked.upto,
                "verified_at": None if passed_at_ms is None else iso(passed_at_ms),
                "verification": None if looked is None else looked.document(),
            }

    def _copy_state(self, sink: str, table: str, told: Mapping[str, Any]) -> str:
        """One that nobody tells of was never seeded, unless somebody has ever written to it."""
        if told or (sink, table) not in self.reports.totals.written:
            return "failed" if told.get("error") else _STATES[told.get("status")]
        return "failed" if self.reports.sinks.get(sink, {}).get("error") else "streaming"


_STATES = {None: "pending", "unseeded": "backfilling", "held": "failed", "streaming": "streaming"}


def _worst(states: set[str]) -> str:
    return next((state for state in ("failed", "backfilling", "pending") if state in states), "streaming")
