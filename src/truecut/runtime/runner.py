"""The runner: carries out what the delivery machine decides, and tells it what happened.

One loop, one owner of the state; everything slow (looking at the source, Spark jobs) runs in a few
threads and comes back through a queue. A sink costs no thread, query or connection here.
"""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from truecut.config.settings import Pipeline
from truecut.core import delivery
from truecut.core.delivery import (
    Delivery,
    Effect,
    RaiseToken,
    Recover,
    RunWave,
    Wave,
)
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.runtime.control import ControlStore
from truecut.runtime.ending import Outcome, Until, idle, judge
from truecut.runtime.failpoint import failpoint
from truecut.runtime.pauses import Pauses, read_pauses, resumed
from truecut.runtime.plan import Planner, wanted
from truecut.runtime.trace import Trace
from truecut.runtime.view import View
from truecut.sources.contract import Observation, Source, Window
from truecut.spark.progress import fraction_done, name_job
from truecut.spark.session import slots
from truecut.spark.wave import RecoverJob, WaveResult, run_recover, run_wave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S = 0.05
THREADS = 8
WAVES_MAX = 2  # ordinary waves at once: groups at different places
SEEDS_MAX = 2  # one that hangs leaves room for another
SEED_DEADLINE_MS = 600_000  # without any progress
REPORT_MS = 1_000
RESUME_SEEN_MS = 5_000  # long enough for every runner to see a request
PERSIST_MS = 30_000
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
        self._spark = spark
        self._open_source = open_source
        self._generation = 1
        self._source = open_source(self._generation)
        self._control = control
        self._trace = trace
        self._until = until
        self._on_view = on_view
        self._state = Delivery(wanted(pipeline, accept=accept))
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
        self._excess = 0
        self._pauses = Pauses()
        self._resuming: dict[str, set[str]] = {}  # table → sinks that have not taken the request up yet

    def stop(self) -> None:
        """Ask for a clean stop: what is in flight ends, cursors are made durable, leases are released."""
        self._stopping = True

    def run(self) -> Outcome:
        """The loop. Returns when stopped or when `until` is reached (or cannot be)."""
        try:
            while not self._stopping and not self._ended():
                self._wait_for_news()
                self._heartbeat()
                self._observe()
                self._obey_pauses()
                self._give_back()
                self._launch()
                self._report()
            self._wind_down()
            return self._judge()[0]
        finally:
            self._control.leave(self._name)
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _become(self, state: Delivery) -> None:
        """Every step of the machine passes here, so that a trace misses none."""
        self._trace.step(self._state, state)
        self._state = state

    # --- leases ---------------------------------------------------------------------------------------

    def _heartbeat(self, *, claim: bool = True) -> None:
        """Renew leases; notice lost ones; claim our share of the free ones, give back what is above it."""
        if not self._is_due("heartbeat", self._pipeline.lease_ms // 4):
            return
        lease_ms = self._pipeline.lease_ms
        held, alive = self._control.heartbeat(self._name, duration_ms=lease_ms, report=self._view.runner())
        ours = {name for name, sink in self._state.sinks.items() if sink.phase != "unowned"}
        self._lose(ours - held)
        if claim:
            self._balance(held, share=-(-len(self._state.sinks) // max(1, alive)))

    def _balance(self, held: set[str], *, share: int) -> None:
        self._excess = max(0, len(held) - share)
        if len(held) < share:
            wanted = [name for name, sink in self._state.sinks.items() if sink.phase == "unowned"]
            random.shuffle(wanted)  # runners that start together must not fight for the same ones
            tokens = self._control.claim(
                self._name, wanted, duration_ms=self._pipeline.lease_ms, count_max=share - len(held)
            )
            failpoint("after_claim")
            self._become(delivery.acquire(self._state, tokens))

    def _give_back(self) -> None:
        """Another runner has come: let go of what is above our share, as soon as its wave has ended."""
        if not self._excess:
            return
        spare = sorted(idle(self._state))[: self._excess]
        if spare:
            self._control.release(self._name, spare)
            self._lose(set(spare))
            self._excess -= len(spare)

    def _lose(self, sinks: set[str]) -> None:
        if sinks:
            self._become(delivery.lose(self._state, sinks))

    def _raise_tokens(self, above: Mapping[str, int]) -> None:
        tokens = self._control.raise_token(self._name, above, duration_ms=self._pipeline.lease_ms)
        self._become(delivery.acquire(self._state, tokens))

    # --- the source -----------------------------------------------------------------------------------

    def _observe(self) -> None:
        if self._observing or not self._is_due("observe", self._pipeline.batch.interval_ms // 2):
            return
        self._observing = True
        self._submit(self._source.observe, self._observed, self._observe_failed)

    def _observed(self, seen: Observation) -> None:
        self._observing = False
        if self._renew_generation(seen.identity):
            return
        head = seen.head if self._until.position is None else min(seen.head, self._until.position)
        if self._target is None:
            self._target = self._until.position or head
        self._view.observed(seen)
        oldest = min(seen.oldest, head)
        if (seen.identity, oldest, head) != (self._state.identity, self._state.oldest, self._state.head):
            self._become(delivery.observe(self._state, identity=seen.identity, oldest=oldest, head=head))

    def _observe_failed(self, fault: Fault) -> None:
        self._observing = False
        self._view.source_failed(fault)

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

    # --- pauses ---------------------------------------------------------------------------------------

    def _obey_pauses(self) -> None:
        """What users have paused or resumed, by files in the state folder."""
        if self._is_due("pauses", REPORT_MS):
            self._pauses = read_pauses(self._pipeline.state)
            for table in self._pauses.resumed_tables - self._resuming.keys():
                self._resuming[table] = set(self._state.sinks)
        sinks = frozenset(self._state.sinks) if self._pauses.everything else self._pauses.sinks
        self._become(delivery.pause(self._state, sinks=sinks))
        for table in sorted(self._pauses.tables):
            self._become(delivery.pause_table(self._state, table))
        for table in sorted(self._resuming):
            self._resume(table)

    def _resume(self, table: str) -> None:
        """A sink takes the request up once, as soon as it is idle. Other runners' sinks are theirs."""
        waiting = self._resuming[table]
        ready = {name for name in waiting if self._state.sinks[name].phase == "idle"}
        self._become(delivery.resume_table(self._state, table, sinks=ready))
        waiting -= ready
        owned = {name for name, sink in self._state.sinks.items() if sink.phase != "unowned"}
        if owned and not waiting & owned and self._is_due(f"resume {table}", RESUME_SEEN_MS):
            if table in self._pauses.resumed_tables:
                resumed(self._pipeline.state, table=table)
            else:
                del self._resuming[table]

    # --- starting what may start ----------------------------------------------------------------------

    def _launch(self) -> None:
        if not self._recovering:
            self._carry_out(delivery.start_recovery(self._state, now_ms=self._now_ms()))
        ordinary = [wave.kind for wave in self._running.values() if not wave.late]
        if sum(wave.kind == "seed" for wave in self._running.values()) < SEEDS_MAX:
            self._carry_out(delivery.start_seed(self._state))
        if ordinary.count("changes") < WAVES_MAX and self._is_due("wave", self._pipeline.batch.interval_ms):
            started = self._carry_out(delivery.start_wave(self._state))
            if not started:
                self._due.pop("wave")  # nothing to carry: the next change need not wait
        if not any(wave.late for wave in self._running.values()):
            self._carry_out(delivery.start_wave(self._state, late=True))
        if self._is_due("persist", PERSIST_MS):
            self._carry_out(delivery.persist_idle(self._state, delivery.due_to_persist(self._state)))

    def _carry_out(self, decision: tuple[Delivery, list[Effect]]) -> bool:
        """Adopt the new state, then do what it asks for. False: nothing was asked for."""
        state, effects = decision
        self._become(state)
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
        return bool(effects)

    # --- recovery -------------------------------------------------------------------------------------

    def _recover(self, effect: Recover) -> None:
        self._recovering = True
        settings = {sink.name: sink for sink in self._pipeline.sinks}
        job = RecoverJob(
            self._pipeline.name,
            tuple((settings[name], epoch, token) for name, (epoch, token) in effect.sinks.items()),
            slots=slots(self._spark),
            deadline_ms=self._pipeline.batch.deadline_ms,
        )
        self._submit(
            lambda: run_recover(self._spark, job),
            self._recovered,
            lambda fault: self._recovery_failed(effect, fault),
        )

    def _recovered(self, receipts: list[Receipt]) -> None:
        self._recovering = False
        self._renew_generation(self._state.identity, at_least=self._known_generation(receipts))
        self._carry_out(delivery.recovered(self._state, receipts, **self._time_and_chance()))

    def _recovery_failed(self, effect: Recover, fault: Fault) -> None:
        self._recovering = False
        self._carry_out(delivery.recovery_failed(self._state, effect, fault, **self._time_and_chance()))

    def _known_generation(self, receipts: Iterable[Receipt]) -> int:
        """The latest generation of this very source that a sink has seen."""
        cursors = [receipt.cursor for receipt in receipts if receipt.cursor is not None]
        known = [
            cursor.position.generation
            for cursor in cursors
            if cursor.position is not None and cursor.source_identity == self._state.identity
        ]
        return max(known, default=1)

    # --- waves ----------------------------------------------------------------------------------------

    def _run_wave(self, wave: Wave) -> None:
        self._running[wave.id] = wave
        failpoint("before_wave")
        planner = Planner(self._pipeline, self._state.identity)
        self._submit(
            lambda: self._in_spark(planner, wave),
            lambda answer: self._wave_done(wave, *answer),
            lambda fault: self._wave_failed(wave, fault),
        )

    def _in_spark(self, planner: Planner, wave: Wave) -> tuple[Window, WaveResult]:
        """In a thread of the pool: plan, run, come back. Late sinks get a quarter of the slots."""
        room = slots(self._spark)
        allowed = max(1, room // 4) if wave.late else room
        name_job(self._spark, self._group(wave))
        window = planner.window(self._source, wave, parallelism=allowed)
        if window.lost:
            return window, WaveResult([_untouched(wave, sink) for sink in wave.sinks])
        deadline_ms = SEED_DEADLINE_MS if wave.kind == "seed" else self._pipeline.batch.deadline_ms
        job = planner.job(wave, window, slots=allowed, deadline_ms=deadline_ms)
        return window, run_wave(self._spark, job)

    def _group(self, wave: Wave) -> str:
        return f"{self._name}-wave-{wave.id}"

    def _wave_done(self, wave: Wave, window: Window, result: WaveResult) -> None:
        del self._running[wave.id]
        failpoint("after_wave")
        self._view.wave_done(wave, window.upto, result.receipts, result.unrouted)
        self._due.pop("report", None)
        aborted = next((r.fault for r in result.receipts if r.outcome == "aborted"), None)
        if aborted is not None and not window.lost:
            self._view.source_failed(aborted)
            self._due["wave"] = self._now_ms() + SOURCE_PAUSE_MS
        elif window.upto < wave.upto_max:
            self._due.pop("wave", None)  # a backlog: the next window need not wait
        self._carry_out(
            delivery.wave_done(
                self._state,
                wave.id,
                upto=window.upto,
                receipts=result.receipts,
                **self._time_and_chance(),
            )
        )
        if window.lost:
            self._become(delivery.lost_history(self._state, wave.sinks, window.lost))

    def _wave_failed(self, wave: Wave, fault: Fault) -> None:
        del self._running[wave.id]
        self._carry_out(delivery.wave_failed(self._state, wave.id, fault, **self._time_and_chance()))

    # --- the end --------------------------------------------------------------------------------------

    def _ended(self) -> bool:
        if not self._until.finite:
            return False
        outcome, final = self._judge()
        limit = self._until.timeout_ms
        late = limit is not None and self._now_ms() - self._started_ms > limit
        return outcome.reached or late or (final and not any(self._resuming.values()))

    def _judge(self) -> tuple[Outcome, bool]:
        if self._target is None:
            fault = self._view.source_fault
            return Outcome(
                reached=False, stragglers={"source": fault.message if fault else "no answer"}
            ), False
        return judge(self._state, self._target, self._elsewhere())

    def _elsewhere(self) -> Mapping[str, Position]:
        """Where the sinks of other runners stand, as those report."""
        if all(sink.phase != "unowned" for sink in self._state.sinks.values()):
            return {}
        places = {name: report["position"] for name, report in self._control.reports().sinks.items()}
        return {name: Position.parse(place) for name, place in places.items() if place is not None}

    def _wind_down(self) -> None:
        """Wait for what is in flight, then make idle positions durable."""
        deadline_ms = self._now_ms() + 2 * self._pipeline.batch.deadline_ms
        self._drain(deadline_ms)
        self._carry_out(delivery.persist_idle(self._state, idle(self._state)))
        self._drain(deadline_ms)
        self._report(force=True)

    def _drain(self, deadline_ms: int) -> None:
        while (self._running or self._recovering) and self._now_ms() < deadline_ms:
            self._wait_for_news()
            self._heartbeat(claim=False)

    # --- leaves ---------------------------------------------------------------------------------------

    def _wait_for_news(self) -> None:
        try:
            self._done.get(timeout=TICK_S)()
            while True:
                self._done.get_nowait()()
        except queue.Empty:
            return

    def _report(self, *, force: bool = False) -> None:
        if force or self._is_due("report", REPORT_MS):
            self._view.refresh(self._state)
            self._view.seeds = {
                tuple(wave.sinks): fraction_done(self._spark, self._group(wave))
                for wave in self._running.values()
                if wave.kind == "seed"
            }
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

    def _time_and_chance(self) -> dict[str, Any]:
        return {"now_ms": self._now_ms(), "jitter": random.random()}

    @staticmethod
    def _now_ms() -> int:
        return time.monotonic_ns() // 1_000_000


def _untouched(wave: Wave, sink: str) -> Receipt:
    return Receipt(sink, wave.sinks[sink].epoch, "aborted", fault=_LOST)


_LOST = Fault("TC3008", "a table's history cannot be read", "None needed: a mirror is seeded anew.")


def _spark_fault(error: Exception) -> Fault:
    # Spark's text may repeat what a worker printed: only the class of the error is told.
    return Fault(
        "TC5004",
        f"the Spark job failed ({type(error).__name__})",
        "It is tried again by itself; spark.log in the state folder may say more.",
        Retry.RETRYABLE,
    )
