"""What must hold, whatever happens: looked at from outside, at the sinks and at the source's own history."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.runtime.simulation.clockwork import Broken, Clockwork
from tests.runtime.simulation.pipeline import DEADLINE_MS
from tests.runtime.simulation.process import Process
from tests.runtime.simulation.sink import Sink
from tests.runtime.simulation.source import Event, History
from tests.runtime.simulation.users import Users
from truecut.core.copies import outrun
from truecut.core.delivery import Copy, Wave
from truecut.model.cursor import CopyState, Hold
from truecut.model.order import Receipt
from truecut.model.position import Position, text_of

HEED_MS = 17_000  # a loop looks every second, a call may begin this much later
PROMPT_MS = 9_000  # with a job or two that failed as a whole on the way
ABORTS_MAX = 20  # of one sink in `ABORTS_MS`
ABORTS_OF_ONE_MAX = 8  # where one table is all that cannot be read
ABORTS_MS = 10_000


@dataclass
class Laws:
    """Kept at every step of a life."""

    clockwork: Clockwork
    history: History
    users: Users
    routed: frozenset[str]  # tables of which a sink gets its route only
    removed_ms: Mapping[str, int] = field(
        default_factory=dict
    )  # sinks that the file does not name, since when
    places: dict[tuple[str, str], tuple[int, Position]] = field(default_factory=dict)  # editions and places
    born_ms: dict[tuple[str, str, str], int] = field(default_factory=dict)  # (sink, table, hold) → since when
    commits: int = 0
    delays: dict[str, dict[int, int]] = field(default_factory=dict)  # sink → place → ms until it was there
    delays_of: dict[tuple[str, str], int] = field(default_factory=dict)  # (sink, table) → the longest one
    rows: dict[tuple[str, str], int] = field(default_factory=dict)  # (sink, table) → rows ever written
    aborts: dict[str, deque[int]] = field(default_factory=dict)
    aborts_most: int = 0

    def answered(self, sink: Sink, runner: str, token: int, receipt: Receipt) -> None:
        """A sink has answered: if it has written, only for its owner, and exactly what was lacking."""
        said = receipt.outcome if receipt.fault is None else f"{receipt.outcome} ({receipt.fault.code})"
        holds = {table: hold.code for table, hold in sink.holds().items()}
        self.clockwork.say(f"{sink.name} to {runner}: {said} at {sink.cursor.position} {holds or ''}")
        if receipt.outcome != "applied":
            return
        if sink.owner != runner or sink.cursor.token != token:
            raise Broken(f"Fence: {runner} wrote to {sink.name}, which {sink.owner} owns")
        self.commits += 1
        for table, counts in receipt.counts.items():
            self.rows[sink.name, table] = self.rows.get((sink.name, table), 0) + counts.puts
        self._note_holds(sink)
        for table, copy in sink.cursor.copies.items():
            before = self.places.get((sink.name, table), (0, copy.at))
            now = self.places[sink.name, table] = (copy.edition, copy.at)
            if now < before:
                raise Broken(f"Monotone: {table} at {sink.name} moved back from {before} to {now}")
            self._note_delay(sink, table, before, now)
            self._content(sink, table)

    def _snapshot(self, copy: CopyState) -> int:
        return self.history.snapshot(copy.source_identity, copy.at.place)

    def _note_holds(self, sink: Sink) -> None:
        known = {(sink.name, table, hold.message) for table, hold in sink.holds().items()}
        gone = [key for key in self.born_ms if key[0] == sink.name and key not in known]
        for key in gone:
            del self.born_ms[key]
        for key in sorted(known):
            self.born_ms.setdefault(key, self.clockwork.now_ms)

    def _note_delay(
        self, sink: Sink, table: str, before: tuple[int, Position], now: tuple[int, Position]
    ) -> None:
        """How late each change came that this commit has brought."""
        if before[0] == now[0]:
            delays = self.delays.setdefault(sink.name, {})
            upto = self._snapshot(sink.cursor.copies[table])
            after = upto - (now[1].place - before[1].place)
            for event in self._changes(sink, table, after=after, upto=upto):
                delay = self.clockwork.now_ms - self.history.committed_ms[event.place]
                delays[event.place] = delay
                self.delays_of[sink.name, table] = max(delay, self.delays_of.get((sink.name, table), 0))

    def _changes(self, sink: Sink, table: str, *, after: int, upto: int) -> list[Event]:
        route = sink.route if table in self.routed else None
        return self.history.changes(table, route, after=after, upto=upto)

    def one_deadline_once(self, punctual: Iterable[Sink], *, own_ms: int = 0) -> None:
        """A sink that hangs delays the others by at most one deadline, once. `own_ms`: what each of these may
        be late by itself."""
        prompt_ms = PROMPT_MS + own_ms
        for sink in punctual:
            delays = {**self.delays.get(sink.name, {}), **self._outstanding(sink)}
            late = {place: delay for place, delay in delays.items() if delay > prompt_ms}
            times = [self.history.committed_ms[place] for place in late]
            if late and (
                max(late.values()) > prompt_ms + DEADLINE_MS
                or max(times) - min(times) > prompt_ms + DEADLINE_MS
            ):
                raise Broken(f"OneDeadlineOnce: {sink.name} had to wait: {late}")

    def others_go_on(self, sinks: Iterable[Sink], *, without: str) -> None:
        """A table that cannot be read delays no other."""
        for sink in sinks:
            for table in sink.cursor.copies.keys() - {without}:
                waits = [self.delays_of.get((sink.name, table), 0), self._oldest_lack_ms(sink, table)]
                if max(waits) > PROMPT_MS:
                    raise Broken(f"OthersGoOn: {table} at {sink.name} had to wait {waits} ms")

    def others_are_there(self, sinks: Iterable[Sink], *, without: str) -> None:
        """Whatever can be read was carried to its end."""
        for sink in sinks:
            for table in sink.cursor.copies.keys() - {without}:
                if self._oldest_lack_ms(sink, table):
                    raise Broken(f"OthersAreThere: {table} at {sink.name} is at {sink.place(table)}")

    def _oldest_lack_ms(self, sink: Sink, table: str) -> int:
        if table in sink.holds():
            return 0
        lacks = self._changes(sink, table, after=sink.cursor.copies[table].at.place, upto=self.history.head)
        since = min((self.history.committed_ms[event.place] for event in lacks), default=None)
        return 0 if since is None else self.clockwork.now_ms - since

    def trouble_is_told(self, processes: Iterable[Process], table: str) -> None:
        """Whoever owns a sink that waits for the table shows it as failed, and says why."""
        for process in processes:
            for name, line in process.runner._view.sinks.items():
                told = line.tables.get(table)
                if told is not None and (told["error"] is None or line.state != "failed"):
                    raise Broken(f"TroubleIsTold: {process.name} shows {name} as {line.state}")

    def _outstanding(self, sink: Sink) -> dict[int, int]:
        now_ms, head = self.clockwork.now_ms, self.history.head
        return {
            event.place: now_ms - self.history.committed_ms[event.place]
            for table, copy in sink.cursor.copies.items()
            for event in self._changes(sink, table, after=self._snapshot(copy), upto=head)
        }

    def _content(self, sink: Sink, table: str) -> None:
        place = sink.place(table)
        if place is None:
            return
        content = sink.contents[table]
        if not self._equals(sink, table, self._snapshot(sink.cursor.copies[table])):
            raise Broken(f"Content: {table} at {sink.name} ({content.mode}) is not its share at {place}")

    def _equals(self, sink: Sink, table: str, at: int) -> bool:
        content = sink.contents[table]
        route = sink.route if table in self.routed else None
        if content.mode == "mirror":
            return content.rows == self.history.share(table, route, at=at)
        base = self.history.snapshot(content.identity, content.base)
        reads = [e for e in self.history.whole(table, at=base) if route in (None, e.route)]
        return content.log == reads + self._changes(sink, table, after=base, upto=at)

    def started(self, process: Process, wave: Wave) -> None:
        """What is paused gets no order, once the runner has had the time to see it."""
        span = f"({text_of(wave.after)}, {wave.upto_max}]"
        orders = {sink: {t: o.kind for t, o in order.tables.items()} for sink, order in wave.sinks.items()}
        self.clockwork.say(f"{process.name} {'late ' * wave.late}{wave.kind} {wave.id} {span}: {orders}")
        seen_ms = max(process.frozen_last_ms, process.started_ms)
        for sink in wave.sinks:
            gone_ms = self.removed_ms.get(sink)
            if gone_ms is not None and self.clockwork.now_ms - max(gone_ms, seen_ms) > HEED_MS:
                raise Broken(f"RetiredStandsStill: {wave.kind} for {sink} by {process.name}")
            for table in wave.tables or (None,):
                since = self.users.paused_since_ms(sink=sink, table=table)
                if since is not None and self.clockwork.now_ms - max(since, seen_ms) > HEED_MS:
                    raise Broken(f"PausedStandsStill: {wave.kind} of {table} for {sink} by {process.name}")

    def aborted(self, sink: str) -> None:
        """A window that cannot be read is not tried again at once."""
        recent = self.aborts.setdefault(sink, deque())
        recent.append(self.clockwork.now_ms)
        while recent[0] < self.clockwork.now_ms - ABORTS_MS:
            recent.popleft()
        self.aborts_most = max(self.aborts_most, len(recent))
        if len(recent) > ABORTS_MAX:
            raise Broken(f"AbortedWaits: {len(recent)} orders for {sink} were aborted in {ABORTS_MS} ms")

    def aborted_waits(self) -> None:
        """The same where one table cannot be read: ever more rarely, from half a second on."""
        if self.aborts_most > ABORTS_OF_ONE_MAX:
            raise Broken(f"AbortedWaits: {self.aborts_most} orders for one sink in {ABORTS_MS} ms")

    def counted_once(self, counted: Mapping[tuple[str, str], int]) -> None:
        """No total exceeds what was written; what a killed runner had not told is in none."""
        for copy, rows in counted.items():
            if rows > self.rows.get(copy, 0):
                raise Broken(
                    f"CountedOnce: {rows} rows of {copy} are told, {self.rows.get(copy, 0)} were written"
                )

    def lacking(
        self,
        sinks: Iterable[Sink],
        tables: Mapping[str, Iterable[str]],
        processes: Iterable[Process],
        *,
        rows_only: bool = False,
    ) -> list[str]:
        """What is neither at the head nor held for a reason that came after the last request to go on.
        `rows_only`: what was read without rows for a sink may have to be read again by its next owner."""
        return [
            f"{table} at {sink.name}: {self._state(sink, table)}"
            for sink in sinks
            for table in tables[sink.name]
            if not self._held_rightly(sink, table, _hold_of(sink, table, processes))
            and not (
                self._is_current(sink, table)
                and (rows_only or self._read_upto(sink, table, processes) == self.history.head)
            )
        ]

    def stopped(self, process: Process, sinks: Mapping[str, Sink]) -> None:
        """A clean stop leaves at the sinks what the runner knew of them. A paused one gets no order, nor one
        that stands in a later history than the runner has looked at (D8)."""
        state = process.runner._state
        for name, known in state.sinks.items():
            for table, copy in known.copies.items() if not known.paused and not outrun(state, known) else ():
                actual = sinks[name].cursor.copies.get(table)
                if copy.version is not None and (actual is None or actual.version != copy.version):
                    raise Broken(f"AStopIsDurable: {table} at {name} is not at {copy.version}")

    def unread_again(self, sinks: Iterable[Sink]) -> list[str]:
        """Copies that do not show a request to read them again; one that is held may wait."""
        last: dict[tuple[str, str], int] = {}
        found = list(sinks)
        for one in self.users.again:
            for sink in found:
                if one.sink in (None, sink.name):
                    last[sink.name, one.table] = max(last.get((sink.name, one.table), 0), one.asked)
        copies = {(s.name, t): copy for s in found for t, copy in s.cursor.copies.items()}
        return [
            f"{table} at {sink}"
            for (sink, table), asked in sorted(last.items())
            if (copy := copies.get((sink, table))) is not None and copy.hold is None and copy.resumed < asked
        ]

    def _read_upto(self, sink: Sink, table: str, processes: Iterable[Process]) -> int | None:
        """The snapshot that its owner knows it to have been read up to; otherwise as the sink says."""
        copy = _known(sink, table, processes) or sink.cursor.copies.get(table)
        if copy is None or copy.at is None or sink.place(table) is None:
            return None
        return self.history.snapshot(copy.source_identity, copy.at.place)

    def _is_current(self, sink: Sink, table: str) -> bool:
        return table in sink.contents and self._equals(sink, table, self.history.head)

    def _held_rightly(self, sink: Sink, table: str, hold: Hold | None) -> bool:
        if hold is None:
            return False
        asked_ms = self.users.resumed_ms.get(table)
        born_ms = self.born_ms.get((sink.name, table, hold.message))
        return asked_ms is None or born_ms is None or born_ms >= asked_ms

    def _state(self, sink: Sink, table: str) -> str:
        hold = sink.holds().get(table)
        held = "" if hold is None else f", held: {hold.code} {hold.message}"
        return f"{sink.place(table)}{held}; the head is {self.history.head}"


def _hold_of(sink: Sink, table: str, processes: Iterable[Process]) -> Hold | None:
    """As its owner knows it, which may be ahead of what is durable; otherwise as the sink says."""
    copy = _known(sink, table, processes)
    return sink.holds().get(table) if copy is None else copy.hold


def _known(sink: Sink, table: str, processes: Iterable[Process]) -> Copy | None:
    """The copy in its owner's memory."""
    owner = next((process for process in processes if process.name == sink.owner), None)
    return None if owner is None else owner.runner._state.sinks[sink.name].copies.get(table)
