"""The runner: carries out what the delivery machine decides, and tells it what happened.

One loop, one owner of the state; everything slow (looking at the source, Spark jobs) runs in the
background and comes back through a queue. A sink costs no thread, query or connection here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truecut.config.settings import Pipeline
from truecut.core import delivery
from truecut.core.delivery import Delivery, Effect, RaiseToken, Recover, RunWave, Wave
from truecut.errors import Fault
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.background import Background
from truecut.runtime.control import ControlStore
from truecut.runtime.ending import Outcome, Until, idle, judge
from truecut.runtime.failpoint import failpoint
from truecut.runtime.generations import Generations, known_generation
from truecut.runtime.jobs import Jobs
from truecut.runtime.leases import Leases
from truecut.runtime.machine import Machine
from truecut.runtime.plan import wanted
from truecut.runtime.requests import Requests
from truecut.runtime.timetable import Timetable, now_ms
from truecut.runtime.trace import Trace
from truecut.runtime.view import View
from truecut.sources.contract import Observation, Source, Window
from truecut.spark.wave import WaveResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S = 0.05
WAVES_MAX = 2  # ordinary waves at once: groups at different places
SEEDS_MAX = 2  # one that hangs leaves room for another
REPORT_MS = 1_000
PERSIST_MS = 30_000
BUSY_MS = 500  # between two looks at the source while no sink is free
SOURCE_PAUSE_MS = 1_000  # after the source could not be read


class Runner:
    """Runs one pipeline, or its share of it, until told to stop."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        name: str,
        spark: SparkSession,
        open_source: Callable[[int], Source],
        control: ControlStore,
        trace: Trace,
        until: Until,
        accept: bool = False,
        on_view: Callable[[View], None] = lambda _: None,
    ) -> None:
        self._pipeline = pipeline
        self._name = name
        self._control = control
        self._generations = Generations(open_source, control)
        self._until = until
        self._on_view = on_view
        self._view = View(pipeline)
        self._machine = Machine(Delivery(wanted(pipeline, accept=accept)), trace)
        self._times = Timetable()
        self._background = Background()
        self._jobs = Jobs(pipeline, spark, runner=name)
        self._leases = Leases(control, self._machine, runner=name, duration_ms=pipeline.lease_ms)
        self._requests = Requests(pipeline.state, self._machine, self._times)
        self._stopping = False
        self._observing = False
        self._recovering = False
        self._running: dict[int, Wave] = {}
        self._target: Position | None = None
        self._started_ms = now_ms()

    def stop(self) -> None:
        """Ask for a clean stop: what is in flight ends, cursors are made durable, leases are released."""
        self._stopping = True

    def run(self) -> Outcome:
        """The loop. Returns when stopped or when `until` is reached (or cannot be)."""
        try:
            while not self._stopping and not self._ended():
                self._background.take_answers(wait_s=TICK_S)
                self._heartbeat()
                self._observe()
                self._requests.obey()
                self._leases.give_back()
                self._launch()
                self._report()
            self._wind_down()
            return self._judge()[0]
        finally:
            self._control.leave(self._name)
            self._background.close()

    @property
    def _state(self) -> Delivery:
        return self._machine.state

    def _heartbeat(self, *, claim: bool = True) -> None:
        if self._times.is_due("heartbeat", self._pipeline.lease_ms // 4):
            self._leases.renew(self._view.runner(), claim=claim)

    # --- the source -----------------------------------------------------------------------------------

    def _observe(self) -> None:
        # While every sink is at work, nothing could be done about what is new.
        busy = all(sink.phase == "applying" for sink in self._state.sinks.values())
        often_ms = BUSY_MS if busy else self._pipeline.batch.interval_ms // 2
        if self._observing or not self._times.is_due("observe", often_ms):
            return
        self._observing = True
        observe = self._generations.source.observe
        self._background.submit(observe, self._observed, self._observe_failed)

    def _observed(self, seen: Observation) -> None:
        self._observing = False
        if self._look_again(seen.identity):
            return
        head = seen.head if self._until.position is None else min(seen.head, self._until.position)
        if self._target is None:
            self._target = self._until.position or head
        self._view.observed(seen)
        oldest = min(seen.oldest, head)
        if (seen.identity, oldest, head) != (self._state.identity, self._state.oldest, self._state.head):
            self._machine.become(
                delivery.observe(self._state, identity=seen.identity, oldest=oldest, head=head)
            )

    def _observe_failed(self, fault: Fault) -> None:
        self._observing = False
        self._view.source_failed(fault)

    def _look_again(self, identity: str, *, at_least: int = 1) -> bool:
        """Whether positions have another generation now, so that the source has to be observed anew."""
        renewed = self._generations.renew(identity, at_least=at_least)
        if renewed:
            self._times.at_once("observe")
        return renewed

    # --- starting what may start ----------------------------------------------------------------------

    def _launch(self) -> None:
        if not self._recovering:
            self._carry_out(delivery.start_recovery(self._state, now_ms=now_ms()))
        ordinary = [wave.kind for wave in self._running.values() if not wave.late]
        if sum(wave.kind == "seed" for wave in self._running.values()) < SEEDS_MAX:
            self._carry_out(delivery.start_seed(self._state))
        if ordinary.count("changes") < WAVES_MAX and self._times.is_due(
            "wave", self._pipeline.batch.interval_ms
        ):
            started = self._carry_out(delivery.start_wave(self._state))
            if not started:
                self._times.at_once("wave")  # nothing to carry: the next change need not wait
        if not any(wave.late for wave in self._running.values()):
            self._carry_out(delivery.start_wave(self._state, late=True))
        if self._times.is_due("persist", PERSIST_MS):
            self._carry_out(delivery.persist_idle(self._state, delivery.due_to_persist(self._state)))

    def _carry_out(self, decision: tuple[Delivery, list[Effect]]) -> bool:
        """Adopt the new state, then do what it asks for. False: nothing was asked for."""
        state, effects = decision
        self._machine.become(state)
        above: dict[str, int] = {}
        for effect in effects:
            match effect:
                case Recover():
                    self._recover(effect)
                case RunWave(wave):
                    self._run_wave(wave)
                case RaiseToken(sink, token):
                    above[sink] = token
        if above:
            self._leases.raise_tokens(above)
        return bool(effects)

    # --- recovery -------------------------------------------------------------------------------------

    def _recover(self, effect: Recover) -> None:
        self._recovering = True
        self._background.submit(
            lambda: self._jobs.take_over(effect),
            self._recovered,
            lambda fault: self._recovery_failed(effect, fault),
        )

    def _recovered(self, receipts: list[Receipt]) -> None:
        self._recovering = False
        identity = self._state.identity
        self._look_again(identity, at_least=known_generation(identity, receipts))
        self._carry_out(delivery.recovered(self._state, receipts, **_time_and_chance()))

    def _recovery_failed(self, effect: Recover, fault: Fault) -> None:
        self._recovering = False
        self._carry_out(delivery.recovery_failed(self._state, effect, fault, **_time_and_chance()))

    # --- waves ----------------------------------------------------------------------------------------

    def _run_wave(self, wave: Wave) -> None:
        self._running[wave.id] = wave
        failpoint("before_wave")
        identity = self._state.identity
        self._background.submit(
            lambda: self._jobs.carry(wave, self._generations.source, source_identity=identity),
            lambda answer: self._wave_done(wave, *answer),
            lambda fault: self._wave_failed(wave, fault),
        )

    def _wave_done(self, wave: Wave, window: Window, result: WaveResult) -> None:
        del self._running[wave.id]
        failpoint("after_wave")
        self._view.wave_done(wave, window.upto, result.receipts, result.unrouted)
        self._times.at_once("report")
        self._times.at_once("observe")
        aborted = next((r.fault for r in result.receipts if r.outcome == "aborted"), None)
        if aborted is not None and not window.lost:
            self._view.source_failed(aborted)
            self._times.not_within("wave", SOURCE_PAUSE_MS)
        elif window.upto < wave.upto_max:
            self._times.at_once("wave")  # a backlog: the next window need not wait
        upto, receipts = window.upto, result.receipts
        self._carry_out(
            delivery.wave_done(self._state, wave.id, upto=upto, receipts=receipts, **_time_and_chance())
        )
        if window.lost:
            self._machine.become(delivery.lost_history(self._state, wave.sinks, window.lost))

    def _wave_failed(self, wave: Wave, fault: Fault) -> None:
        del self._running[wave.id]
        self._carry_out(delivery.wave_failed(self._state, wave.id, fault, **_time_and_chance()))

    # --- the end --------------------------------------------------------------------------------------

    def _ended(self) -> bool:
        if not self._until.finite:
            return False
        outcome, final = self._judge()
        limit = self._until.timeout_ms
        late = limit is not None and now_ms() - self._started_ms > limit
        return outcome.reached or late or (final and not self._requests.open)

    def _judge(self) -> tuple[Outcome, bool]:
        if self._target is None:
            fault = self._view.source_fault
            return Outcome(
                reached=False, stragglers={"source": fault.message if fault else "no answer"}
            ), False
        alone = all(sink.phase != "unowned" for sink in self._state.sinks.values())
        return judge(self._state, self._target, {} if alone else self._control.positions())

    def _wind_down(self) -> None:
        """Wait for what is in flight, then make idle positions durable."""
        deadline_ms = now_ms() + 2 * self._pipeline.batch.deadline_ms
        self._drain(deadline_ms)
        self._carry_out(delivery.persist_idle(self._state, idle(self._state)))
        self._drain(deadline_ms)
        self._report(force=True)

    def _drain(self, deadline_ms: int) -> None:
        while (self._running or self._recovering) and now_ms() < deadline_ms:
            self._background.take_answers(wait_s=TICK_S)
            self._heartbeat(claim=False)

    def _report(self, *, force: bool = False) -> None:
        if force or self._times.is_due("report", REPORT_MS):
            self._view.refresh(self._state)
            self._view.seeds = {
                tuple(wave.sinks): self._jobs.fraction_done(wave)
                for wave in self._running.values()
                if wave.kind == "seed"
            }
            self._control.report_sinks(self._view.changed_sinks())
            self._on_view(self._view)


def _time_and_chance() -> dict[str, Any]:
    return {"now_ms": now_ms(), "jitter": random.random()}
