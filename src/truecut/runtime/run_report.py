"""What a runner shows of itself: the live table, the control store's reports, `status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from truecut.config.settings import Pipeline
from truecut.core.delivery import Copy, Delivery, SinkState, Wave
from truecut.errors import Fault
from truecut.model.order import Counts, Receipt
from truecut.model.position import Position, text_of
from truecut.runtime import announce
from truecut.runtime.head_times import Heads
from truecut.runtime.pauses import how_to_resume
from truecut.runtime.timetable import Clock
from truecut.runtime.totals import Tally, Unrouted, Written, start_of
from truecut.runtime.until import unread
from truecut.sources.contract import Observation

if TYPE_CHECKING:
    from truecut.certificate.issue import Copies
    from truecut.runtime.verified import Results


@dataclass(frozen=True, slots=True)
class SinkView:
    """One line of the live table."""

    name: str
    state: str
    cursor: str | None
    position: str | None
    lag_ms: int | None
    rows_applied: int
    error: dict[str, Any] | None
    tables: Mapping[str, dict[str, Any]] = field(default_factory=dict)


class View:
    """Kept by the runner's loop; read by whoever displays it."""

    def __init__(self, pipeline: Pipeline, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self.pipeline = pipeline
        self.sinks: dict[str, SinkView] = {}
        self.unrouted: Mapping[str, int] = {}  # of all runs and runners, as the control store told last
        self.source_fault: Fault | None = None
        self.head: Position | None = None
        self.oldest: Position | None = None
        self.seeds: dict[tuple[str, ...], float] = {}  # sinks of a running seed → how far it is, 0 to 1
        self.control_fault: Fault | None = None
        self.given_up: Mapping[str, Fault] = {}  # sinks that were left to somebody else
        self.restart: tuple[str, ...] = ()  # what the file says now and this run does not know
        self.again: frozenset[str] = frozenset()  # tables that are read again for some sink
        self.seen_at_ms: int | None = None  # when the source was last looked at
        self.retained_bytes: int | None = None  # of the source's log, for us; None: unknown, or it needs none
        self.certified_lag_ms: Mapping[tuple[str, str], int] = {}  # (table, sink), of those of ours
        self.verified: Results = {}  # of all copies, whoever has looked at them
        self.certified: dict[tuple[str, str], Position] = {}
        self._copies: Copies | None = None  # that `certified` was made of
        self._heads = Heads()
        self._rows: dict[str, int] = {}
        self._written: dict[tuple[str, str], Written] = {}  # in this run, by (sink, table)
        self._untold: dict[tuple[str, str], Written] = {}  # of these, what the control store does not know
        self._untold_windows: list[Unrouted] = []
        self._reported: dict[str, SinkView] = {}
        self._retired: dict[str, SinkView] = {}

    def wall_ms(self) -> int:
        """Now, by the clock that is shown."""
        return self._clock.wall_ms()

    def observed(self, seen: Observation) -> None:
        """The source was looked at."""
        announce.source_is(self.source_fault, None)
        self.source_fault = None
        if self.head is None or seen.head > self.head:
            self._heads.add(seen.head, seen.head_committed_at_ms)
        self.head, self.oldest = seen.head, seen.oldest
        self.seen_at_ms = self._clock.wall_ms()

    def source_failed(self, fault: Fault) -> None:
        """The source could not be looked at."""
        announce.source_is(self.source_fault, fault)
        self.source_fault = fault

    def wave_done(
        self, wave: Wave, upto: Position, receipts: Sequence[Receipt], unrouted: Mapping[str, int]
    ) -> None:
        """Count what a wave has written, and what nobody wanted."""
        for receipt in receipts:
            if receipt.outcome == "applied":
                for table, counts in receipt.counts.items():
                    self._count(receipt.sink, table, counts, seed=wave.kind == "seed")
        aborted = any(receipt.outcome == "aborted" for receipt in receipts)
        after = wave.after if wave.kind == "changes" else start_of(upto.generation)
        if wave.kind != "persist" and after is not None and not aborted:
            self._untold_windows += [Unrouted(table, rows, after, upto) for table, rows in unrouted.items()]

    def _count(self, sink: str, table: str, counts: Counts, *, seed: bool) -> None:
        written = Written(counts.puts + counts.deletes, counts.puts if seed else 0)
        self._rows[sink] = self._rows.get(sink, 0) + written.applied
        for known in (self._written, self._untold):
            known[sink, table] = known.get((sink, table), Written()).plus(written)

    def take_tally(self) -> Tally:
        """What the control store has still to be told; whoever takes it tells it."""
        tally = Tally(self._untold, tuple(self._untold_windows))
        self._untold, self._untold_windows = {}, []
        return tally

    def refresh(self, state: Delivery, certified: Copies | None = None) -> None:
        """Bring the lines up to date. Only sinks that are ours: others report themselves. `certified`: what
        the last certificate says."""
        wall_ms = self._clock.wall_ms()
        owned = {name: sink for name, sink in state.sinks.items() if sink.phase != "unowned"}
        claimed = self._claimed(certified)
        settled = {
            key: at for key, own in claimed.items() if (at := _settled_upto(owned, key, own)) is not None
        }
        places = [sink.position for sink in owned.values() if sink.position is not None]
        places += settled.values()
        if places:
            self._heads.forget_upto(min(places))
        self.sinks = {name: self._line(name, sink, state, wall_ms) for name, sink in owned.items()}
        self.sinks |= {name: self._left(name, fault) for name, fault in self.given_up.items()}
        self._retired = {name: line for name, line in self._retired.items() if name not in self.sinks}
        lags = {key: self._lag(at, state.head, wall_ms) for key, at in settled.items()}
        self.certified_lag_ms = {key: lag_ms for key, lag_ms in lags.items() if lag_ms is not None}

    def certified_upto(self, sink: str) -> str | None:
        """Up to where all tables of a sink are certified; None: some are not."""
        modes = next((one.modes for one in self.pipeline.sinks if one.name == sink), {})
        places = [self.certified.get((table, sink)) for table in modes]
        known = [place for place in places if place is not None]
        return str(min(known)) if known and len(known) == len(places) else None

    def verified_upto(self, sink: str) -> str | None:
        """The same, of the last verification that each of them has passed."""
        modes = next((one.modes for one in self.pipeline.sinks if one.name == sink), {})
        found = [self.verified.get((table, sink)) for table in modes]
        places = [one.upto for one in found if one is not None and one.upto is not None]
        return min(places) if places and len(places) == len(found) else None

    def _claimed(self, copies: Copies | None) -> Mapping[tuple[str, str], Position]:
        """(table, sink) → up to where it is certified."""
        if copies is not self._copies:
            rows = (copies or {}).items()
            told = {key: row["at"] for key, row in rows if row["verdict"] == "certified"}
            self.certified = {key: Position.parse(at) for key, at in told.items()}
            self._copies = copies
        return self.certified

    def retire(self, sinks: Iterable[str]) -> set[str]:
        """These were taken out of the file: a last line of each that was ours is told, and no more. Returns
        the rest: somebody else may have them, or nobody."""
        wanted = {sink.name for sink in self.pipeline.sinks}
        self._retired = {name: line for name, line in self._retired.items() if name not in wanted}
        lines = {name: self.sinks.pop(name, None) for name in sinks}
        self._retired |= {
            name: replace(line, state="retired", lag_ms=None, error=None)
            for name, line in lines.items()
            if line is not None
        }
        return {name for name, line in lines.items() if line is None}

    def retire_unowned(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        """Nobody has these: their last line is ours to tell. `told`: what was told of each before."""
        for name, last in told.items():
            self._retired[name] = SinkView(
                name,
                "retired",
                last.get("cursor"),
                last.get("position"),
                None,
                last.get("rows_applied", 0),
                None,
                last.get("tables", {}),
            )

    def _left(self, name: str, fault: Fault) -> SinkView:
        return SinkView(name, "failed", None, None, None, self._rows.get(name, 0), fault.document())

    def _line(self, name: str, sink: SinkState, state: Delivery, wall_ms: int) -> SinkView:
        # Until its cursor is read again, what the sink itself had last is as good as ever: copies never move
        # back. How far it lags is not known.
        before, forgotten = self.sinks.get(name), sink.phase != "ready"
        return SinkView(
            name=name,
            state=_state_of(sink, state.head),
            cursor=text_of(sink.cursor) or (before.cursor if forgotten and before else None),
            position=None if _lacks_a_table(sink) else text_of(sink.position),
            lag_ms=self._lag(sink.position, state.head, wall_ms),
            rows_applied=self._rows.get(name, 0),
            error=_error_of(sink),
            tables=before.tables
            if forgotten and before
            else {
                table: {
                    "status": copy.status,
                    "at": text_of(copy.at),
                    "durable": None if copy.durable is None else str(copy.durable.at),
                    "error": _trouble_of(table, copy),
                    "tries": copy.failures,  # in vain, in a row
                    "waits_for": state.unready.get(table)
                    if copy.status == "unseeded" or table in self.again
                    else None,
                    "again": table in self.again,
                    "resumed": 0 if copy.durable is None else copy.durable.resumed,
                    "rows_applied": self._written.get((name, table), Written()).applied,
                }
                for table, copy in sink.copies.items()
            },
        )

    def _lag(self, position: Position | None, head: Position | None, wall_ms: int) -> int | None:
        """Since when the sink lacks something: the commit time of the first head beyond its position."""
        if position is None or head is None:
            return None
        if position >= head:
            return 0
        since = self._heads.first_after(position)
        return None if since is None else max(0, wall_ms - since)

    def changed_sinks(self) -> dict[str, dict[str, Any]]:
        """Reports that differ from what was last handed out. Of a sink whose cursor was not read yet, others
        may have told more than we know; that it is retired is told in any case."""
        at_ms = self._clock.wall_ms()
        lines = {**self._retired, **self.sinks}
        changed = {
            name: {**asdict(line), "at_ms": at_ms}
            for name, line in lines.items()
            if self._reported.get(name) != line and (line.tables or line.error or line.state == "retired")
        }
        self._reported = lines
        return changed

    def report_again(self, sinks: Iterable[str]) -> None:
        """The reports of these were handed out, but did not arrive."""
        for name in sinks:
            self._reported.pop(name, None)

    def runner(self) -> dict[str, Any]:
        """This runner's own report."""
        fault = self.source_fault
        return {
            "head": text_of(self.head),
            "oldest": text_of(self.oldest),
            "seen_at_ms": self.seen_at_ms,
            "observed_at_ms": self._clock.wall_ms(),
            "error": None if fault is None else fault.document(),
            "restart": list(self.restart),
        }


def _settled_upto(
    owned: Mapping[str, SinkState], key: tuple[str, str], certified: Position
) -> Position | None:
    """Up to where a copy of ours lacks nothing and holds nothing that is not certified."""
    table, sink = key
    copy = owned[sink].copies.get(table) if sink in owned else None
    if copy is None:
        return None
    whole = copy.durable is not None and copy.durable.at <= certified
    return max(certified, copy.at) if whole and copy.at is not None else certified


def _state_of(sink: SinkState, head: Position | None) -> str:
    if sink.paused:
        return "paused"
    if sink.failures or any(copy.hold or copy.fault for copy in sink.copies.values()):
        return "failed"
    if _lacks_a_table(sink):
        return "backfilling"
    return "current" if sink.position is not None and sink.position == head else "behind"


def _lacks_a_table(sink: SinkState) -> bool:
    return any(copy.status == "unseeded" for copy in sink.copies.values())


def _error_of(sink: SinkState) -> dict[str, Any] | None:
    if sink.fault is not None:
        return sink.fault.document()
    for table, copy in sink.copies.items():
        if copy.hold is not None:
            return {
                "code": copy.hold.code,
                "message": copy.hold.message,
                "retryable": False,
                "fix": how_to_resume(table, copy.hold.fix),
            }
        if copy.fault is not None:
            return copy.fault.document() | {"message": unread(table, copy.fault)}
    return None


def _trouble_of(table: str, copy: Copy) -> dict[str, Any] | None:
    """Why a copy does not go on."""
    if copy.hold is not None:
        fix = how_to_resume(table, copy.hold.fix)
        return {"code": copy.hold.code, "message": copy.hold.message, "fix": fix}
    fault = copy.fault
    if fault is None:
        return None
    return {"code": fault.code, "message": unread(table, fault), "fix": fault.fix}
