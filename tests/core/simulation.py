"""A seeded simulation: two runners drive the delivery machine through a hostile world.

`run(seed)` makes random steps with crashes, lost leases, lost answers, late and repeated tasks, expiry,
a vanished control store, a source that is replaced by another, looks at it that come late, tables that stop,
users who pause and resume them or change their settings; checks the laws after each; then lets everything
heal and requires that every copy becomes current and every request answered. A broken law is raised as
`Broken`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.core import laws, world
from tests.core.laws import Broken
from tests.core.world import STOPPED, TABLES, Job, Sink, Source, Task
from truecut.core import delivery
from truecut.core.delivery import CopySettings, Delivery, RaiseToken, Recover, RunWave, SinkState, Wave
from truecut.core.state import LANES
from truecut.errors import Fault, Retry
from truecut.model.order import Order, Receipt, TableOrder
from truecut.model.position import Position
from truecut.model.table import Mode
from truecut.runtime.generations import least, shown_by

JOB_FAULT = Fault("TC5004", "the job failed", "None needed.", Retry.RETRYABLE)
NEVER = 1 << 40
STEPS = 1_000
Modes = tuple[Mode, Mode]


@dataclass(frozen=True)
class Look:
    """What a look at the source has seen."""

    identity: str
    oldest: Position
    head: Position


@dataclass
class Runner:
    """One process: its machine and the jobs it waits for."""

    name: str
    state: Delivery
    jobs: dict[int, Job] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)  # generations of sources, as somebody has shown them
    look: Look | None = None  # at the source, on its way


@dataclass
class Request:
    """A user wants a table to go on."""

    number: int
    answered: set[str] = field(default_factory=set)  # sinks whose owner has seen it there


def next_token(last: int, *, above: int, clock: int) -> int:
    """As the control store claims: the clock goes on when the store is lost."""
    return max(last, above, clock) + 1


class Simulation:
    """One world with two runners."""

    def __init__(
        self,
        seed: int,
        *,
        modes: Modes = ("mirror", "mirror"),
        sinks: int = 2,
        on_step: Callable[[Runner, Delivery, Delivery], None] = lambda *_: None,
    ) -> None:
        self.rng = random.Random(seed)
        self.chance = random.Random(
            f"the source of {seed}"
        )  # whatever it does, the rest is as likely as before
        self.sources_left = self.chance.choice([0, 0, 1, 3])
        self.modes = dict(zip(TABLES, modes, strict=True))
        names = [f"s{n}" for n in range(sinks)]
        self.source = Source([*names, "elsewhere"])
        self.sinks = {name: Sink() for name in names}
        self.leases: dict[str, tuple[str, int]] = dict.fromkeys(names, ("", 0))
        self.generations: dict[str, int] = {}  # in the control store
        self.clock = 0
        self.network: list[Task] = []
        self.births = 0
        self.next_job = 1
        self.shape, self.accept, self.reshaped = "first", False, False
        self.paused: frozenset[str] = frozenset()
        self.requests: dict[str, Request] = {}
        self.asked = 0
        self.on_step = on_step
        self.runners = [self._born(), self._born()]
        self.faults_left = 12
        self.wishes_left = 8

    def _born(self) -> Runner:
        self.births += 1
        settings = {
            table: CopySettings(mode, fingerprint=self.shape, accept=self.accept)
            for table, mode in self.modes.items()
        }
        return Runner(f"r{self.births}", Delivery({name: SinkState(settings) for name in self.sinks}))

    # --- one step ---------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random thing happens."""
        choices: list[tuple[int, Callable[[], None]]] = [
            (4, self._source_moves),
            (30, self._runner_acts),
            (24, self._task_runs),
            (20, self._job_ends),
            (2, self._fault),
            (1, self._wish),
        ]
        weights = [weight for weight, _ in choices]
        self.rng.choices([act for _, act in choices], weights)[0]()
        self.check()

    def _source_moves(self) -> None:
        if self.sources_left and self.chance.random() < 0.05:
            self.sources_left -= 1
            self.source.replace(self.chance)
        if self.source.head < 40 and self.rng.random() < 0.8:
            self.source.commit(self.rng)
        elif self.rng.random() < 0.2:
            self.source.oldest = self.rng.randint(self.source.oldest, self.source.head)

    def _runner_acts(self) -> None:
        runner = self.rng.choice(self.runners)
        acts = [
            self._observe,
            self._claim,
            self._notice,
            self._recover,
            self._obey,
            self._start,
            self._start,
            self._start,
        ]
        self.rng.choice(acts)(runner)

    def _set(self, runner: Runner, state: Delivery) -> None:
        before, runner.state = runner.state, state
        self.on_step(runner, before, state)

    def _observe(self, runner: Runner) -> None:
        """One look after another, perhaps long after it was taken."""
        seen = runner.look or self._look_at_source(runner)
        late = self.faults_left and self.chance.random() < 0.3
        runner.look = self._look_at_source(runner) if late else None
        self._set(
            runner,
            delivery.observe(runner.state, identity=seen.identity, oldest=seen.oldest, head=seen.head),
        )

    def _look_at_source(self, runner: Runner) -> Look:
        """As `runtime.generations` and the control store number it."""
        identity, store = self.source.identity, self.generations
        given = store.get(identity, max(store.values(), default=0) + 1)
        store[identity] = number = max(given, least(identity, runner.shown))
        runner.shown[identity] = number
        return Look(identity, Position(number, self.source.oldest), Position(number, self.source.head))

    def _claim(self, runner: Runner) -> None:
        free = [name for name, (holder, _) in self.leases.items() if holder == ""]
        if free:
            self._acquire(runner, self.rng.choice(free), above=0)

    def _acquire(self, runner: Runner, name: str, *, above: int) -> None:
        token = next_token(self.leases[name][1], above=above, clock=self.clock)
        self.clock = max(self.clock, token)
        self.leases[name] = (runner.name, token)
        self._set(runner, delivery.acquire(runner.state, {name: token}))

    def _notice(self, runner: Runner) -> None:
        lost = [
            name
            for name, sink in runner.state.sinks.items()
            if sink.phase != "unowned" and not self._owns(runner, name)
        ]
        if lost:
            self._set(runner, delivery.lose(runner.state, lost))

    def _owns(self, runner: Runner, name: str) -> bool:
        return self.leases[name] == (runner.name, runner.state.sinks[name].token)

    def _recover(self, runner: Runner) -> None:
        for lane in LANES:
            self._carry_out(runner, *delivery.start_recovery(runner.state, now_ms=NEVER, lane=lane))

    def _start(self, runner: Runner) -> None:
        """Whatever may start, in any order, until something does."""
        late = self.rng.random() < 0.5
        starts: list[Callable[[Delivery], tuple[Delivery, list[delivery.Effect]]]] = [
            lambda state: delivery.start_wave(state, now_ms=self._now_ms(), late=late),
            lambda state: delivery.start_wave(state, now_ms=self._now_ms(), late=not late),
            lambda state: delivery.start_seed(state, now_ms=self._now_ms(), late=late),
            lambda state: delivery.start_seed(state, now_ms=self._now_ms(), late=not late),
            lambda state: delivery.persist_idle(state, delivery.taken_up(state)),
            lambda state: delivery.persist_idle(state, delivery.due_to_persist(state)),
        ]
        if self.rng.random() < 0.1:  # as at a clean stop
            starts = [lambda state: delivery.persist_idle(state, list(state.sinks))]
        self.rng.shuffle(starts)
        for start in starts:
            state, effects = start(runner.state)
            if effects:
                self._carry_out(runner, state, effects)
                return

    # --- what users ask for -----------------------------------------------------------------------------

    def _wish(self) -> None:
        if not self.wishes_left:
            return
        self.wishes_left -= 1
        table = self.rng.choice(TABLES)
        happens = self.rng.random()
        if happens < 0.35:
            self.paused ^= {table}
        elif happens < 0.92:
            self._request(table)
        else:  # the settings change, and all runs are started anew
            self._change_settings(self.rng.choice(["first", "second"]), accept=self.rng.random() < 0.5)

    def _change_settings(self, shape: str, *, accept: bool) -> None:
        self.shape, self.accept, self.reshaped = shape, accept, True
        self.leases = {name: ("", token) for name, (_, token) in self.leases.items()}
        self.runners = [self._born(), self._born()]

    def _request(self, table: str) -> None:
        self.asked += 1
        self.requests[table] = Request(self.asked)

    def _obey(self, runner: Runner) -> None:
        """As `runtime.requests` does: take up, and look whether the sinks show it."""
        self._set(runner, delivery.pause_tables(runner.state, tables=self.paused))
        for table, request in sorted(self.requests.items()):
            waiting = [name for name in self.sinks if name not in request.answered]
            self._set(runner, delivery.resume_table(runner.state, table, asked=request.number, sinks=waiting))
            for name in waiting:
                self._look(runner, name, table, request)
            if len(request.answered) == len(self.sinks):
                del self.requests[table]

    def _look(self, runner: Runner, name: str, table: str, request: Request) -> None:
        copy = runner.state.sinks[name].copies.get(table)
        shown = copy is not None and copy.durable is not None and copy.durable.resumed == request.number
        if not shown or not self._owns(runner, name):
            return
        kept = self.sinks[name].copies.get(table)
        if kept is None or kept.version.resumed != request.number:
            raise Broken("RequestKept: answered, and the sink does not show it")
        request.answered.add(name)

    # --- effects ----------------------------------------------------------------------------------------

    def _carry_out(self, runner: Runner, state: Delivery, effects: list[delivery.Effect]) -> None:
        self._set(runner, state)
        for effect in effects:
            match effect:
                case Recover(sinks):
                    job = self._job(runner, Job(self.next_job, None, dict(sinks), asked=set(sinks)))
                    self.network += [
                        Task(runner.name, job.id, name, epoch, token)
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

    def _send(self, runner: Runner, wave: Wave) -> None:
        upto = wave.upto_max.place
        if wave.kind == "changes" and wave.after is not None:
            upto = self.rng.randint(min(wave.after.place + 1, upto), upto)
        sinks = {name: (order.epoch, order.token) for name, order in wave.sinks.items()}
        job = self._job(runner, Job(self.next_job, wave, sinks, upto))
        if unread := self._unread(wave, upto):
            job.receipts = {
                name: Receipt(name, order.epoch, "aborted", unread=unread)
                for name, order in wave.sinks.items()
            }
            return
        faulty = {table for table in wave.tables if self._stops()}  # the window's own finding
        for name in wave.sinks:
            task = self._task(runner, job, wave, name, faulty)
            if faulty or wave.kind != "changes" or self._touched(task):
                job.asked.add(name)
                self.network.append(task)

    def _unread(self, wave: Wave, upto: int) -> dict[str, Fault]:
        """All tables of a window that is gone; now and then some that nobody can read for a moment."""
        place = wave.after.place if wave.kind == "changes" and wave.after is not None else upto
        if place < self.source.oldest:
            return dict.fromkeys(wave.tables, world.UNREADABLE)
        if wave.tables and self.faults_left and self.rng.random() < 0.1:
            self.faults_left -= 1
            some = self.rng.sample(wave.tables, self.rng.randint(1, len(wave.tables)))
            return dict.fromkeys(some, world.UNREADABLE)
        return {}

    def _now_ms(self) -> int:
        """Backoff is policy: whoever rests is over it now, or is not."""
        return self.rng.choice([0, NEVER])

    def _task(self, runner: Runner, job: Job, wave: Wave, name: str, faulty: set[str]) -> Task:
        known, order = runner.state.sinks[name], wave.sinks[name]
        upto = Position(wave.upto_max.generation, job.upto)
        tables, after = {}, {}
        for table, wanted in order.tables.items():
            if table in known.paused_tables and wanted.kind in ("changes", "replace"):
                raise Broken("PausedStandsStill")
            if table in faulty:
                wanted = replace(
                    wanted, kind="hold", hold=STOPPED, edition=wanted.edition - (wanted.at is None)
                )
                place = Position(upto.generation, 0) if wanted.expected is None else wanted.expected.at
                wanted = replace(wanted, at=wanted.at or place)
            one: TableOrder = world.table_order(wanted, self.modes[table], self.shape, upto)
            tables[table] = one
            after[table] = 0 if wanted.at is None else wanted.at.place
        sent = Order(name, order.epoch, order.token, upto, wave.identity, tables)
        stops = frozenset(table for table in tables if self._stops())
        return Task(runner.name, job.id, name, order.epoch, order.token, sent, tuple(after.items()), stops)

    def _stops(self) -> bool:
        return self.faults_left > 0 and self.rng.random() < 0.02

    def _touched(self, task: Task) -> bool:
        assert task.order is not None
        return any(
            self.source.log(task.sink, table, after=after, upto=task.order.upto.place)
            for table, after in task.read_after
        )

    # --- the network ------------------------------------------------------------------------------------

    def _task_runs(self) -> None:
        if self.network:
            task = self.rng.choice(self.network)
            if self.rng.random() < 0.7:
                self.network.remove(task)  # otherwise it will run again
            self._run(task)

    def _run(self, task: Task) -> None:
        before = laws.before(self.sinks[task.sink])
        receipt = world.execute(task, self.sinks[task.sink], self.source)
        laws.only_grows(self.sinks[task.sink], *before)
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
            self._hear(runner, receipts)
            self._carry_out(runner, *delivery.recovered(runner.state, receipts, now_ms=0))
        elif self.faults_left and self.rng.random() < 0.05:
            self.faults_left -= 1
            self._carry_out(runner, *delivery.wave_failed(runner.state, job.wave.id, JOB_FAULT, now_ms=0))
        else:
            upto = Position(job.wave.upto_max.generation, job.upto)
            done = delivery.wave_done(runner.state, job.wave.id, upto=upto, receipts=receipts, now_ms=0)
            self._carry_out(runner, *done)

    def _hear(self, runner: Runner, receipts: list[Receipt]) -> None:
        told = shown_by(receipt.cursor for receipt in receipts if receipt.cursor is not None)
        for identity, generation in told.items():
            runner.shown[identity] = max(generation, runner.shown.get(identity, 0))

    def _fault(self) -> None:
        if not self.faults_left:
            return
        self.faults_left -= 1
        name = self.rng.choice(list(self.leases))
        happens = self.rng.random()
        if happens < 0.4:  # a lease runs out; its holder may be paused and not know
            self.leases[name] = ("", self.leases[name][1])
        elif happens < 0.7:  # kill -9: memory and answers are lost, tasks are not
            gone = self.rng.randrange(2)
            dead = self.runners[gone].name
            self.leases = {n: ("" if h == dead else h, t) for n, (h, t) in self.leases.items()}
            self.runners[gone] = self._born()
        elif happens < 0.85:  # a place turns out to be unreadable
            runner = self.rng.choice(self.runners)
            table = self.rng.choice(TABLES)
            copy = runner.state.sinks[name].copies.get(table)
            if runner.state.head is not None and copy is not None:
                lost = {table: world.UNREADABLE}
                self._set(runner, delivery.lost_history(runner.state, [name], lost, at=copy.at, now_ms=0))
        else:  # the control store is deleted
            self.leases = dict.fromkeys(self.leases, ("", 0))
            self.generations = {}

    # --- the laws ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold after every step."""
        tasks = set(self.network)
        for name, sink in self.sinks.items():
            for table, kept in sink.copies.items():
                laws.content(name, table, kept, self.source)
            for runner in self.runners:
                known = runner.state.sinks[name]
                laws.knowledge(name, known, sink, self.source)
                laws.one_order(runner.name, name, known, sink, tasks)
                laws.caught_up(runner.state, known)
            tokens = [r.state.sinks[name].token for r in self.runners if r.state.sinks[name].token]
            if len(set(tokens)) < len(tokens):
                raise Broken("NoSharedToken")

    # --- healing ----------------------------------------------------------------------------------------

    def heal(self) -> None:
        """No more faults, every change of settings accepted, nothing paused, everything held resumed: every
        copy becomes current and every request answered within a bounded number of turns."""
        self.faults_left, self.paused = 0, frozenset()
        if self.reshaped:
            self._change_settings(self.shape, accept=True)
        for _ in range(400):
            for runner in self.runners:
                for act in (
                    self._notice,
                    self._observe,
                    self._claim,
                    self._recover,
                    self._obey,
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
            if self._all_current():
                return
            self._resume_what_is_held()
        raise Broken("RequestsAnswered" if self.requests else "EverySinkBecomesCurrent")

    def _resume_what_is_held(self) -> None:
        held = {table for sink in self.sinks.values() for table, kept in sink.copies.items() if kept.hold}
        held |= {
            table
            for runner in self.runners
            for sink in runner.state.sinks.values()
            for table, copy in sink.copies.items()
            if copy.status == "held"
        }
        for table in sorted(held - set(self.requests)):
            self._request(table)

    def _all_current(self) -> bool:
        return not self.requests and all(
            self._is_current(name, table) for name in self.sinks for table in TABLES
        )

    def _is_current(self, name: str, table: str) -> bool:
        kept = self.sinks[name].copies.get(table)
        owners = [runner for runner in self.runners if self._owns(runner, name)]
        copies = [runner.state.sinks[name].copies.get(table) for runner in owners]
        heads = [runner.state.head for runner in owners]
        there = any(
            copy is not None and (copy.status, copy.at, copy.source_identity) == wanted
            for copy, wanted in zip(
                copies, (("streaming", h, self.source.identity) for h in heads), strict=True
            )
        )
        there = there and any(head is not None and head.place == self.source.head for head in heads)
        if kept is None or not there or kept.shape != self.shape:
            return False
        return kept.mode == "append" or kept.mirror == self.source.share(
            name, table, self.source.head, self.shape
        )


def run(seed: int, *, steps: int = STEPS, modes: Modes = ("mirror", "mirror")) -> Simulation:
    """A whole life: trouble, then healing."""
    simulation = Simulation(seed, modes=modes)
    for _ in range(steps):
        simulation.step()
    simulation.heal()
    return simulation
