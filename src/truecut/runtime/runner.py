"""The runner: carries out what the delivery machine decides, and tells it what happened.

One loop, one owner of the state; everything slow (looking at the source, Spark jobs) runs in a few
threads and comes back through a queue. A sink costs no thread, query or connection here.
"""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from truecut.config.settings import Pipeline, copy_fingerprint
from truecut.core import delivery
from truecut.core.delivery import (
    CopySettings,
    Delivery,
    Effect,
    RaiseToken,
    Recover,
    RunWave,
    SinkState,
    Wave,
)
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.control import ControlStore
from truecut.runtime.failpoint import failpoint
from truecut.runtime.pauses import Pauses, read_pauses, resumed
from truecut.runtime.plan import Planner
from truecut.runtime.trace import Trace
from truecut.runtime.view import View
from truecut.sources.contract import Observation, Source, Window
from truecut.spark.session import slots
from truecut.spark.wave import RecoverJob, WaveResult, run_recover, run_wave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S = 0.05
THREADS = 8
WAVES_MAX = 2  # ordinary waves at once: groups at different places
SEED_DEADLINE_MS = 600_000  # without any progress
REPORT_MS = 1_000
RESUME_SEEN_MS = 5_000
PERSIST_MS = 30_000


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop by itself: at a position, at the head of the first look, or never."""

    caught_up: bool = False
    position: Position | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `stragglers`: what could not follow, sink → why."""

    reached: bool
    stragglers: Mapping[str, str] = field(default_factory=dict)


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
        self._spark = spark
        self._open_source = open_source
        self._generation = 1
        self._source = open_source(self._generation)
        self._control = control
        self._trace = trace
        self._until = until
        self._on_view = on_view
        self._state = Delivery(_initial(pipeline, accept=accept))
        self._view = View(pipeline)
        self._done: queue.Queue[Callable[[], None]] = queue.Queue()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="truecut")
        self._stopping = False
        self._observing = False
        self._recovering = False
        self._running: dict[int, Wave] = {}
        self._target: Position | None = None
        self._due: dict[str, int] = {}
        self._started_ms = self._now_ms()
        self._source_fault: Fault | None = None
        self._pauses = Pauses()
        self._resuming: dict[str, set[str]] = {}  # table → sinks that have not taken the request up yet

    def stop(self) -> None:
        """Ask for a clean stop: what is in flight ends, cursors are made durable, leases are released."""
        self._stopping = True

    def run(self) -> Outcome:
        """The loop. Returns when stopped or when `until` is reached (or cannot be)."""
        try:
            while True:
                self._wait_for_news()
                self._heartbeat()
                self._observe()
                self._obey_pauses()
                outcome = self._outcome()
                if outcome is not None or self._stopping:
                    break
                self._launch()
                self._report()
            self._wind_down()
            return self._outcome() or outcome or Outcome(reached=False)
        finally:
            self._control.leave(self._name)
            self._pool.shutdown(wait=False, cancel_futures=True)

    # --- the parts of a turn --------------------------------------------------------------------------

    def _wait_for_news(self) -> None:
        try:
            self._done.get(timeout=TICK_S)()
            while True:
                self._done.get_nowait()()
        except queue.Empty:
            return

    def _heartbeat(self) -> None:
        """Renew leases; notice lost ones; claim our share of the free ones, give back what is above it."""
        if not self._is_due("heartbeat", self._pipeline.lease_ms // 4):
            return
        lease_ms = self._pipeline.lease_ms
        held, alive = self._control.heartbeat(self._name, duration_ms=lease_ms, report=self._view.runner())
        ours = {name for name, sink in self._state.sinks.items() if sink.phase != "unowned"}
        self._lose(ours - held)
        share = -(-len(self._state.sinks) // max(1, alive))
        excess = [n for n in sorted(ours & held) if self._state.sinks[n].phase == "idle"]
        excess = excess[: max(0, len(held) - share)]
        if excess:
            self._control.release(self._name, excess)
            self._lose(set(excess))
        elif len(held) < share:
            wanted = [name for name, sink in self._state.sinks.items() if sink.phase == "unowned"]
            random.shuffle(wanted)  # runners that start together must not fight for the same ones
            tokens = self._control.claim(
                self._name, wanted, duration_ms=lease_ms, count_max=share - len(held)
            )
            failpoint("after_claim")
            if tokens:
                self._state = delivery.acquire(self._state, tokens)
                for sink, token in tokens.items():
                    self._trace.emit("Acquire", sink=sink, token=token)

    def _lose(self, sinks: set[str]) -> None:
        if sinks:
            self._state = delivery.lose(self._state, sinks)
            for sink in sorted(sinks):
                self._trace.emit("Lose", sink=sink)

    def _observe(self) -> None:
        if self._observing or not self._is_due("observe", self._pipeline.batch.interval_ms // 2):
            return
        self._observing = True
        self._submit(self._source.observe, self._observed, self._observe_failed)

    def _observed(self, seen: Observation) -> None:
        self._observing = False
        self._source_fault = None
        if self._renew_generation(seen.identity):
            return
        head = seen.head if self._until.position is None else min(seen.head, self._until.position)
        if self._target is None:
            self._target = head
        self._view.observed(seen)
        before = self._state
        self._state = delivery.observe(
            self._state, identity=seen.identity, oldest=min(seen.oldest, head), head=head
        )
        if (before.head, before.oldest) != (head, self._state.oldest):
            self._trace.emit("Observe", oldest=str(self._state.oldest), head=str(head))

    def _renew_generation(self, identity: str, *, at_least: int = 1) -> bool:
        """Another source has taken the old one's place, or the sinks know a later generation than we do:
        positions must say so. True: what was seen has to be looked at again."""
        generation = self._control.generation(identity, at_least=at_least)
        if generation == self._generation:
            return False
        self._generation = generation
        self._source = self._open_source(generation)
        self._due.pop("observe", None)
        return True

    def _observe_failed(self, fault: Fault) -> None:
        self._observing = False
        self._source_fault = fault
        self._view.source_failed(fault)

    def _obey_pauses(self) -> None:
        """What users have paused or resumed, by files in the state folder."""
        if self._is_due("pauses", REPORT_MS):
            self._pauses = read_pauses(self._pipeline.state)
            for table in self._pauses.resumed_tables - self._resuming.keys():
                self._resuming[table] = set(self._state.sinks)
        sinks = frozenset(self._state.sinks) if self._pauses.everything else self._pauses.sinks
        self._state = delivery.pause(self._state, sinks=sinks)
        for table in sorted(self._pauses.tables):
            self._state = delivery.pause_table(self._state, table)
        for table in sorted(self._resuming):
            self._resume(table)

    def _resume(self, table: str) -> None:
        """A sink takes the request up once, as soon as it is idle. Another runner's sinks are its own
        matter: the request stays long enough for everybody to see it."""
        waiting = self._resuming[table]
        ready = {name for name in waiting if self._state.sinks[name].phase == "idle"}
        self._state = delivery.resume_table(self._state, table, sinks=ready)
        waiting -= ready
        owned = {name for name, sink in self._state.sinks.items() if sink.phase != "unowned"}
        if not waiting & owned and owned and self._is_due(f"resume {table}", RESUME_SEEN_MS):
            if table in self._pauses.resumed_tables:
                resumed(self._pipeline.state, table=table)
            else:
                del self._resuming[table]

    def _launch(self) -> None:
        """Start whatever may start now."""
        if self._state.head is None:
            return
        now = self._now_ms()
        if not self._recovering:
            self._state, effects = delivery.start_recovery(self._state, now_ms=now)
            self._carry_out(effects)
        kinds = [wave.kind for wave in self._running.values() if not wave.late]
        if "seed" not in kinds:
            self._state, effects = delivery.start_seed(self._state)
            self._carry_out(effects)
        if kinds.count("changes") < WAVES_MAX and self._is_due("wave", self._pipeline.batch.interval_ms):
            self._state, effects = delivery.start_wave(self._state)
            if not effects:
                self._due.pop("wave")  # nothing to carry: the next change need not wait
            self._carry_out(effects)
        if not any(wave.late for wave in self._running.values()):
            self._state, effects = delivery.start_wave(self._state, late=True)
            self._carry_out(effects)
        if self._is_due("persist", PERSIST_MS):
            self._persist(delivery.due_to_persist(self._state))

    def _persist(self, sinks: list[str]) -> None:
        self._state, effects = delivery.persist_idle(self._state, sinks)
        self._carry_out(effects)

    # --- effects --------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
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
            self._raise_tokens(above)

    def _recover(self, effect: Recover) -> None:
        self._recovering = True
        settings = {sink.name: sink for sink in self._pipeline.sinks}
        job = RecoverJob(
            self._pipeline.name,
            tuple((settings[name], epoch, token) for name, (epoch, token) in effect.sinks.items()),
            slots=slots(self._spark),
            deadline_ms=self._pipeline.batch.deadline_ms,
        )
        for name in effect.sinks:
            self._trace.emit("StartRecovery", sink=name)
        self._submit(
            lambda: run_recover(self._spark, job),
            self._recovered,
            lambda fault: self._recovery_failed(effect, fault),
        )

    def _recovery_failed(self, effect: Recover, fault: Fault) -> None:
        self._recovering = False
        self._state, effects = delivery.recovery_failed(
            self._state, effect, fault, now_ms=self._now_ms(), jitter=random.random()
        )
        self._carry_out(effects)

    def _recovered(self, receipts: list[Receipt]) -> None:
        self._recovering = False
        known = [
            receipt.cursor.position.generation
            for receipt in receipts
            if receipt.cursor is not None
            and receipt.cursor.position is not None
            and receipt.cursor.source_identity == self._state.identity
        ]
        self._renew_generation(self._state.identity, at_least=max(known, default=1))
        self._state, effects = delivery.recovered(
            self._state, receipts, now_ms=self._now_ms(), jitter=random.random()
        )
        for receipt in receipts:
            if receipt.cursor is not None:
                self._trace.emit("Recovered", sink=receipt.sink, cursor=_text(receipt.cursor.position))
        self._carry_out(effects)

    def _raise_tokens(self, above: Mapping[str, int]) -> None:
        tokens = self._control.raise_token(self._name, above, duration_ms=self._pipeline.lease_ms)
        self._state = delivery.acquire(self._state, tokens)
        for name, token in tokens.items():
            self._trace.emit("Acquire", sink=name, token=token)

    def _run_wave(self, wave: Wave) -> None:
        self._running[wave.id] = wave
        failpoint("before_wave")
        action = {"changes": "StartWave", "seed": "StartSeed", "persist": "PersistIdle"}[wave.kind]
        for sink in wave.sinks:
            self._trace.emit(action, sink=sink, upto=str(wave.upto_max))
        planner = Planner(self._pipeline, self._state.identity)
        self._submit(
            lambda: self._in_spark(planner, wave),
            lambda answer: self._wave_done(wave, *answer),
            lambda fault: self._wave_failed(wave, fault),
        )

    def _in_spark(self, planner: Planner, wave: Wave) -> tuple[Window, WaveResult]:
        """In a thread of the pool: plan, run, come back."""
        room = slots(self._spark)
        allowed = max(1, room // 4) if wave.late else room
        window = planner.window(self._source, wave, parallelism=allowed)
        deadline_ms = SEED_DEADLINE_MS if wave.kind == "seed" else self._pipeline.batch.deadline_ms
        job = planner.job(wave, window, slots=allowed, deadline_ms=deadline_ms)
        return window, run_wave(self._spark, job)

    def _wave_done(self, wave: Wave, window: Window, result: WaveResult) -> None:
        self._running.pop(wave.id)
        failpoint("after_wave")
        self._state, effects = delivery.wave_done(
            self._state,
            wave.id,
            upto=window.upto,
            receipts=result.receipts,
            now_ms=self._now_ms(),
            jitter=random.random(),
        )
        self._trace_answers(wave, window, result)
        self._view.wave_done(wave, window.upto, result.receipts, result.unrouted)
        aborted = next((r.fault for r in result.receipts if r.outcome == "aborted"), None)
        if aborted is not None:
            self._hold_back(aborted)
        elif window.upto < wave.upto_max:
            self._due.pop("wave", None)  # a backlog: the next window need not wait
        self._carry_out(effects)

    def _trace_answers(self, wave: Wave, window: Window, result: WaveResult) -> None:
        answers = {receipt.sink: receipt for receipt in result.receipts}
        for sink in wave.sinks:
            receipt = answers.get(sink)
            if receipt is None:
                self._trace.emit("Advance", sink=sink, upto=str(window.upto))
            elif receipt.cursor is not None:
                self._trace.emit("WaveCommit", sink=sink, upto=_text(receipt.cursor.position))
            else:
                self._trace.emit("WaveFail", sink=sink)

    def _wave_failed(self, wave: Wave, fault: Fault) -> None:
        self._running.pop(wave.id)
        self._state, effects = delivery.wave_failed(
            self._state, wave.id, fault, now_ms=self._now_ms(), jitter=random.random()
        )
        for sink in wave.sinks:
            self._trace.emit("WaveFail", sink=sink)
        self._carry_out(effects)

    def _hold_back(self, fault: Fault) -> None:
        """The source could not be read: no wave for a moment."""
        self._source_fault = fault
        self._view.source_failed(fault)
        self._due["wave"] = self._now_ms() + 1_000

    # --- the end --------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome | None:
        """Whether `until` is reached, or cannot be."""
        if not (self._until.caught_up or self._until.position):
            return None
        target = self._until.position or self._target
        if target is None:
            return self._timed_out(
                {"source": self._source_fault.message if self._source_fault else "no answer"}
            )
        if self._state.head is None or self._state.head < target:
            return self._timed_out({"source": f"the head has not reached {target}"})
        behind = self._all_behind(target)
        if not behind:
            return Outcome(reached=True)
        hopeless = all(self._hopeless(self._state.sinks[name], target) for name in behind)
        if hopeless:
            return Outcome(reached=False, stragglers=behind)
        return self._timed_out(behind)

    def _all_behind(self, target: Position) -> dict[str, str]:
        """The sinks that have not reached the target, and why. Other runners' sinks: as they report."""
        unowned = [name for name, sink in self._state.sinks.items() if sink.phase == "unowned"]
        elsewhere = self._control.reports().sinks if unowned and self._is_due("others", REPORT_MS) else {}
        behind = {}
        for name, sink in self._state.sinks.items():
            why = self._behind(sink, target)
            place = elsewhere.get(name, {}).get("position")
            if why is not None and (place is None or Position.parse(place) < target):
                behind[name] = why
        return behind

    @staticmethod
    def _behind(sink: SinkState, target: Position) -> str | None:
        held = [t for t, copy in sink.copies.items() if copy.status == "held"]
        if held:
            return f"{', '.join(held)} is held: " + (_why(sink, held[0]) or "")
        arrived = all(
            copy.status == "streaming" and copy.at is not None and copy.at >= target
            for copy in sink.copies.values()
        )
        if sink.phase == "idle" and arrived:
            return None
        return sink.fault.message if sink.fault else "paused" if sink.paused else "not there yet"

    @staticmethod
    def _hopeless(sink: SinkState, target: Position) -> bool:
        """Nothing that we do by ourselves will change this: all that can move has arrived."""
        given_up = sink.fault is not None and sink.fault.retry is not Retry.RETRYABLE
        arrived = all(
            copy.status == "held"
            or (copy.status == "streaming" and copy.at is not None and copy.at >= target)
            for copy in sink.copies.values()
        )
        return sink.paused or given_up or (sink.phase == "idle" and arrived)

    def _timed_out(self, stragglers: Mapping[str, str]) -> Outcome | None:
        limit = self._until.timeout_ms
        if limit is not None and self._now_ms() - self._started_ms > limit:
            return Outcome(reached=False, stragglers=stragglers)
        return None

    def _wind_down(self) -> None:
        """Wait for what is in flight, then make idle positions durable."""
        deadline = self._now_ms() + 2 * self._pipeline.batch.deadline_ms
        self._drain(deadline)
        self._persist([name for name, sink in self._state.sinks.items() if sink.phase == "idle"])
        self._drain(deadline)
        self._report(force=True)

    def _drain(self, deadline_ms: int) -> None:
        while (self._running or self._recovering) and self._now_ms() < deadline_ms:
            self._wait_for_news()
            self._heartbeat_only()

    def _heartbeat_only(self) -> None:
        if self._is_due("heartbeat", self._pipeline.lease_ms // 4):
            held, _ = self._control.heartbeat(
                self._name, duration_ms=self._pipeline.lease_ms, report=self._view.runner()
            )
            self._lose({n for n, s in self._state.sinks.items() if s.phase != "unowned"} - held)

    # --- leaves ---------------------------------------------------------------------------------------

    def _report(self, *, force: bool = False) -> None:
        if force or self._is_due("report", REPORT_MS):
            self._view.refresh(self._state)
            self._control.report_sinks(self._view.changed_sinks())
            self._on_view(self._view)

    def _submit(
        self, call: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[Fault], None]
    ) -> None:
        def body() -> None:
            try:
                answer = call()
            except TruecutError as error:
                fault = error.fault
                self._done.put(lambda: otherwise(fault))
            except Exception as error:  # noqa: BLE001 - Spark raises many kinds; none may end the loop
                unknown = _spark_fault(error)
                self._done.put(lambda: otherwise(unknown))
            else:
                self._done.put(lambda: then(answer))

        self._pool.submit(body)

    def _is_due(self, what: str, every_ms: int) -> bool:
        now = self._now_ms()
        if now < self._due.get(what, 0):
            return False
        self._due[what] = now + every_ms
        return True

    @staticmethod
    def _now_ms() -> int:
        return time.monotonic_ns() // 1_000_000


def _initial(pipeline: Pipeline, *, accept: bool) -> dict[str, SinkState]:
    tables = {str(table.name): table for table in pipeline.tables}
    return {
        sink.name: SinkState(
            {
                name: CopySettings(mode, tables[name].on_gap, copy_fingerprint(tables[name], sink), accept)
                for name, mode in sink.modes.items()
            }
        )
        for sink in pipeline.sinks
    }


def _held(sink: SinkState, table: str) -> bool:
    copy = sink.copies.get(table)
    return copy is not None and copy.status == "held"


def _why(sink: SinkState, table: str) -> str | None:
    hold = sink.copies[table].hold
    return hold.message if hold else None


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)


def _spark_fault(error: Exception) -> Fault:
    # Spark's text may repeat what a worker printed: only the class of the error is told.
    return Fault(
        "TC5004",
        f"the Spark job failed ({type(error).__name__})",
        "It is tried again by itself; spark.log in the state folder may say more.",
        Retry.RETRYABLE,
    )
