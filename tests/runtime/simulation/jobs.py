"""Spark under simulation: the planner's real orders, carried out at the model sinks task by task.

A job gives its sinks to a few slots; each sink answers, late or never; a deadline bounds each. Tasks outlive
their job, their deadline and their runner, and may run twice: what they are worth then, the sink decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tests.runtime.simulation.clockwork import Broken, Clockwork
from tests.runtime.simulation.laws import Laws
from tests.runtime.simulation.process import InFlight, Process
from tests.runtime.simulation.sink import Sink
from tests.runtime.simulation.source import Event, History, Read
from truecut.config.settings import Pipeline
from truecut.core.delivery import Recover, Wave
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.cursor import Hold
from truecut.model.order import Order, Receipt
from truecut.runtime.jobs import SEED_DEADLINE_MS, Jobs, unplanned, untouched
from truecut.runtime.orders import Planner
from truecut.sources.contract import Source, Window
from truecut.spark.wave.job import WaveResult
from truecut.spark.wave.reading import Reading

SLOTS = 4
LATE = Fault("TC4101", "no answer in time", "None needed.", Retry.RETRYABLE)
BUSY = Fault("TC4002", "the catalog is locked", "None needed.", Retry.RETRYABLE)
JOB_LOST = Fault("TC5004", "the Spark job failed", "None needed.", Retry.RETRYABLE)


Task = tuple[str, int, Callable[[], Receipt]]  # the sink, its epoch, what to do there


@dataclass
class Troubles:
    """How likely each trouble is for one task (or one job)."""

    busy: float = 0.0  # the sink refuses, nothing has happened
    answer_lost: float = 0.0  # it has happened, nobody is told
    twice: float = 0.0  # the task runs again later
    stop: float = 0.0  # a table turns out not to fit
    job_lost: float = 0.0
    slow: float = 0.0  # a call begins or answers late


@dataclass
class Cluster:
    """The executors and the sinks behind them, for all runners."""

    clockwork: Clockwork
    history: History
    sinks: dict[str, Sink]
    laws: Laws
    troubles: Troubles = field(default_factory=Troubles)
    hanging: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    stops: int = 0
    next_stop: tuple[str, str] | None = None  # a sink and its table that will not fit
    refusing: set[str] = field(default_factory=set)  # sinks that refuse the next call, at once

    def hang(self, sink: str) -> None:
        """Nothing that is sent there comes back."""
        self.hanging.setdefault(sink, [])

    def release(self, sink: str) -> None:
        """What hung goes on: some calls still have their effect, others are broken off."""
        for act in self.hanging.pop(sink, []):
            if self.clockwork.happens(0.5):
                self.clockwork.after_ms(self.clockwork.between(0, 200), act)

    def stop_once(self, sink: str, table: str) -> None:
        """The next order for this table does not fit."""
        self.next_stop = (sink, table)

    def start(
        self,
        tasks: Callable[[], Sequence[Task]],
        *,
        deadline_ms: int,
        answer: Callable[[list[Receipt]], Any],
    ) -> InFlight:
        """A job: first it reads, which gives its tasks, then its sinks get them."""
        job = _Job(self, tasks, deadline_ms, answer)
        self.clockwork.after_ms(self.delay_ms(), job.read)
        if self.clockwork.happens(self.troubles.job_lost):
            self.clockwork.after_ms(self.clockwork.between(0, 2_000), job.lose)
        return job.flight

    def delay_ms(self) -> int:
        """How long a call or an answer takes."""
        clockwork = self.clockwork
        if clockwork.happens(self.troubles.slow):
            return clockwork.between(500, 15_000)
        return clockwork.between(0, 60)

    def stop_for(self, order: Order) -> dict[str, Hold]:
        """Tables that do not fit, each for a reason of its own."""
        table = self.clockwork.rng.choice(sorted(order.tables))
        directed = self.next_stop == (order.sink, table)
        if not directed and not self.clockwork.happens(self.troubles.stop):
            return {}
        self.next_stop = None if directed else self.next_stop
        self.stops += 1
        return {table: Hold("TC3024", f"somebody has changed it ({self.stops})")}


@dataclass
class _Job:
    cluster: Cluster
    tasks: Callable[[], Sequence[Task]]
    deadline_ms: int
    answer: Callable[[list[Receipt]], Any]
    flight: InFlight = field(default_factory=InFlight)
    waiting: deque[Task] = field(default_factory=deque)
    receipts: list[Receipt] = field(default_factory=list)
    at_work: set[int] = field(default_factory=set)
    lost: bool = False

    def read(self) -> None:
        """What is read now decides who gets what."""
        if not self.lost:
            self.waiting.extend(self.tasks())
            self.fill()

    def fill(self) -> None:
        """Give waiting sinks to free slots; end when nobody is left."""
        while self.waiting and len(self.at_work) < SLOTS and not self.lost:
            self._begin(*self.waiting.popleft())
        if not self.waiting and not self.at_work:
            self.flight.end(self.answer(self.receipts))

    def lose(self) -> None:
        """A worker is lost, the job fails; what runs goes on."""
        self.lost = True
        self.flight.end(None, JOB_LOST)

    def _begin(self, sink: str, epoch: int, act: Callable[[], Receipt]) -> None:
        clockwork, number = self.cluster.clockwork, len(self.receipts) + len(self.at_work)
        self.at_work.add(number)
        late = Receipt(sink, epoch, "late", fault=LATE)
        clockwork.after_ms(clockwork.between(10, 400), lambda: self._reach(sink, epoch, act, number))
        clockwork.after_ms(self.deadline_ms, lambda: self._told(number, late))

    def _reach(self, sink: str, epoch: int, act: Callable[[], Receipt], number: int) -> None:
        cluster, clockwork = self.cluster, self.cluster.clockwork
        if sink in cluster.hanging:
            cluster.hanging[sink].append(lambda: self._reach(sink, epoch, act, number))
            return
        if sink in cluster.refusing or clockwork.happens(cluster.troubles.busy):
            cluster.refusing.discard(sink)
            self._told(number, Receipt(sink, epoch, "failed", fault=BUSY))
            return
        if clockwork.happens(cluster.troubles.twice):
            again_ms = clockwork.between(0, 20_000)
            clockwork.after_ms(again_ms, lambda: self._again(sink, act))
        receipt = act()
        if not clockwork.happens(cluster.troubles.answer_lost):
            self._told(number, receipt)
        elif clockwork.happens(0.7):  # the connection broke: an error, where it was a commit
            self._told(number, Receipt(sink, epoch, "failed", fault=BUSY))

    def _again(self, sink: str, act: Callable[[], Receipt]) -> None:
        if sink not in self.cluster.hanging:
            act()

    def _told(self, number: int, receipt: Receipt) -> None:
        if number in self.at_work:
            self.at_work.remove(number)
            self.receipts.append(receipt)
            self.fill()


class SimulatedJobs(Jobs):
    """One runner's jobs in the simulated cluster."""

    def of(self, pipeline: Pipeline) -> SimulatedJobs:
        """As the real ones."""
        return SimulatedJobs(pipeline, self._cluster, self._process)

    def __init__(self, pipeline: Pipeline, cluster: Cluster, process: Process) -> None:
        self._pipeline = pipeline
        self._cluster = cluster
        self._process = process

    def take_over(self, effect: Recover) -> list[Receipt]:
        """Raise fences, read cursors."""
        self._require_own(effect.sinks)
        tasks = [
            (name, epoch, self._taking(name, epoch, token)) for name, (epoch, token) in effect.sinks.items()
        ]
        deadline_ms = self._pipeline.batch.deadline_ms
        flight = self._cluster.start(lambda: tasks, deadline_ms=deadline_ms, answer=list)
        return cast("list[Receipt]", flight)

    def carry(
        self, wave: Wave, source: Source, *, source_identity: str, certificate: str = ""
    ) -> tuple[Window, WaveResult]:
        """Plan as the real one, then carry the orders out."""
        self._require_own(wave.sinks)
        self._cluster.laws.started(self._process, wave)
        planner = Planner(self._pipeline, source_identity)
        try:
            window = planner.window(source, wave, parallelism=SLOTS)
        except TruecutError as error:
            return unplanned(wave, error.fault)
        if window.lost:
            return window, untouched(wave, {})
        deadline_ms = SEED_DEADLINE_MS if wave.kind == "seed" else self._pipeline.batch.deadline_ms
        job = planner.job(wave, window, slots=SLOTS, deadline_ms=deadline_ms)
        flight = self._cluster.start(
            lambda: self._read(job.reading),
            deadline_ms=deadline_ms,
            answer=lambda receipts: (window, WaveResult(receipts)),
        )
        return cast("tuple[Window, WaveResult]", flight)

    def _require_own(self, sinks: Iterable[str]) -> None:
        if strange := set(sinks) - {sink.name for sink in self._pipeline.sinks}:
            raise Broken(f"OrdersAreOfThePipeline: {sorted(strange)}")

    def fraction_done(self, wave: Wave) -> float:
        """Nobody looks."""
        return 0.0

    def _read(self, reading: Reading) -> list[Task]:
        """A window that cannot be read is nobody's."""
        history = self._cluster.history
        reads = [task for task in reading.tasks if isinstance(task, Read)]
        found = {str(read.table): history.hindrance(str(read.table), since=read.since) for read in reads}
        if unread := {table: fault for table, fault in found.items() if fault is not None}:
            return [(order.sink, order.epoch, self._aborting(order, unread)) for order in reading.orders]
        packets = route(reading)
        return [
            (order.sink, order.epoch, self._applying(order, packets[n]))
            for n, order in enumerate(reading.orders)
            if reading.commit_all or packets[n]
        ]

    def _taking(self, name: str, epoch: int, token: int) -> Callable[[], Receipt]:
        sink, laws = self._cluster.sinks[name], self._cluster.laws

        def act() -> Receipt:
            receipt = sink.recover(self._process.name, epoch=epoch, token=token)
            laws.answered(sink, self._process.name, token, receipt)
            return receipt

        return act

    def _aborting(self, order: Order, unread: Mapping[str, Fault]) -> Callable[[], Receipt]:
        def act() -> Receipt:
            self._cluster.laws.aborted(order.sink)
            return Receipt(order.sink, order.epoch, "aborted", unread=unread)

        return act

    def _applying(self, order: Order, packets: Mapping[str, Sequence[Event]]) -> Callable[[], Receipt]:
        cluster, sink = self._cluster, self._cluster.sinks[order.sink]

        def act() -> Receipt:
            receipt = sink.apply(order, packets, cluster.stop_for(order))
            cluster.laws.answered(sink, self._process.name, order.token, receipt)
            return receipt

        return act


def route(reading: Reading) -> list[dict[str, list[Event]]]:
    """Each order's events, by table, as the planner's routes say."""
    packets: list[dict[str, list[Event]]] = [{} for _ in reading.orders]
    for task in reading.tasks:
        assert isinstance(task, Read)
        how = reading.routes[reading.tables.index(str(task.table))]
        for event in task.events:
            for sink in (*how.everywhere, *how.by_value.get(event.route, ())):
                packets[sink].setdefault(str(task.table), []).append(event)
    return packets
