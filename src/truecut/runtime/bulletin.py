"""What runners tell each other through the control store: how their sinks are, and what they have counted.

Promises: only what changed is written, again if the store did not take it; the loop never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from truecut.config.settings import SinkSettings
from truecut.errors import Fault
from truecut.model.position import Position
from truecut.runtime.background import Background
from truecut.runtime.control import ControlStore, Reports
from truecut.runtime.run_report import View
from truecut.runtime.until import NOBODY, Elsewhere, is_held, is_unreadable


class Bulletin:
    """One runner's side of it."""

    def __init__(
        self,
        control: ControlStore,
        background: Background,
        view: View,
        *,
        on_store: Callable[[Fault | None], None],
    ) -> None:
        self._control = control
        self._background = background
        self._view = view
        self._on_store = on_store
        self._writing = False
        self._reading = False
        self.reports = Reports(running=False, runners={}, sinks={})  # what was told when we last looked

    def elsewhere(self, *, but: str, settled: bool) -> dict[str, Elsewhere]:
        """How sinks are, as their runners told last. Where no runner but `but` is alive somebody who is gone
        has told it: then the sinks have to be asked. `settled`: whoever is said to be alive was so after we
        had begun; one that was killed before is said to be for as long as its leases last."""
        others = self.reports.runners.keys() - {but}
        if not others:
            return {}
        return {
            sink.name: _told(report, sink, owned=settled and self.reports.owners.get(sink.name) in others)
            for sink in self._view.pipeline.sinks
            if (report := self.reports.sinks.get(sink.name)) is not None
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
        tally = self._view.take_tally()
        if not changed and not tally:
            return
        self._writing = True

        def failed(fault: Fault) -> None:
            self._writing = False
            self._view.report_again(changed)
            self._view.give_back(tally)
            self._on_store(fault)

        self._background.submit(lambda: self._control.report_sinks(changed, tally), self._written, failed)

    def _written(self, unrouted: Mapping[str, int]) -> None:
        self._writing = False
        self._view.unrouted = unrouted

    def look(self) -> None:
        """Ask what other runners have told; `reports` is the answer, in a moment."""
        if self._reading:
            return
        self._reading = True

        def answered(reports: Reports) -> None:
            self._reading, self.reports = False, reports

        def failed(fault: Fault) -> None:
            self._reading = False
            self._on_store(fault)

        self._background.submit(self._control.reports, answered, failed)


def _told(report: Mapping[str, Any], sink: SinkSettings, *, owned: bool) -> Elsewhere:
    """A report in the words of whoever judges. A table that it does not tell of has no place; of a sink whose
    cursor was forgotten it says nothing."""
    if report["position"] is None:
        return NOBODY
    copies = {table: report["tables"].get(table, {}) for table in sink.modes}
    stuck = {table: why for table, copy in copies.items() if (why := _stuck(table, copy)) is not None}
    places = {table: _place(copy) for table, copy in copies.items() if table not in stuck}
    return Elsewhere(places, stuck, owned)


def _stuck(table: str, copy: Mapping[str, Any]) -> str | None:
    if copy.get("status") == "held":
        return is_held(table, str((copy["error"] or {}).get("message", "by request")))
    return str(copy["error"]["message"]) if is_unreadable(copy.get("tries", 0)) and copy["error"] else None


def _place(copy: Mapping[str, Any]) -> Position | None:
    return Position.parse(copy["at"]) if copy.get("status") == "streaming" else None
