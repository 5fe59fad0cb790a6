"""What users ask of a running pipeline, by files in the state folder, and how far it is obeyed.

Owns: which sinks have still to answer a request, to resume a table or to read it again. Promises: a request
is taken up by each sink as soon as it is ready, once, and again after whatever made us forget it, one after
another in the order of their numbers; it is answered, and its file removed, when every sink's own cursor
shows it, our sinks' and those of other runners. What is read again was read of the source since it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from truecut.core import delivery
from truecut.core.delivery import SinkState
from truecut.model.position import Position
from truecut.runtime.control import Reports
from truecut.runtime.delivery_state import Machine
from truecut.runtime.pauses import Pauses, Request, answered, read_pauses
from truecut.runtime.timetable import Timetable

LOOK_MS = 1_000
TRY_AGAIN_MS = 1_000  # for append tables, whose seed may find that it has come too early
Answers = Callable[[str], Mapping[str, int]]  # of a table: sink → the last request that it shows


class Requests:
    """Pauses in force, tables that shall go on, tables that shall be read again."""

    def __init__(
        self,
        folder: Path,
        machine: Machine,
        times: Timetable,
        *,
        answered_elsewhere: Answers = lambda table: {},
        on_again: Callable[[str, int], None] = lambda table, asked: None,
        never_again: Collection[str] = (),
    ) -> None:
        self._folder = folder
        self._machine = machine
        self._times = times
        self._answered_elsewhere = answered_elsewhere
        self._on_again = on_again  # the source is told before anything is read
        self._never_again = never_again  # of which only changes are wanted: they would lose what they have
        self._pauses = Pauses()
        self._waiting: dict[Request, set[str]] = {}  # sinks that have not answered it yet
        self._before_look: set[Request] = set()  # that the source knew of when it was last looked at
        self._ready: dict[Request, Position] = {}  # whose tables can be given whole since, and from where on

    @property
    def waiting(self) -> bool:
        """Whether some sink, of whomever, has still to answer a request."""
        return any(self._waiting.values())

    @property
    def paused_tables(self) -> frozenset[str]:
        """Of which nothing is read."""
        return self._pauses.tables

    @property
    def tables_again(self) -> frozenset[str]:
        """The tables that some sink has still to get again."""
        return frozenset(one.table for one, waiting in self._waiting.items() if one.again and waiting)

    def pending(self, *, of_others: bool, but: Collection[str] = (), only: int | None = None) -> bool:
        """Whether a sink has still to answer a request, and can: ours (those that have not failed), and
        `of_others` also those that are not ours yet, `but` for these. `only`: the request of that number."""
        sinks = self._machine.state.sinks
        able = {name for name, sink in sinks.items() if name not in but and _is_able(sink, of_others)}
        asked = [waiting for one, waiting in self._waiting.items() if only in (None, one.asked)]
        return any(waiting & able for waiting in asked)

    # --- looks at the source ----------------------------------------------------------------------------

    def look_begins(self) -> None:
        """The source is looked at now."""
        self._before_look = {one for one in self._waiting if one.again}

    def looked(self) -> None:
        """The machine knows what the look has shown: which tables can be given whole, as read since."""
        state = self._machine.state
        for one in self._before_look:
            if one.table in state.unready or state.head is None:
                self._ready.pop(one, None)
            else:
                self._ready.setdefault(one, state.head)

    # --- what is asked for ------------------------------------------------------------------------------

    def obey(self) -> None:
        """Tell the machine what is paused, and which tables go on or are read again."""
        sinks = frozenset(self._machine.state.wanted)
        if self._times.is_due("requests", LOOK_MS):
            self._pauses = read_pauses(self._folder)
            for one in self._pauses.requests:
                if one not in self._waiting:
                    self._begin(one, sinks)
            for one in self._waiting.keys() - set(self._pauses.requests):
                self._forget(one)  # answered by another runner, or taken back by a pause
        paused = sinks if self._pauses.everything else self._pauses.sinks
        self._machine.become(delivery.pause(self._machine.state, sinks=paused))
        self._machine.become(delivery.pause_tables(self._machine.state, tables=self._pauses.tables))
        busy: dict[str, set[str]] = {}  # table → sinks that have an earlier request to answer
        for one, waiting in sorted(self._waiting.items()):
            earlier = busy.setdefault(one.table, set())
            self._take_up(one, waiting - earlier)
            self._strike_off(one, waiting)
            earlier |= waiting

    def _begin(self, one: Request, sinks: frozenset[str]) -> None:
        refused = one.again and one.table in self._never_again
        meant = sinks if one.sink is None else sinks & {one.sink}
        self._waiting[one] = set() if refused else set(meant)
        if one.again and not refused:
            self._on_again(one.table, one.asked)

    def _take_up(self, one: Request, waiting: Iterable[str]) -> None:
        state, table, asked = self._machine.state, one.table, one.asked
        if one.again:
            able = self._able(one, {name: state.sinks[name] for name in sorted(waiting)})
            self._machine.become(delivery.copy_again(state, table, asked=asked, sinks=able))
        else:
            self._machine.become(delivery.resume_table(state, table, asked=asked, sinks=sorted(waiting)))

    def _able(self, one: Request, waiting: Mapping[str, SinkState]) -> list[str]:
        """Until the table can be given whole its copies go on as they are. An append table is read at its own
        place: it has to have come to where it can be."""
        ready = self._ready.get(one)
        if ready is None:
            return []
        copies = {name: sink.copies[one.table] for name, sink in waiting.items() if one.table in sink.copies}
        own_place = {
            name: copy
            for name, copy in copies.items()
            if waiting[name].settings[one.table].mode == "append" and copy.status == "streaming"
        }
        there = [name for name, copy in own_place.items() if copy.at is not None and copy.at >= ready]
        due = there and self._times.is_due(f"again {one.asked}", TRY_AGAIN_MS)
        return [*(copies.keys() - own_place.keys()), *(there if due else [])]

    def _strike_off(self, one: Request, waiting: set[str]) -> None:
        waiting -= {name for name in waiting if self._is_answered(name, one)}

    def _is_answered(self, name: str, one: Request) -> bool:
        """D7: what the sink itself shows counts."""
        sink = self._machine.state.sinks[name]
        if sink.retired or one.table not in sink.settings:
            return True
        durable = sink.copies[one.table].durable if one.table in sink.copies else None
        return durable is not None and durable.resumed >= one.asked

    def _forget(self, one: Request) -> None:
        del self._waiting[one]
        self._ready.pop(one, None)

    # --- answers ----------------------------------------------------------------------------------------

    def answer(self) -> None:
        """Remove the requests that are answered. To be called when our leases have just been confirmed: who
        has lost one knows nothing of that sink any more."""
        for one, waiting in list(self._waiting.items()):
            self._strike_off(one, waiting)
            if not waiting or waiting <= self._of_others(one):
                answered(self._folder, one)
                self._forget(one)

    def _of_others(self, one: Request) -> set[str]:
        """Sinks that are not ours, and whose owners have told that they show the request. One that nobody
        owns has not answered."""
        sinks = self._machine.state.sinks
        told = self._answered_elsewhere(one.table)
        return {name for name, number in told.items() if number >= one.asked and _is_other(sinks.get(name))}


def _is_able(sink: SinkState, of_others: bool) -> bool:
    if sink.phase == "unowned":
        return of_others and not sink.paused
    return not sink.paused and sink.fault is None


def _is_other(sink: SinkState | None) -> bool:
    return sink is not None and sink.phase == "unowned"


def shown(reports: Reports, table: str) -> dict[str, int]:
    """Sink → the last request for this table that it shows, as its owner has reported."""
    return {name: int(copy["resumed"]) for name, copy in told_of(reports, table).items()}


def told_of(reports: Reports, table: str) -> dict[str, Mapping[str, Any]]:
    """Sink → what its owner has reported of this table."""
    copies = {name: report["tables"].get(table) for name, report in reports.sinks.items()}
    return {name: copy for name, copy in copies.items() if copy is not None}
