"""What runners tell each other through the control store: how their sinks are, and what they have counted.

Promises: only what changed is written, again if the store did not answer; what was counted under the number
that it had, so that it counts once whatever became of the answer; of a sink that was taken out of the file
and that nobody has, it is told, too, that it is retired; the loop never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from truecut.config.settings import SinkSettings
from truecut.errors import Fault
from truecut.model.position import Position
from truecut.runtime.background import Background
from truecut.runtime.control import ControlStore, Reports
from truecut.runtime.run_report import View
from truecut.runtime.totals import NOTHING, Tally
from truecut.runtime.until import Elsewhere, is_held, is_unreadable


class Bulletin:
    """One runner's side of it."""

    def __init__(
        self,
        control: ControlStore,
        background: Background,
        view: View,
        *,
        runner: str,
        on_store: Callable[[Fault | None], None],
    ) -> None:
        self._control = control
        self._background = background
        self._view = view
        self._on_store = on_store
        self._runner = runner
        self._told = 0  # tallies
        self._unanswered = NOTHING
        self._writing = False
        self._reading = False
        self._first_seen_ms: dict[str, int] = {}  # runner → when its leases were to end at our first look
        self._living: set[str] = set()  # runners with a heartbeat since then
        self._unclaimed: set[str] = set()  # out of the file, not ours: whoever has them tells it, if anybody
        self.reports = Reports(running=False, runners={}, sinks={})  # what was told when we last looked

    def elsewhere(self, *, but: str) -> dict[str, Elsewhere]:
        """How the sinks of other runners are, as was told last. What somebody has told who is gone is not
        believed: those sinks have to be asked. Nor is one that was killed before we began, though its leases
        still last: a runner counts from the first heartbeat on that we have seen of it."""
        return {
            sink.name: _told(report, sink)
            for sink in self._view.pipeline.sinks
            if self.reports.owners.get(sink.name) in self._living - {but}
            if (report := self.reports.sinks.get(sink.name)) is not None and report["position"] is not None
        }

    @property
    def busy(self) -> bool:
        """Whether something of ours is on its way."""
        return self._writing

    def publish(self) -> None:
        """Write what has changed since the last time."""
        if self._writing:
            return
        changed = self._view.changed_sinks()
        self._unanswered = tally = self._unanswered or self._next_tally()
        if not changed and not tally:
            return
        self._writing = True

        def failed(fault: Fault) -> None:
            self._writing = False
            self._view.report_again(changed)
            self._on_store(fault)

        self._background.submit(lambda: self._control.report_sinks(changed, tally), self._written, failed)

    def _next_tally(self) -> Tally:
        tally = self._view.take_tally()
        if not tally:
            return tally
        self._told += 1
        return replace(tally, runner=self._runner, number=self._told)

    def _written(self, unrouted: Mapping[str, int]) -> None:
        self._writing, self._unanswered = False, NOTHING
        self._view.unrouted = unrouted

    def retire(self, sinks: Iterable[str]) -> None:
        """These are out of the file, and not ours; what is in it again is not retired."""
        wanted = {sink.name for sink in self._view.pipeline.sinks}
        self._unclaimed = (self._unclaimed | set(sinks)) - wanted

    @property
    def unclaimed(self) -> bool:
        """Whether there are sinks of which it is not told yet that they are retired: `look` sees to it."""
        return bool(self._unclaimed)

    def _retire_unowned(self, reports: Reports) -> None:
        told = {name: reports.sinks.get(name, {}) for name in self._unclaimed}
        retired = {name for name, last in told.items() if last.get("state") == "retired"}
        unowned = {name for name in told if reports.owners.get(name, self._runner) == self._runner}
        self._view.retire_unowned({name: told[name] for name in unowned - retired})
        self._unclaimed -= retired | unowned

    def look(self) -> None:
        """Ask what other runners have told; `reports` is the answer, in a moment."""
        if self._reading:
            return
        self._reading = True

        def answered(reports: Reports) -> None:
            self._reading, self.reports = False, reports
            for runner, until_ms in reports.alive_until_ms.items():
                first_ms = self._first_seen_ms.setdefault(runner, until_ms)
                if until_ms > first_ms:
                    self._living.add(runner)
            self._living &= reports.runners.keys()
            self._retire_unowned(reports)

        def failed(fault: Fault) -> None:
            self._reading = False
            self._on_store(fault)

        self._background.submit(self._control.reports, answered, failed)


def _told(report: Mapping[str, Any], sink: SinkSettings) -> Elsewhere:
    """A report in the words of whoever judges. A table that it does not tell of has no place."""
    copies = {table: report["tables"].get(table, {}) for table in sink.modes}
    stuck = {table: why for table, copy in copies.items() if (why := _stuck(table, copy)) is not None}
    return Elsewhere({table: _place(copy) for table, copy in copies.items() if table not in stuck}, stuck)


def _stuck(table: str, copy: Mapping[str, Any]) -> str | None:
    if copy.get("status") == "held":
        return is_held(table, str((copy["error"] or {}).get("message", "by request")))
    return str(copy["error"]["message"]) if is_unreadable(copy.get("tries", 0)) and copy["error"] else None


def _place(copy: Mapping[str, Any]) -> Position | None:
    return Position.parse(copy["at"]) if copy.get("status") == "streaming" else None
