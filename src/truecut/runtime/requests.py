"""What users ask of a running pipeline, by files in the state folder, and how far it is obeyed.

Owns: which sinks have still to answer a request to resume a table. Promises: a request is taken up by each
sink as soon as it is ready, once, and again after whatever made us forget it; it is answered, and its file
removed, when every sink's own cursor shows it, our sinks' and those of other runners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from truecut.core import delivery
from truecut.core.delivery import SinkState
from truecut.runtime.control import Reports
from truecut.runtime.delivery_state import Machine
from truecut.runtime.pauses import Pauses, read_pauses, resumed
from truecut.runtime.timetable import Timetable

LOOK_MS = 1_000
Answers = Callable[[str], Mapping[str, int]]  # of a table: sink → the last request that it shows


class Requests:
    """Pauses in force, and tables that shall go on."""

    def __init__(
        self,
        folder: Path,
        machine: Machine,
        times: Timetable,
        *,
        answered_elsewhere: Answers = lambda table: {},
    ) -> None:
        self._folder = folder
        self._machine = machine
        self._times = times
        self._answered_elsewhere = answered_elsewhere
        self._pauses = Pauses()
        self._asked: dict[str, int] = {}  # table → when the request that we know of was made
        self._waiting: dict[str, set[str]] = {}  # table → sinks that have not answered it yet

    @property
    def waiting(self) -> bool:
        """Whether some sink, of whomever, has still to answer a request."""
        return any(self._waiting.values())

    def pending(self, *, of_others: bool, but: Collection[str] = ()) -> bool:
        """Whether a sink has still to answer a request, and can: ours (those that have not failed), and
        `of_others` also those that are not ours yet, `but` for these."""
        sinks = self._machine.state.sinks
        able = {name for name, sink in sinks.items() if name not in but and _is_able(sink, of_others)}
        return any(waiting & able for waiting in self._waiting.values())

    def obey(self) -> None:
        """Tell the machine what is paused, and which tables go on."""
        sinks = frozenset(self._machine.state.wanted)
        if self._times.is_due("requests", LOOK_MS):
            self._pauses = read_pauses(self._folder)
            for table, asked in self._pauses.resumed_tables.items():
                if self._asked.get(table) != asked:
                    self._asked[table] = asked
                    self._waiting[table] = set(sinks)
            for table in self._waiting.keys() - self._pauses.resumed_tables.keys():
                del self._waiting[table]  # answered by another runner, or taken back by a pause
        paused = sinks if self._pauses.everything else self._pauses.sinks
        self._machine.become(delivery.pause(self._machine.state, sinks=paused))
        self._machine.become(delivery.pause_tables(self._machine.state, tables=self._pauses.tables))
        for table, waiting in sorted(self._waiting.items()):
            self._resume(table, waiting)

    def _resume(self, table: str, waiting: set[str]) -> None:
        asked = self._asked[table]
        self._machine.become(
            delivery.resume_table(self._machine.state, table, asked=asked, sinks=sorted(waiting))
        )
        self._strike_off(table, waiting)

    def _strike_off(self, table: str, waiting: set[str]) -> None:
        waiting -= {name for name in waiting if self._is_answered(name, table, self._asked[table])}

    def _is_answered(self, name: str, table: str, asked: int) -> bool:
        """D7: what the sink itself shows counts."""
        sink = self._machine.state.sinks[name]
        if sink.retired or table not in sink.settings:
            return True
        durable = sink.copies[table].durable if table in sink.copies else None
        return durable is not None and durable.resumed == asked

    def answer(self) -> None:
        """Remove the requests that are answered. To be called when our leases have just been confirmed: who
        has lost one knows nothing of that sink any more."""
        for table, waiting in list(self._waiting.items()):
            self._strike_off(table, waiting)
            asked = self._asked[table]
            if not waiting or waiting <= self._of_others(table, asked):
                resumed(self._folder, table=table, asked_ns=asked)
                del self._waiting[table]

    def _of_others(self, table: str, asked: int) -> set[str]:
        """Sinks that are not ours, and whose owners have told that they show the request. One that nobody
        owns has not answered."""
        sinks = self._machine.state.sinks
        told = self._answered_elsewhere(table)
        return {name for name, answered in told.items() if answered >= asked and _is_other(sinks.get(name))}


def _is_able(sink: SinkState, of_others: bool) -> bool:
    if sink.phase == "unowned":
        return of_others and not sink.paused
    return not sink.paused and sink.fault is None


def _is_other(sink: SinkState | None) -> bool:
    return sink is not None and sink.phase == "unowned"


def answered(reports: Reports, table: str) -> dict[str, int]:
    """Sink → the last request for this table that it shows, as its owner has reported."""
    copies = {name: report["tables"].get(table) for name, report in reports.sinks.items()}
    return {name: int(copy["resumed"]) for name, copy in copies.items() if copy is not None}
