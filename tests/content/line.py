"""One table carried to its sinks by the real pieces, called one after another: planning, reading, routing,
applying. What a runner decides about one table (seed, stream, seed anew after a gap or a hold) is decided
here in few lines, so that a whole life costs little.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.content.at_hand import run_recover, run_wave
from truecut.config.settings import Pipeline
from truecut.core.delivery import CopyOrder, SinkOrder, Wave
from truecut.lake import lake_of
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.orders import Planner
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.spark.wave.job import RecoverJob

TABLE = "main.t"
TOKEN = 1
DEADLINE_MS = 600_000


class Line:
    """The cursor of each sink, as its last receipt told it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.source = DuckLakeSource(lake_of(pipeline.source.address), generation=1)
        self.cursors: dict[str, Cursor] = {}
        self._passed: dict[str, Position] = {}  # where a sink stands without a commit
        sinks = tuple((sink, 0, TOKEN) for sink in pipeline.sinks)
        self._take(run_recover(RecoverJob(pipeline.name, sinks, slots=2, deadline_ms=DEADLINE_MS)))

    def copy(self, sink: str) -> CopyState | None:
        return self.cursors[sink].copies.get(TABLE)

    def held(self, sink: str) -> str | None:
        """The code for which the sink's table is held."""
        copy = self.copy(sink)
        return None if copy is None or copy.hold is None else copy.hold.code

    def stream(self, sinks: Sequence[str]) -> dict[str, str]:
        """Bring these to the head by changes; those whose place cannot be read → why."""
        seen = self.source.observe()
        while True:
            behind = [name for name in sinks if not self.held(name) and self._at(name) < seen.head]
            if not behind:
                return {}
            after = min(self._at(name) for name in behind)
            group = [name for name in behind if self._at(name) == after]
            if after < seen.oldest:
                return dict.fromkeys(group, "TC2010")
            wave = Wave(
                1, "changes", {n: self._order(n, "changes") for n in group}, (TABLE,), after, seen.head
            )
            lost = self._run(wave, seen.identity)
            if lost is not None:
                return dict.fromkeys(group, lost)

    def seed(self, sink: str) -> None:
        """The whole table at the head, as at first and after every gap."""
        seen = self.source.observe()
        self._run(
            Wave(1, "seed", {sink: self._order(sink, "replace")}, (TABLE,), None, seen.head), seen.identity
        )

    # --- leaves ---------------------------------------------------------------------------------------

    def _run(self, wave: Wave, identity: str) -> str | None:
        planner = Planner(self.pipeline, identity)
        window = planner.window(self.source, wave, parallelism=2)
        if window.lost:
            return next(window.faults[name].code for name in window.lost)
        receipts = run_wave(planner.job(wave, window, slots=2, deadline_ms=DEADLINE_MS)).receipts
        self._take(receipts)
        told = {receipt.sink for receipt in receipts}
        for name in set(wave.sinks) - told:  # nothing was for it: it stands there without a commit
            self._passed[name] = window.upto
        return None

    def _take(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            assert receipt.outcome == "applied", (receipt.outcome, receipt.fault)
            assert receipt.cursor is not None
            self.cursors[receipt.sink] = receipt.cursor
            self._passed.pop(receipt.sink, None)

    def _at(self, sink: str) -> Position:
        copy = self.copy(sink)
        assert copy is not None, "seeded first"
        return self._passed.get(sink, copy.at)

    def _order(self, sink: str, kind: str) -> SinkOrder:
        copy = self.copy(sink)
        expected = None if copy is None else copy.version
        edition = 0 if copy is None else copy.edition
        if kind == "replace":
            one = CopyOrder("replace", expected, None, edition + 1)
        else:
            one = CopyOrder("changes", expected, self._at(sink), edition)
        return SinkOrder(0, TOKEN, {TABLE: one})
