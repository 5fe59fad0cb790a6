"""What runners tell each other through the control store: how their sinks are, and what they have counted.

Promises: only what changed is written, again if the store did not take it; the loop never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from truecut.errors import Fault
from truecut.model.position import Position
from truecut.runtime.background import Background
from truecut.runtime.control import ControlStore, Reports
from truecut.runtime.run_report import View


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

    def positions(self, *, but: str) -> dict[str, Position]:
        """Where sinks stand, as their runners told last. Where no runner but `but` is alive somebody who is
        gone has told it: then the sinks have to be asked."""
        if not self.reports.runners.keys() - {but}:
            return {}
        places = {name: report["position"] for name, report in self.reports.sinks.items()}
        return {name: Position.parse(place) for name, place in places.items() if place is not None}

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
