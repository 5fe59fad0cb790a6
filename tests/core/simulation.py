"""A seeded simulation: two runners drive the delivery machine through a hostile world.

`run(seed)` makes random steps with crashes, lost leases, lost answers, late and repeated tasks, expiry,
a vanished control store; checks the laws after each; then lets everything heal and requires that every
sink becomes current. A broken law is raised as `Broken`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.core import world
from tests.core.world import IDENTITY, TABLE, Job, Sink, Source, Task
from truecut.core import delivery
from truecut.core.delivery import CopySettings, Delivery, RaiseToken, Recover, RunWave, SinkState
from truecut.errors import Fault, Retry
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.model.table import Mode

JOB_FAULT = Fault("TC5004", "the job failed", "None needed.", Retry.RETRYABLE)
NEVER = 1 << 40


class Broken(AssertionError):
    """A law does not hold."""


@dataclass
class Runner:
    """One process: its machine and the jobs it waits for."""

    name: str
    state: Delivery
    jobs: dict[int, Job] = field(default_factory=dict)


class Simulation:
    """One world with two runners."""

    def __init__(
        self,
        seed: int,
        *,
        mode: Mode = "mirror",
        sinks: int = 3,
        on_step: Callable[[Runner, Delivery, Delivery], None] = lambda *_: None,
    ) -> None:
        self.rng = random.Random(seed)
        self.mode: Mode = mode
        names = [f"s{n}" for n in range(sinks)]
        self.source = Source([*names, "elsewhere"])
        self.sinks = {name: Sink(mode) for name in names}
        self.leases: dict[str, tuple[str, int]] = dict.fromkeys(names, ("", 0))
        self.network: list[Task] = []
        self.births = 0
        self.next_job = 1
        self.on_step = on_step
        self.runners = [self._born(), self._born()]
        self.faults_left = 12

    def _born(self) -> Runner:
        self.births += 1
        settings = {TABLE: CopySettings(self.mode)}
        return Runner(f"r{self.births}", Delivery({name: SinkState(settings) for name in self.sinks}))

    # --- one step ---------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random thing happens."""
        choices: list[tuple[int, Callable[[], None]]] = [
            (4, self._source_moves),
            (30, self._runner_acts),
            (20, self._task_runs),
            (14, self._job_ends),
            (2, self._fault),
        ]
        weights = [weight for weight, _ in choices]
        self.rng.choices([act for _, act in choices], weights)[0]()
        self.check()

    def _source_moves(self) -> None:
        if self.source.head < 40 and self.rng.random() < 0.8:
            self.source.commit(self.rng)
        elif self.mode == "mirror" and self.rng.random() < 0.3:
            self.source.oldest = self.rng.randint(self.source.oldest, self.source.head)

    def _runner_acts(self) -> None:
        runner = self.rng.choice(self.runners)
        acts = [self._observe, self._claim, self._notice, self._recover, self._start, self._start]
        self.rng.choice(acts)(runner)

    def _set(self, runner: Runner, state: Delivery) -> None:
        before, runner.state = runner.state, state
        self.on_step(runner, before, state)

    def _observe(self, runner: Runner) -> None:
        oldest, head = Position(1, self.source.oldest), Position(1, self.source.head)
        self._set(runner, delivery.observe(runner.state, identity=IDENTITY, oldest=oldest, head=head))

    def _claim(self, runner: Runner) -> None:
        free = [name for name, (holder, _) in self.leases.items() if holder == ""]
        if free:
            self._acquire(runner, self.rng.choice(free), above=0)

    def _acquire(self, runner: Runner, name: str, *, above: int) -> None:
        token = max(self.leases[name][1], above) + 1
        self.leases[name] = (runner.name, token)
        self._set(runner, delivery.acquire(runner.state, {name: token}))

    def _notice(self, runner: Runner) -> None:
        lost = [
            name
            for name, sink in runner.state.sinks.items()
            if sink.phase != "unowned" and self.leases[name] != (runner.name, sink.token)
        ]
        if lost:
            self._set(runner, delivery.lose(runner.state, lost))

    def _recover(self, runner: Runner) -> None:
        state, effects = delivery.start_recovery(runner.state, now_ms=NEVER)
        self._carry_out(runner, state, effects)

    def _start(self, runner: Runner) -> None:
        starts: list[Callable[[Delivery], tuple[Delivery, list[delivery.Effect]]]] = [
            delivery.start_wave,
            lambda state: delivery.start_wave(state, late=True),
            delivery.start_seed,
            lambda state: delivery.persist_idle(state, delivery.due_to_persist(state)),
        ]
        self._carry_out(runner, *self.rng.choice(starts)(runner.state))

    # --- effects ----------------------------------------------------------------------------------------

    def _carry_out(self, runner: Runner, state: Delivery, effects: list[delivery.Effect]) -> None:
        self._set(runner, state)
        for effect in effects:
            match effect:
                case Recover(sinks):
                    job = self._job(runner, Job(self.next_job, None, dict(sinks), asked=set(sinks)))
                    self.network += [
                        Task(runner.name, job.id, name, epoch, token, "takeover")
                        for name, (epoch, token) in sinks.items()
                    ]
                case RunWave(wave):
                    self._send(runner, wave)
                case RaiseToken(name, above):
                    if self.leases[name][0] == runner.name:
                        self._acquire(runner, name, above=above)

    def _job(self, runner: Runner, job: Job) -> Job:
        runner.jobs[job.id] = job
        self.next_job += 1
        return job

    def _send(self, runner: Runner, wave: delivery.Wave) -> None:
        after = 0 if wave.after is None else wave.after.place
        upto = wave.upto_max.place
        if wave.kind == "changes":
            upto = self.rng.randint(min(after + 1, upto), upto)
        sinks = {name: (order.epoch, order.token) for name, order in wave.sinks.items()}
        job = self._job(runner, Job(self.next_job, wave, sinks, upto))
        unreadable = (upto if wave.kind == "seed" else after) < self.source.oldest
        for name, order in wave.sinks.items():
            if wave.kind == "changes" and not self.source.log(name, after=after, upto=upto):
                continue  # nothing for this sink: it is not asked
            job.asked.add(name)
            if unreadable and wave.kind != "persist":
                receipt = Receipt(name, order.epoch, "aborted", fault=world.UNREADABLE)
                job.receipts[name] = receipt
                continue
            expected = None if order.expected is None else order.expected.place
            task = Task(runner.name, job.id, name, order.epoch, order.token, wave.kind, expected, after, upto)
            self.network.append(task)
        if unreadable and wave.kind == "changes":  # whoever is not asked must not advance either
            for name, order in wave.sinks.items():
                job.receipts[name] = Receipt(name, order.epoch, "aborted", fault=world.UNREADABLE)

    # --- the network ------------------------------------------------------------------------------------

    def _task_runs(self) -> None:
        if self.network:
            task = self.rng.choice(self.network)
            if self.rng.random() < 0.7:
                self.network.remove(task)  # otherwise it will run again
            self._run(task)

    def _run(self, task: Task) -> None:
        before = self.sinks[task.sink].cursor, self.sinks[task.sink].token
        receipt = world.execute(task, self.sinks[task.sink], self.source)
        self._monotone(task.sink, *before)
        runner = next((r for r in self.runners if r.name == task.runner), None)
        if runner is not None and task.job in runner.jobs:
            runner.jobs[task.job].receipts[task.sink] = receipt

    def _job_ends(self) -> None:
        runner = self.rng.choice(self.runners)
        ready = [job for job in runner.jobs.values() if job.asked <= set(job.receipts)]
        if ready:
            self._end(runner, self.rng.choice(ready))
        elif runner.jobs and self.faults_left and self.rng.random() < 0.1:
            self.faults_left -= 1  # the deadline passes
            self._end(runner, self.rng.choice(list(runner.jobs.values())))

    def _end(self, runner: Runner, job: Job) -> None:
        del runner.jobs[job.id]
        receipts = world.late(job)
        if self.faults_left and self.rng.random() < 0.05:
            self.faults_left -= 1
            receipts = [world.without_answer(receipt) for receipt in receipts]
        if job.wave is None:
            self._carry_out(runner, *delivery.recovered(runner.state, receipts, now_ms=0))
        elif self.faults_left and self.rng.random() < 0.05:
            self.faults_left -= 1
            self._carry_out(runner, *delivery.wave_failed(runner.state, job.wave.id, JOB_FAULT, now_ms=0))
        else:
            upto = Position(1, job.upto)
            done = delivery.wave_done(runner.state, job.wave.id, upto=upto, receipts=receipts, now_ms=0)
            self._carry_out(runner, *done)

    def _fault(self) -> None:
        if not self.faults_left:
            return
        self.faults_left -= 1
        name = self.rng.choice(list(self.leases))
        happens = self.rng.random()
        if happens < 0.5:  # a lease runs out; its holder may be paused and not know
            self.leases[name] = ("", self.leases[name][1])
        elif happens < 0.85:  # kill -9: memory and answers are lost, tasks are not
            gone = self.rng.randrange(2)
            dead = self.runners[gone].name
            self.leases = {n: ("" if h == dead else h, t) for n, (h, t) in self.leases.items()}
            self.runners[gone] = self._born()
        else:  # the control store is deleted
            self.leases = dict.fromkeys(self.leases, ("", 0))

    # --- the laws ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold after every step."""
        for name, sink in self.sinks.items():
            self._content(name, sink)
            for runner in self.runners:
                self._knowledge(runner, name, runner.state.sinks[name], sink)

    def _monotone(self, name: str, cursor: int | None, token: int) -> None:
        sink = self.sinks[name]
        if (sink.cursor if sink.cursor is not None else -1) < (cursor if cursor is not None else -1):
            raise Broken("CursorMonotonicity")
        if sink.token < token:
            raise Broken("TokenMonotonicity")

    def _content(self, name: str, sink: Sink) -> None:
        if sink.cursor is None:
            return
        if any(len(values) > 1 for values in sink.mirror.values()):
            raise Broken("NoDuplicate")
        if sink.mirror != self.source.share(name, sink.cursor):
            raise Broken("TransactionNeverSplit")
        if self.mode == "append":
            share = sorted(self.source.share(name, sink.base).items())
            reads = [(sink.base, "read", key, values[0]) for key, values in share]
            if sink.appended != reads + self.source.log(name, after=sink.base, upto=sink.cursor):
                raise Broken("AppendExactlyOnce")

    def _knowledge(self, runner: Runner, name: str, known: SinkState, sink: Sink) -> None:
        if (known.phase == "applying") != (known.wave is not None):
            raise Broken("FlushStateConsistency: a wave without applying, or the reverse")
        if known.phase not in ("idle", "applying"):
            return
        cursor = -1 if known.cursor is None else known.cursor.place
        position = -1 if known.position is None else known.position.place
        durable = -1 if sink.cursor is None else sink.cursor
        if not cursor <= min(position, durable) or position > self.source.head:
            raise Broken("BufferPositionBound")
        streaming = known.copies[TABLE].status == "streaming"
        if streaming and self.source.log(name, after=cursor, upto=position):
            raise Broken("BufferPositionBound: skipped what was for this sink")
        if not 0 < known.token <= sink.token:
            raise Broken("FlushStateConsistency: writes before the fence was raised")
        live = sum(self._live(runner, name, known, sink, task) for task in set(self.network))
        if live > (known.phase == "applying"):
            raise Broken("FlushStateConsistency: an order of this epoch is still alive")

    def _live(self, runner: Runner, name: str, known: SinkState, sink: Sink, task: Task) -> bool:
        mine = (task.runner, task.sink, task.epoch) == (runner.name, name, known.epoch)
        effective = task.token == sink.token and task.expected == sink.cursor != task.upto
        return mine and task.kind != "takeover" and effective

    # --- healing ----------------------------------------------------------------------------------------

    def heal(self) -> None:
        """No more faults: every sink becomes current within a bounded number of turns."""
        self.faults_left = 0
        for _ in range(400):
            for runner in self.runners:
                for act in (
                    self._notice,
                    self._observe,
                    self._claim,
                    self._recover,
                    self._start,
                    self._start,
                ):
                    act(runner)
                for task in [t for t in self.network if t.runner == runner.name]:
                    self.network.remove(task)
                    self._run(task)
                for job in [job for job in runner.jobs.values() if job.asked <= set(job.receipts)]:
                    self._end(runner, job)
                self.check()
            if all(self._current(name) for name in self.sinks):
                return
        raise Broken("EverySinkBecomesCurrent")

    def _current(self, name: str) -> bool:
        owned = [runner.state.sinks[name] for runner in self.runners if self.leases[name][0] == runner.name]
        reached = any(sink.position == Position(1, self.source.head) for sink in owned)
        return reached and self.sinks[name].mirror == self.source.share(name, self.source.head)


def run(seed: int, *, steps: int = 400, mode: Mode = "mirror") -> Simulation:
    """A whole life: trouble, then healing."""
    simulation = Simulation(seed, mode=mode)
    for _ in range(steps):
        simulation.step()
    simulation.heal()
    return simulation
