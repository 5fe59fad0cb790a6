"""The runner: carries out what the delivery machine decides, and tells it what happened.

One loop, one owner of the state; everything slow (looking at the source, Spark jobs) runs in the
background and comes back through a queue. A sink costs no thread, query or connection here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline
from truecut.core import delivery
from truecut.core.copies import wanted_whole
from truecut.core.delivery import Delivery, Effect, RaiseToken, Recover, RunWave, Wave, WaveKind
from truecut.core.state import LANES, Lane
from truecut.errors import ExitCode, Fault, Retry, TruecutError
from truecut.failpoint import failpoint
from truecut.model.order import Receipt
from truecut.runtime import announce
from truecut.runtime.background import Background
from truecut.runtime.bulletin import Bulletin
from truecut.runtime.certifier import Certifier
from truecut.runtime.control import ControlStore
from truecut.runtime.delivery_state import Machine
from truecut.runtime.file_watch import FileWatch
from truecut.runtime.generations import Generations
from truecut.runtime.jobs import Jobs, lost_tables
from truecut.runtime.leases import Leases
from truecut.runtime.orders import wanted
from truecut.runtime.pipeline_file import PipelineFile
from truecut.runtime.requests import Requests, shown
from truecut.runtime.revision import revise
from truecut.runtime.run_report import View
from truecut.runtime.timetable import Clock, Timetable
from truecut.runtime.trace import Trace
from truecut.runtime.until import Outcome, Until, idle
from truecut.runtime.verdict import Verdict
from truecut.runtime.verifier import Verifier
from truecut.sources.contract import Observation, Source, Window
from truecut.spark.wave.job import WaveResult

TICK_S = 0.05
WAVES_MAX = 2  # ordinary waves at once: groups at different places
SEEDS_MAX = {False: 2, True: 1}  # of punctual sinks, of late ones: one that hangs leaves room for another
REPORT_MS = 1_000
PERSIST_MS = 30_000
BUSY_MS = 500  # between two looks at the source while no sink is free
LEAVE_MS = 5_000  # for signing off
CERTIFY_MS = 250  # between two tries at the end of a run
CERTIFY_TRIES = 3  # that may fail there


class Runner:
    """Runs one pipeline, or its share of it, until told to stop."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        name: str,
        jobs: Jobs,
        open_source: Callable[[int], Source],
        control: ControlStore,
        trace: Trace,
        until: Until,
        accept: bool = False,
        on_view: Callable[[View], None] = lambda _: None,
        on_turn: Callable[[], None] = lambda: None,
        on_unseeded: Callable[[frozenset[str], frozenset[str]], None] = lambda *_: None,
        on_again: Callable[[str, int], None] = lambda *_: None,
        file: PipelineFile | None = None,
        background: Background | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._name = name
        self._control = control
        self._until = until
        self._on_view = on_view
        self._on_unseeded = on_unseeded  # the tables that some sink has to get whole; those that are paused
        self._on_turn = on_turn  # raises when there is no sense in going on
        self._clock = clock or Clock()
        self._view = View(pipeline, self._clock)
        self._machine = Machine(
            Delivery(wanted(pipeline, accept=accept)), trace, SOURCES[pipeline.source.type].words
        )
        self._chance = chance or random.Random()
        self._times = Timetable(self._clock)
        self._background = background or Background()
        self._jobs = jobs
        self._generations = Generations(
            open_source,
            control,
            self._background,
            self._times,
            refresh_ms=pipeline.lease_ms,
            on_store=self._store_is,
        )
        self._bulletin = Bulletin(control, self._background, self._view, runner=name, on_store=self._store_is)
        self._requests = Requests(
            pipeline.state,
            self._machine,
            self._times,
            answered_elsewhere=lambda table: shown(self._bulletin.reports, table),
            on_again=on_again,
            never_again={str(one.name) for one in pipeline.tables if one.backfill == "none"},
        )
        self._leases = Leases(
            control,
            self._machine,
            self._background,
            self._times,
            runner=name,
            duration_ms=pipeline.lease_ms,
            chance=self._chance,
            on_store=self._store_is,
            on_renewed=self._requests.answer,
        )
        watched = None if until.finite else file  # a run that ends by itself knows what it began with
        self._file = FileWatch(watched, self._background, self._times, on_read=self._file_read)
        self.taken = pipeline if file is None else file.began  # the file, as far as it is carried out
        self._certifier = (
            None
            if pipeline.certificate is None
            else Certifier(pipeline, jobs.fold, self._background, self._times, runner=name)
        )
        self._verifier = self._new_verifier()
        self._stopping = False
        self._observing = False
        self._winding_down = False
        self._recovering: set[Lane] = set()
        self._running: dict[int, Wave] = {}
        self._verdict = Verdict(
            until,
            self._machine,
            self._leases,
            self._bulletin,
            self._requests,
            self._view,
            self._clock,
            runner=name,
            lease_ms=pipeline.lease_ms,
        )

    def _new_verifier(self) -> Verifier | None:
        """A run that ends by itself would end before it."""
        settings = self._pipeline.certificate
        if self._until.finite or settings is None or settings.verify is None:
            return None
        return Verifier(self._pipeline, self._jobs.verify, self._background, self._times, runner=self._name)

    def stop(self) -> None:
        """Ask for a clean stop: what is in flight ends, cursors are made durable, leases are released."""
        self._stopping = True

    def run(self) -> Outcome:
        """The loop. Returns when stopped or when `until` is reached (or cannot be)."""
        try:
            while not self._stopping and not self._verdict.is_final():
                self.turn()
            reached = self._verdict.now()[0]
            self._wind_down()
            return reached if reached.reached else self._verdict.now()[0]
        finally:
            self._leave()
            self._background.close()

    def turn(self) -> None:
        """One round of the loop: take up answers, then start what may start. Waits for a tick at most."""
        self._background.take_answers(wait_s=TICK_S)
        self._on_turn()
        self._leases.tend(self._view.runner)
        self._observe()
        self._file.tend()
        self._requests.obey()
        self._launch()
        if self._certifier is not None:
            self._certifier.tend()
        if self._verifier is not None:
            self._verifier.tend()
        self._report()

    @property
    def _state(self) -> Delivery:
        return self._machine.state

    @property
    def _generation(self) -> int:
        return 0 if self._state.head is None else self._state.head.generation

    # --- the control store ----------------------------------------------------------------------------

    def _store_is(self, fault: Fault | None) -> None:
        """The store has answered, or could not: then it is asked again, unless that cannot help."""
        if fault is not None and fault.retry is not Retry.RETRYABLE:
            raise TruecutError.of(fault, ExitCode.UNFIT_ENVIRONMENT)
        announce.store_is(self._view.control_fault, fault)
        self._view.control_fault = fault

    def _leave(self) -> None:
        """Sign off, if the store can be told: without it, leases run out by themselves."""
        done: list[object] = []
        self._background.submit(lambda: self._control.leave(self._name), done.append, done.append)
        deadline_ms = self._clock.now_ms() + LEAVE_MS
        while not done and self._clock.now_ms() < deadline_ms:
            with suppress(Exception):  # of other answers: the run has ended, perhaps by just that
                self._background.take_answers(wait_s=TICK_S)

    # --- the pipeline file ----------------------------------------------------------------------------

    def _file_read(self, written: Pipeline) -> None:
        try:
            revision = revise(self._pipeline, began=self.taken, written=written)
        except TruecutError as error:  # only with the source's tables does it show
            announce.file_unusable(error.fault)
            return
        self.taken = revision.taken
        self._pipeline = self._view.pipeline = revision.pipeline
        self._jobs = self._jobs.of(revision.pipeline)
        if self._certifier is not None:
            self._certifier.revised(revision.pipeline, (*revision.added, *revision.removed))
        if self._verifier is not None:
            self._verifier.revised(revision.pipeline, self._jobs.verify)
        self._bulletin.retire(self._view.retire(revision.removed))
        self._leases.retire(revision.removed)
        known = wanted(revision.pipeline)
        added = {name: known[name].settings for name in revision.added}
        self._machine.become(delivery.enlist(self._state, added))
        if revision.restart != self._view.restart or added or revision.removed:
            announce.revised(revision)
        self._view.restart = revision.restart

    # --- the source -----------------------------------------------------------------------------------

    def _observe(self) -> None:
        # While every sink is at work, nothing could be done about what is new.
        busy = all(sink.busy_streaming for sink in self._state.wanted.values())
        often_ms = BUSY_MS if busy else self._pipeline.batch.interval_ms // 2
        if self._observing or not self._times.is_due("observe", often_ms):
            return
        self._observing = True
        self._requests.look_begins()
        self._background.submit(self._generations.new_look(), self._observed, self._observe_failed)

    def _observed(self, seen: Observation) -> None:
        self._observing = False
        if self._winding_down or not self._generations.believes(seen):
            return
        head = self._until.bounded(seen.head)
        renumbered = seen.identity == self._state.identity and head.generation > self._generation
        if self._verdict.target is None or renumbered:
            self._verdict.target = self._until.position or max(head, seen.ahead or head)
        self._view.observed(seen)
        oldest = min(seen.oldest, head)
        unready = {str(table): why for table, why in seen.unready.items()}
        known = (self._state.identity, self._state.oldest, self._state.head, self._state.unready)
        if (seen.identity, oldest, head, unready) != known:
            self._machine.become(
                delivery.observe(
                    self._state, identity=seen.identity, oldest=oldest, head=head, unready=unready
                )
            )
        self._requests.looked()
        again = self._view.again = self._requests.tables_again
        whole = wanted_whole(self._state.sinks.values()) | again
        self._on_unseeded(whole, self._requests.paused_tables)

    def _observe_failed(self, fault: Fault) -> None:
        self._observing = False
        self._view.source_failed(fault)

    # --- starting what may start ----------------------------------------------------------------------

    def _launch(self) -> None:
        for lane in LANES:
            if lane not in self._recovering:
                self._carry_out(delivery.start_recovery(self._state, now_ms=self._clock.now_ms(), lane=lane))
        for late in (False, True):
            if self._in_flight("seed", late=late) < SEEDS_MAX[late]:
                self._carry_out(delivery.start_seed(self._state, now_ms=self._clock.now_ms(), late=late))
        self._carry_out(delivery.persist_idle(self._state, delivery.taken_up(self._state)))
        if self._in_flight("changes", late=False) < WAVES_MAX and self._times.is_due(
            "wave", self._pipeline.batch.interval_ms
        ):
            started = self._carry_out(delivery.start_wave(self._state, now_ms=self._clock.now_ms()))
            if not started:
                self._times.at_once("wave")  # nothing to carry: the next change need not wait
        if not self._in_flight("changes", late=True):
            self._carry_out(delivery.start_wave(self._state, now_ms=self._clock.now_ms(), late=True))
        if self._times.is_due("persist", PERSIST_MS):
            self._carry_out(delivery.persist_idle(self._state, delivery.due_to_persist(self._state)))

    def _in_flight(self, kind: WaveKind, *, late: bool) -> int:
        return sum((wave.kind, wave.late) == (kind, late) for wave in self._running.values())

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
        self._recovering.add(effect.lane)
        jobs = self._jobs  # of the pipeline as it is now: it may lose one of these sinks meanwhile
        self._background.submit(
            lambda: jobs.take_over(effect),
            lambda receipts: self._recovered(effect, receipts),
            lambda fault: self._recovery_failed(effect, fault),
        )

    def _recovered(self, effect: Recover, receipts: list[Receipt]) -> None:
        self._recovering.discard(effect.lane)
        self._generations.heard(receipts)
        self._shown(receipts)
        self._leases.took_over(receipts)
        self._carry_out(delivery.recovered(self._state, receipts, **self._time_and_chance()))
        announce.recovered(self._state, receipts, self._machine.words)

    def _shown(self, receipts: Sequence[Receipt]) -> None:
        if self._certifier is not None:
            self._certifier.heard(receipts)

    def _recovery_failed(self, effect: Recover, fault: Fault) -> None:
        self._recovering.discard(effect.lane)
        self._carry_out(delivery.recovery_failed(self._state, effect, fault, **self._time_and_chance()))

    # --- waves ----------------------------------------------------------------------------------------

    def _run_wave(self, wave: Wave) -> None:
        self._running[wave.id] = wave
        failpoint("before_wave")
        source, jobs = self._generations.source, self._jobs
        certificate = "" if self._certifier is None else self._certifier.digest
        self._background.submit(
            lambda: jobs.carry(wave, source, source_identity=wave.identity, certificate=certificate),
            lambda answer: self._wave_done(wave, *answer),
            lambda fault: self._wave_failed(wave, fault),
        )

    def _wave_done(self, wave: Wave, window: Window, result: WaveResult) -> None:
        del self._running[wave.id]
        failpoint("after_wave")
        self._view.wave_done(wave, window.upto, result.receipts, result.unrouted)
        announce.wave_done(wave, window, result.receipts)
        self._shown(result.receipts)
        self._times.at_once("report")
        self._times.at_once("observe")
        if window.upto < wave.upto_max:
            self._times.at_once("wave")  # a backlog, or other tables: the next window need not wait
        upto, receipts = window.upto, result.receipts
        self._carry_out(
            delivery.wave_done(self._state, wave.id, upto=upto, receipts=receipts, **self._time_and_chance())
        )
        if lost := lost_tables(window, receipts):
            self._machine.become(
                delivery.lost_history(self._state, wave.sinks, lost, at=wave.after, **self._time_and_chance())
            )

    def _wave_failed(self, wave: Wave, fault: Fault) -> None:
        del self._running[wave.id]
        self._carry_out(delivery.wave_failed(self._state, wave.id, fault, **self._time_and_chance()))

    # --- the end --------------------------------------------------------------------------------------

    def _wind_down(self) -> None:
        """Wait for what is in flight, then make idle positions durable. Each has a time of its own: what
        hangs for long, as a seed may, costs the other sinks nothing. A look that comes now changes nothing:
        what it shows would be known to us alone."""
        self._winding_down = True
        if self._verifier is not None:
            self._verifier.stop()
        self._drain(self._pipeline.batch.deadline_ms)
        self._carry_out(delivery.persist_idle(self._state, idle(self._state)))
        self._drain(self._pipeline.batch.deadline_ms)
        self._certify_the_end()
        self._times.at_once("heartbeat")  # what was asked for and is durable now is answered
        self._leases.tend(self._view.runner, claim=False)
        self._report(force=True)
        self._drain(LEAVE_MS)
        self._bulletin.publish()  # what came while the last one was on its way
        self._drain(LEAVE_MS)

    def _certify_the_end(self) -> None:
        """What the cursors show when the run ends. A lost worker is no reason to leave it; after a few faults
        the next run issues it."""
        if self._certifier is None:
            return
        certifier, enough = self._certifier, self._certifier.faults + CERTIFY_TRIES

        def unsettled() -> bool:
            if not certifier.unsettled or certifier.faults >= enough:
                return False
            certifier.tend(often_ms=CERTIFY_MS)
            return True

        # Somebody may have been killed at it: then its lease runs out first.
        self._wait_while(unsettled, self._pipeline.batch.deadline_ms + 2 * self._pipeline.lease_ms)

    def _drain(self, patience_ms: int) -> None:
        self._wait_while(
            lambda: self._running or self._recovering or self._bulletin.busy or self._leases.busy, patience_ms
        )

    def _wait_while(self, busy: Callable[[], object], patience_ms: int) -> None:
        """Answers are taken up and leases kept meanwhile."""
        deadline_ms = self._clock.now_ms() + patience_ms
        while busy() and self._clock.now_ms() < deadline_ms:
            self._background.take_answers(wait_s=TICK_S)
            self._leases.tend(self._view.runner, claim=False)

    def _report(self, *, force: bool = False) -> None:
        if force or self._times.is_due("report", REPORT_MS):
            self._view.given_up = self._leases.given_up
            self._view.refresh(self._state, None if self._certifier is None else self._certifier.last.copies)
            if self._verifier is not None:
                self._view.verified = self._verifier.last
            self._view.seeds = {
                tuple(wave.sinks): self._jobs.fraction_done(wave)
                for wave in self._running.values()
                if wave.kind == "seed"
            }
            self._bulletin.publish()
            if self._is_curious():
                self._bulletin.look()
            self._on_view(self._view)

    def _is_curious(self) -> bool:
        """Whether what other runners tell matters to us."""
        if self._bulletin.unclaimed and self._times.is_due("unclaimed", self._pipeline.lease_ms):
            return True
        asked = self._until.finite or self._requests.waiting
        return asked and any(sink.phase == "unowned" for sink in self._state.wanted.values())

    def _time_and_chance(self) -> dict[str, Any]:
        return {"now_ms": self._clock.now_ms(), "jitter": self._chance.random()}
