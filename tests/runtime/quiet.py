"""A runner without Spark: a source that stands still, and jobs that only tell what they were asked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import yaml

from tests.e2e.world import tenants_document
from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.core.delivery import Recover, Wave
from truecut.errors import Fault, Retry
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.control import ControlStore
from truecut.runtime.jobs import Jobs
from truecut.runtime.run_report import View
from truecut.runtime.runner import Runner
from truecut.runtime.trace import Trace
from truecut.runtime.until import Outcome, Until
from truecut.sources.contract import Observation, Source, Window
from truecut.spark.wave.job import WaveResult

FENCED = Fault("TC4010", "owned by somebody else", "None needed.", Retry.FATAL)
BUSY = Fault("TC4001", "busy", "None needed.", Retry.RETRYABLE)


def pipeline_in(folder: Path, *, tenants: int = 2, **spec: Any) -> Pipeline:
    """One table, a few sinks that nobody connects to."""
    document = tenants_document(tenants=[f"t{n}" for n in range(tenants)], **spec)
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return load(file, environ=os.environ)


class StillSource:
    """The same at every look; counts them."""

    def __init__(self) -> None:
        self.looks = 0

    def observe(self) -> Observation:
        self.looks += 1
        return Observation("source", Position(1, 1), Position(1, 5), 0)


class ToldJobs:
    """Sinks that are always busy. `tokens`: what each was to be taken over with, in turn."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}

    def take_over(self, effect: Recover) -> list[Receipt]:
        for sink, (_, token) in effect.sinks.items():
            self.tokens.setdefault(sink, []).append(token)
        return [Receipt(sink, epoch, "failed", fault=BUSY) for sink, (epoch, _) in effect.sinks.items()]


class FencedSinks:
    """Sinks with a fence and nothing else: seeds of the owner never get through. `owners`: tokens in turn."""

    def __init__(self) -> None:
        self.owners: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def take_over(self, effect: Recover) -> list[Receipt]:
        return [self._take_over(sink, *wanted) for sink, wanted in effect.sinks.items()]

    def _take_over(self, sink: str, epoch: int, token: int) -> Receipt:
        with self._lock:
            owners = self.owners.setdefault(sink, [0])
            if owners[-1] > token:
                return Receipt(sink, epoch, "failed", fault=FENCED, fenced_by=owners[-1])
            if owners[-1] < token:
                owners.append(token)
            return Receipt(sink, epoch, "applied", cursor=Cursor(position=None, token=token))

    def carry(
        self, wave: Wave, source: Source, *, source_identity: str, certificate: str = ""
    ) -> tuple[Window, WaveResult]:
        receipts = [self._refuse(sink, order.epoch, order.token) for sink, order in wave.sinks.items()]
        return Window(wave.upto_max, 0, (), {}, 0), WaveResult(receipts)

    def _refuse(self, sink: str, epoch: int, token: int) -> Receipt:
        newest = self.owners[sink][-1]
        if newest == token:
            return Receipt(sink, epoch, "failed", fault=BUSY)
        return Receipt(sink, epoch, "failed", fault=FENCED, fenced_by=newest)

    def fraction_done(self, wave: Wave) -> float:
        return 0.0


@contextmanager
def running(
    pipeline: Pipeline,
    control: ControlStore,
    source: StillSource,
    jobs: ToldJobs | FencedSinks,
    on_view: Callable[[View], None] = lambda _: None,
    *,
    name: str = "r",
) -> Iterator[None]:
    """A run in the background; at the end of the block it is stopped, and must have had no trouble."""
    ended: list[Outcome | BaseException] = []
    runner = Runner(
        pipeline,
        name=name,
        jobs=cast("Jobs", jobs),
        open_source=lambda _: cast("Source", source),
        control=control,
        trace=Trace(None),
        until=Until(),
        on_view=on_view,
    )

    def run() -> None:
        try:
            ended.append(runner.run())
        except BaseException as error:  # noqa: BLE001 - told by the assertion below
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        runner.stop()
        thread.join(timeout=120)
    assert isinstance(ended[0], Outcome), ended
