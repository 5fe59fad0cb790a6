"""What users ask of a running pipeline, by files in the state folder, and how far it is obeyed.

Owns: which sinks have still to take up a request to resume a table. Promises: each sink takes a request up
once, as soon as it is idle; other runners' sinks are theirs.
"""

from __future__ import annotations

import time
from pathlib import Path

from truecut.core import delivery
from truecut.runtime.machine import Machine
from truecut.runtime.pauses import Pauses, read_pauses, resumed
from truecut.runtime.timetable import Timetable

LOOK_MS = 1_000
SEEN_NS = 5_000_000_000  # long enough for every runner to see a request


class Requests:
    """Pauses in force, and tables that shall go on."""

    def __init__(self, folder: Path, machine: Machine, times: Timetable) -> None:
        self._folder = folder
        self._machine = machine
        self._times = times
        self._pauses = Pauses()
        self._asked: dict[str, int] = {}  # table → when the request that we know of was made
        self._waiting: dict[str, set[str]] = {}  # table → sinks that have not taken the request up yet

    @property
    def open(self) -> bool:
        """Whether some sink has still to take a request up."""
        return any(self._waiting.values())

    def obey(self) -> None:
        """Tell the machine what is paused, and which tables go on."""
        sinks = frozenset(self._machine.state.sinks)
        if self._times.is_due("requests", LOOK_MS):
            self._pauses = read_pauses(self._folder)
            for table, asked in self._pauses.resumed_tables.items():
                if self._asked.get(table) != asked:
                    self._asked[table] = asked
                    self._waiting[table] = set(sinks)
        paused = sinks if self._pauses.everything else self._pauses.sinks
        self._machine.become(delivery.pause(self._machine.state, sinks=paused))
        for table in sorted(self._pauses.tables):
            self._machine.become(delivery.pause_table(self._machine.state, table))
        for table in sorted(self._waiting):
            self._resume(table)

    def _resume(self, table: str) -> None:
        state = self._machine.state
        waiting = self._waiting[table]
        ready = {name for name in waiting if state.sinks[name].phase == "idle"}
        self._machine.become(delivery.resume_table(state, table, sinks=ready))
        waiting -= ready
        owned = {name for name, sink in state.sinks.items() if sink.phase != "unowned"}
        alone = len(owned) == len(state.sinks)
        if owned and not waiting & owned and (alone or time.time_ns() > self._asked[table] + SEEN_NS):
            resumed(self._folder, table=table, asked_ns=self._asked[table])
            del self._waiting[table]
