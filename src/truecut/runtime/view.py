"""What a runner shows of itself: the live table, the control store's reports, `status`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from truecut.config.settings import Pipeline
from truecut.core.delivery import PAUSED_CODE, Delivery, SinkState, Wave
from truecut.errors import Fault
from truecut.model.order import Receipt
from truecut.model.position import Position, text_of
from truecut.runtime.pauses import how_to_resume
from truecut.sources.contract import Observation


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

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.sinks: dict[str, SinkView] = {}
        self.unrouted: dict[str, int] = {}
        self.source_fault: Fault | None = None
        self.head: Position | None = None
        self.oldest: Position | None = None
        self.seeds: dict[tuple[str, ...], float] = {}  # sinks of a running seed → how far it is, 0 to 1
        self._counted_upto: Position | None = None
        self._heads: list[tuple[Position, int]] = []
        self._rows: dict[str, int] = {}
        self._backfilled: dict[tuple[str, str], int] = {}
        self._reported: dict[str, SinkView] = {}

    def observed(self, seen: Observation) -> None:
        """The source was looked at."""
        self.source_fault = None
        if self.head is None or seen.head > self.head:
            self._heads.append((seen.head, seen.head_committed_at_ms))
        self.head, self.oldest = seen.head, seen.oldest

    def source_failed(self, fault: Fault) -> None:
        """The source could not be looked at."""
        self.source_fault = fault

    def wave_done(
        self, wave: Wave, upto: Position, receipts: Sequence[Receipt], unrouted: Mapping[str, int]
    ) -> None:
        """Count what a wave has written."""
        for receipt in receipts:
            if receipt.outcome != "applied":
                continue
            for table, counts in receipt.counts.items():
                rows = counts.puts + counts.deletes
                self._rows[receipt.sink] = self._rows.get(receipt.sink, 0) + rows
                if wave.kind == "seed":
                    self._backfilled[receipt.sink, table] = counts.puts
        if wave.kind == "changes" and wave.after is not None:
            self._count_unrouted(wave.after, upto, unrouted)

    def _count_unrouted(self, after: Position, upto: Position, unrouted: Mapping[str, int]) -> None:
        # Late sinks read the same windows again: only the foremost wave counts.
        if self._counted_upto is None or after >= self._counted_upto:
            self._counted_upto = upto
            for table, count in unrouted.items():
                self.unrouted[table] = self.unrouted.get(table, 0) + count

    def refresh(self, state: Delivery) -> None:
        """Bring the lines up to date. Only sinks that are ours: others report themselves."""
        wall_ms = time.time_ns() // 1_000_000
        owned = {name: sink for name, sink in state.sinks.items() if sink.phase != "unowned"}
        places = [sink.position for sink in owned.values() if sink.position is not None]
        if places:
            oldest_place = min(places)
            self._heads = [head for head in self._heads if head[0] > oldest_place] or self._heads[-1:]
        self.sinks = {name: self._line(name, sink, state, wall_ms) for name, sink in owned.items()}

    def _line(self, name: str, sink: SinkState, state: Delivery, wall_ms: int) -> SinkView:
        return SinkView(
            name=name,
            state=_state_of(sink, state.head),
            cursor=text_of(sink.cursor),
            position=text_of(sink.position),
            lag_ms=self._lag(sink.position, state.head, wall_ms),
            rows_applied=self._rows.get(name, 0),
            error=_error_of(sink),
            tables={
                table: {
                    "status": copy.status,
                    "at": text_of(copy.at),
                    "error": None
                    if copy.hold is None
                    else {"code": copy.hold.code, "message": copy.hold.message},
                    "rows_backfilled": self._backfilled.get((name, table), 0),
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
        missing = [committed for place, committed in self._heads if place > position]
        return max(0, wall_ms - missing[0]) if missing else None

    def changed_sinks(self) -> dict[str, dict[str, Any]]:
        """Reports that differ from what was last handed out."""
        at_ms = time.time_ns() // 1_000_000
        changed = {
            name: {**asdict(line), "at_ms": at_ms}
            for name, line in self.sinks.items()
            if self._reported.get(name) != line
        }
        self._reported = dict(self.sinks)
        return changed

    def runner(self) -> dict[str, Any]:
        """This runner's own report."""
        fault = self.source_fault
        return {
            "head": text_of(self.head),
            "oldest": text_of(self.oldest),
            "unrouted": dict(self.unrouted),
            "observed_at_ms": time.time_ns() // 1_000_000,
            "error": None if fault is None else fault.document(),
        }


def _state_of(sink: SinkState, head: Position | None) -> str:
    if sink.paused:
        return "paused"
    if sink.failures or any(_stopped(copy.hold) for copy in sink.copies.values()):
        return "failed"
    if any(copy.status == "unseeded" for copy in sink.copies.values()):
        return "backfilling"
    return "current" if sink.position is not None and sink.position == head else "behind"


def _stopped(hold: Any) -> bool:
    return hold is not None and hold.code != PAUSED_CODE


def _error_of(sink: SinkState) -> dict[str, Any] | None:
    if sink.fault is not None:
        return sink.fault.document()
    for table, copy in sink.copies.items():
        if copy.hold is not None and _stopped(copy.hold):
            return {
                "code": copy.hold.code,
                "message": copy.hold.message,
                "retryable": False,
                "fix": how_to_resume(table),
            }
    return None
