"""The journal is kept as long as a sink needs it: what all have is trimmed, by whoever captures.

Reads off the control store what every copy has durably. Promises: nothing is trimmed that a copy still has
to read, unless its sink holds back more than it may (`hold`): then it is let go, and copied anew when it
returns.
Runs in a thread of its own: capture may be waiting for just the room that this makes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any

from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.journal.contract import Journal
from truecut.journal.retention import retain
from truecut.model.position import Position
from truecut.runtime.control import Reports
from truecut.runtime.control_readonly import Known, peek, peek_reports
from truecut.sources.captured import Kept
from truecut.sources.registry import captured_source

log = logging.getLogger(__name__)

TRIM_S = 5.0


class Trimming:
    """Of one journal that is open for writing."""

    def __init__(self, pipeline: Pipeline, journal: Journal, came: set[str] | None = None) -> None:
        """`came`: sinks that somebody has had since we look, also for whoever trims after us."""
        self._pipeline = pipeline
        self._came = set() if came is None else came
        self._journal = journal
        self._over = threading.Event()
        settings = pipeline.source.journal
        self._hold_bytes_max = 1 << 62 if settings is None else settings.bytes_max // 2
        self._detached: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._run, name="truecut trimming", daemon=True)
        self._thread.start()

    @cached_property
    def _kept(self) -> Callable[[], Kept | None]:
        return captured_source(self._pipeline.source).kept(self._journal)

    def close(self) -> None:
        """Before the journal is closed."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:  # at once, too: a capture that finds the journal full is over before the first pause
            try:
                self.trim()
            except TruecutError as error:
                log.warning("the journal is not trimmed: %s", error.fault.message)
            except Exception as error:  # noqa: BLE001 - none may end it: the journal would fill up
                log.warning("the journal is not trimmed (%s); it is tried again", type(error).__name__)
            if self._over.wait(TRIM_S):
                return

    def trim(self) -> None:
        """Once."""
        kept = self._kept()
        if kept is None:
            return
        control = self._pipeline.control
        known = peek(control, pipeline=self._pipeline.name)
        reports = peek_reports(control, pipeline=self._pipeline.name)
        self._came.update(reports.owners)
        needed = needed_from(self._pipeline, known, reports, kept, self._came)
        head = self._journal.head()
        acknowledged = {
            sink: None if place is None else head if place >= kept.head else kept.needless_after(place)
            for sink, place in needed.items()
        }
        own = {sink.name: sink.hold_bytes_max for sink in self._pipeline.sinks}
        bounds = {sink: own.get(sink, self._hold_bytes_max) for sink in needed}
        decision = retain(
            self._journal, acknowledged, bytes_max=bounds, certified=head, resumes_at=kept.resumes_at
        )
        for sink in sorted(decision.detached - self._detached):
            log.warning(
                "%s holds back more of the journal than it may: it is copied anew when it returns", sink
            )
        self._detached = decision.detached


def needed_from(
    pipeline: Pipeline, known: Known, reports: Reports, kept: Kept, came: AbstractSet[str] = frozenset()
) -> dict[str, int | None]:
    """For each sink the place up to which it has everything; None: nobody knows, so nothing is trimmed.

    Of the sinks that the file had when we began, without those that a run has retired since; and of those
    that a run has taken up since: it has their leases before it reads anything for them. `came`: those that
    had one at some time. Nobody may have it now, but somebody will.
    """
    modes: dict[str, Iterable[str]] = {sink.name: sink.modes for sink in pipeline.sinks}
    modes |= {name: _told_of(reports, name) for name in {*reports.owners, *came} if name not in modes}
    retired = {name for name, report in reports.sinks.items() if report.get("state") == "retired"}
    wanted = {name: own for name, own in modes.items() if name in reports.owners or name not in retired}
    generation = known.generations.get(kept.identity)
    if generation is None:
        return dict.fromkeys(wanted, None)
    whole = {str(table.name) for table in pipeline.tables if table.backfill != "none"}
    return {
        name: _needed(own, reports.sinks.get(name), generation, whole, kept.head)
        for name, own in wanted.items()
    }


def _told_of(reports: Reports, sink: str) -> list[str]:
    return list(reports.sinks.get(sink, {}).get("tables", {}))


def _needed(
    tables: Iterable[str], report: Mapping[str, Any] | None, generation: int, whole: set[str], head: int
) -> int | None:
    if report is None:
        return None
    place = head
    for table in tables:
        told = report.get("tables", {}).get(table)
        read = told is None or told["status"] == "unseeded" or told.get("again", False)
        if told is None or (read and table in whole):
            return None  # its copy is on its way, or another one, from a place that only it knows
        durable = told.get("durable")
        if durable is None:
            continue
        at = Position.parse(durable)
        if not at.place:
            continue  # held before it was ever copied: it goes on from nowhere in the log
        if at.generation == generation and told["status"] != "unseeded":
            place = min(place, at.place)
    return place
