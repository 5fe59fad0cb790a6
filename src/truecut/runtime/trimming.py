"""The journal is kept as long as a sink needs it: what all have is trimmed, by whoever captures.

Reads off the control store what every copy has durably. Promises: nothing is trimmed that a copy still has
to read, unless its sink holds back more than it may (`hold`): then it is let go, and copied anew when it
returns.
Runs in a thread of its own: capture may be waiting for just the room that this makes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from truecut.config.settings import Pipeline, SinkSettings
from truecut.errors import TruecutError
from truecut.journal.contract import Journal
from truecut.journal.retention import retain
from truecut.model.position import Position
from truecut.runtime.control import Reports
from truecut.runtime.control_readonly import Known, peek, peek_reports
from truecut.sources.postgres.captured import CapturedLog, Extent

log = logging.getLogger(__name__)

TRIM_S = 5.0


class Trimming:
    """Of one journal that is open for writing."""

    def __init__(self, pipeline: Pipeline, journal: Journal) -> None:
        self._pipeline = pipeline
        self._journal = journal
        self._log = CapturedLog(journal)
        self._over = threading.Event()
        self._detached: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._run, name="truecut trimming", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Before the journal is closed."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(TRIM_S):
            try:
                self.trim()
            except TruecutError as error:
                log.warning("the journal is not trimmed: %s", error.fault.message)

    def trim(self) -> None:
        """Once."""
        extent = self._log.extent()
        if extent is None:
            return
        control = self._pipeline.control
        known = peek(control, pipeline=self._pipeline.name)
        reports = peek_reports(control, pipeline=self._pipeline.name)
        needed = needed_from(self._pipeline, known, reports, extent)
        head = self._journal.head()
        acknowledged = {
            sink: None if place is None else self._record(extent, place, head)
            for sink, place in needed.items()
        }
        bounds = {sink.name: sink.hold_bytes_max for sink in self._pipeline.sinks}
        last = Position(extent.generation, extent.last.record)
        decision = retain(self._journal, acknowledged, bytes_max=bounds, certified=head, resumes_at=last)
        for sink in sorted(decision.detached - self._detached):
            log.warning(
                "%s holds back more of the journal than it may: it is copied anew when it returns", sink
            )
        self._detached = decision.detached

    def _record(self, extent: Extent, place: int, head: Position | None) -> Position | None:
        """The last record that is not needed: the one before the marker behind which reading begins. Who has
        everything holds nothing back."""
        if place >= extent.last.lsn - 1:
            return head
        mark = self._log.before(extent, max(place + 1, extent.first.lsn))
        return Position(extent.generation, mark.record - 1)


def needed_from(pipeline: Pipeline, known: Known, reports: Reports, extent: Extent) -> dict[str, int | None]:
    """For each sink the place up to which it has everything; None: nobody knows, so nothing is trimmed."""
    generation = known.generations.get(extent.identity)
    if generation is None:
        return dict.fromkeys((sink.name for sink in pipeline.sinks), None)
    whole = {str(table.name) for table in pipeline.tables if table.backfill != "none"}
    return {
        sink.name: _needed(sink, reports.sinks.get(sink.name), generation, whole, extent.last.lsn - 1)
        for sink in pipeline.sinks
    }


def _needed(
    sink: SinkSettings, report: Mapping[str, Any] | None, generation: int, whole: set[str], head: int
) -> int | None:
    if report is None:
        return None
    place = head
    for table in sink.modes:
        told = report.get("tables", {}).get(table)
        if told is None or (told["status"] == "unseeded" and table in whole):
            return None  # its copy is on its way, from a place that only it knows
        durable = told.get("durable")
        if durable is None:
            continue
        at = Position.parse(durable)
        if at.generation == generation and told["status"] != "unseeded":
            place = min(place, at.place)
    return place
