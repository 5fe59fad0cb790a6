"""How often the loop sends waves: by a clock that is turned by hand, with a source that never rests."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from tests.core.machine import COLUMNS
from tests.runtime.quiet import ToldJobs, pipeline_in
from truecut.config.settings import Pipeline
from truecut.core.delivery import Recover, Wave
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.background import Background
from truecut.runtime.control import open_control
from truecut.runtime.orders import wanted
from truecut.runtime.runner import Runner
from truecut.runtime.timetable import Clock
from truecut.runtime.trace import Trace
from truecut.runtime.until import Until
from truecut.sources.contract import Observation, Source, Window
from truecut.spark.wave.job import WaveResult

INTERVAL_MS = 1_000
TURN_MS = 50
SPAN_MS = 20_000


class ByHand(Clock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


class AtOnce(Background):
    """Everything is done when it is asked for, and answered at the next turn."""

    def __init__(self) -> None:
        super().__init__()
        self._done: list[Callable[[], None]] = []

    def submit(self, call: Any, then: Any, otherwise: Any) -> None:
        answer = call()
        self._done.append(lambda: then(answer))

    def take_answers(self, *, wait_s: float) -> None:
        done, self._done = self._done, []
        for take in done:
            take()


class Restless:
    """A commit for each turn of the loop."""

    def __init__(self, clock: ByHand) -> None:
        self._clock = clock

    def observe(self) -> Observation:
        return Observation("source", Position(1, 1), Position(1, self._clock.ms // TURN_MS), 0)


class Noted(ToldJobs):
    """Sinks that stand near the head; when each wave of changes was sent, and its range. `short`: how many
    places a window ends before it was asked to."""

    def __init__(self, pipeline: Pipeline, clock: ByHand, *, short: int = 0) -> None:
        super().__init__()
        self._settings = wanted(pipeline)
        self._clock = clock
        self._place = Position(1, clock.ms // TURN_MS)
        self._short = short
        self.waves: list[tuple[int, Position, Position]] = []

    def take_over(self, effect: Recover) -> list[Receipt]:
        return [
            Receipt(sink, epoch, "applied", cursor=Cursor(self._place, token, self._copies(sink)))
            for sink, (epoch, token) in effect.sinks.items()
        ]

    def _copies(self, sink: str) -> dict[str, CopyState]:
        return {
            table: CopyState(
                "mirror",
                table,
                COLUMNS,
                fingerprint=wants.fingerprint,
                at=self._place,
                edition=1,
                source_identity="source",
            )
            for table, wants in self._settings[sink].settings.items()
        }

    def carry(
        self, wave: Wave, source: Source, *, source_identity: str, certificate: str = ""
    ) -> tuple[Window, WaveResult]:
        if wave.kind != "changes":  # everything is durable already
            receipts = [Receipt(sink, order.epoch, "aborted") for sink, order in wave.sinks.items()]
            return Window(wave.upto_max, 0, (), {}, 0), WaveResult(receipts)
        assert wave.after is not None
        place = max(wave.after.place + 1, wave.upto_max.place - self._short)
        upto = Position(1, place)
        self.waves.append((self._clock.ms, wave.after, upto))
        return Window(upto, 0, (), {}, 0), WaveResult(())


def _waves(folder: Path, *, short: int = 0) -> list[tuple[int, Position, Position]]:
    pipeline = pipeline_in(folder, batch={"interval": f"{INTERVAL_MS}ms"}, lease={"duration": "1h"})
    clock = ByHand()
    jobs = Noted(pipeline, clock, short=short)
    with closing(open_control(pipeline.control, pipeline=pipeline.name)) as control:
        runner = Runner(
            pipeline,
            name="r",
            jobs=cast(Any, jobs),
            open_source=lambda _: cast("Source", Restless(clock)),
            control=control,
            trace=Trace(None),
            until=Until(),
            background=AtOnce(),
            clock=clock,
            chance=random.Random(1),
        )
        for _ in range(SPAN_MS // TURN_MS):
            runner.turn()
            clock.ms += TURN_MS
    return jobs.waves


def test_a_window_is_cut_by_time(tmp_path: Path) -> None:
    """What is committed within an interval comes in one wave: waves are an interval apart, or hardly more,
    each begins where the last has ended, and nobody waits for longer."""
    waves = _waves(tmp_path)
    apart = [later - earlier for (earlier, _, _), (later, _, _) in pairwise(waves)]
    assert len(waves) >= SPAN_MS // INTERVAL_MS - 4
    assert all(INTERVAL_MS <= ms <= 2 * INTERVAL_MS for ms in apart), apart
    assert all(after == upto for (_, _, upto), (_, after, _) in pairwise(waves))


def test_a_backlog_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    """A window that ends before the head leaves something: the next one follows at once."""
    waves = _waves(tmp_path, short=5)
    apart = [later - earlier for (earlier, _, _), (later, _, _) in pairwise(waves)]
    assert sum(ms <= 2 * TURN_MS for ms in apart) > len(apart) // 2, apart
    assert all(after == upto for (_, _, upto), (_, after, _) in pairwise(waves))
