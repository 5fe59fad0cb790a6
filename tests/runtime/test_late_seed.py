"""Late sinks beside one whose seed hangs."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

from tests.core.machine import COLUMNS
from tests.e2e.world import eventually
from tests.runtime.quiet import BUSY, StillSource, ToldJobs, pipeline_in, running
from truecut.config.settings import Pipeline
from truecut.core.delivery import Recover, Wave
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.control import open_control
from truecut.runtime.orders import wanted
from truecut.sources.contract import Source, Window
from truecut.spark.wave.job import WaveResult

PLACE = Position(1, 3)


class HangingSeed(ToldJobs):
    """Each sink is busy at first, and late by that. Then `t0` has nothing, and its seed hangs; `t1` stands at
    PLACE."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self._settings = wanted(pipeline)
        self.seeding, self.streaming, self.over = threading.Event(), threading.Event(), threading.Event()

    def take_over(self, effect: Recover) -> list[Receipt]:
        known = set(self.tokens)
        busy = {receipt.sink: receipt for receipt in super().take_over(effect)}
        return [
            Receipt(sink, epoch, "applied", cursor=self._cursor(sink, token)) if sink in known else busy[sink]
            for sink, (epoch, token) in effect.sinks.items()
        ]

    def _cursor(self, sink: str, token: int) -> Cursor:
        if sink == "t0":
            return Cursor(None, token)
        copies = {
            table: CopyState(
                "mirror",
                table,
                COLUMNS,
                fingerprint=wants.fingerprint,
                at=PLACE,
                edition=1,
                source_identity="source",
            )
            for table, wants in self._settings[sink].settings.items()
        }
        return Cursor(PLACE, token, copies)

    def carry(
        self, wave: Wave, source: Source, *, source_identity: str, certificate: str = ""
    ) -> tuple[Window, WaveResult]:
        assert wave.late
        if wave.kind == "seed":
            self.seeding.set()
            self.over.wait()
        elif self.seeding.is_set():
            self.streaming.set()
        receipts = [Receipt(sink, order.epoch, "failed", fault=BUSY) for sink, order in wave.sinks.items()]
        return Window(wave.upto_max, 0, (), {}, 0), WaveResult(receipts)

    def fraction_done(self, wave: Wave) -> float:
        return 0.0


def test_a_late_seed_that_hangs_keeps_no_late_changes_waiting(tmp_path: Path) -> None:
    """One late sink's seed never ends: changes are sent to the other late one all the same."""
    pipeline = pipeline_in(tmp_path)
    jobs = HangingSeed(pipeline)
    with (
        closing(open_control(pipeline.control, pipeline=pipeline.name)) as control,
        running(pipeline, control, StillSource(), jobs),
    ):
        try:
            eventually(jobs.seeding.is_set, what="the seed is under way")
            eventually(jobs.streaming.is_set, what="changes are carried beside it")
        finally:
            jobs.over.set()
