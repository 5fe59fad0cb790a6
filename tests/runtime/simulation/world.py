"""Everything that a pipeline lives in: source, sinks, stores, users, executors, runners as processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.runtime.simulation.clockwork import Broken, Clockwork, VirtualClock
from tests.runtime.simulation.jobs import Cluster, SimulatedJobs, Troubles
from tests.runtime.simulation.laws import Laws
from tests.runtime.simulation.pipeline import TABLES, drawn_pipeline
from tests.runtime.simulation.process import Killed, Process, SimulatedBackground
from tests.runtime.simulation.sink import Sink
from tests.runtime.simulation.source import History, SourceAt
from tests.runtime.simulation.store import Connection, Store, StoreTroubles
from tests.runtime.simulation.users import Users
from truecut.config.settings import Pipeline
from truecut.runtime.control import ControlStore
from truecut.runtime.pipeline_file import PipelineFile
from truecut.runtime.runner import Runner
from truecut.runtime.trace import Trace
from truecut.runtime.until import Until

CALM_PACE_MS = (500, 3_000)  # nothing hurries any more


class SimulatedFile(PipelineFile):
    """The pipeline file as one runner sees it, whenever it looks."""

    def __init__(self, world: World) -> None:  # nothing on a disk, so nothing of the real one's
        self.began = self._seen = world.pipeline
        self._world = world

    def read_again(self) -> Pipeline | None:
        """What it says, if that is new."""
        before, self._seen = self._seen, self._world.pipeline
        return None if before is self._seen else self._seen


class World:
    """The parts, and what can happen to them as a whole."""

    def __init__(
        self, seed: int, folder: Path, *, log: Callable[[str], None], brisk: bool, edited: bool = False
    ) -> None:
        self.clockwork = clockwork = Clockwork(seed, log)
        self.pipeline = self.whole = drawn_pipeline(clockwork.rng, folder, brisk=brisk)
        self.removed_ms: dict[str, int] = {}  # sinks that the file does not name, and since when
        sinks = {sink.name: Sink(sink.name, sink.route) for sink in self.pipeline.sinks}
        routes = tuple(sink.route for sink in self.pipeline.sinks if sink.route is not None)
        self.history = History(clockwork, TABLES, (*routes, "nobody"))
        self.users = Users(clockwork, folder, self.history, sinks=list(sinks), tables=list(TABLES))
        routed = frozenset(str(table.name) for table in self.pipeline.tables if not table.broadcast)
        self.laws = Laws(clockwork, self.history, self.users, routed, self.removed_ms)
        self.cluster = Cluster(clockwork, self.history, sinks, self.laws)
        self.stores = [Store(clockwork)]
        self.processes: list[Process] = []
        self.births = 0
        self.pace_ms = clockwork.rng.choice([(50, 400), (200, 1_000), (400, 2_000)])
        self.troubled = True
        self.edited = edited  # whether runs look at the file, and somebody changes it
        self.stopping = False

    @property
    def store(self) -> Store:
        """The one that a runner finds when it starts."""
        return self.stores[-1]

    def birth(self, until: Until | None = None) -> None:
        """One more runner of the pipeline."""
        if self.stopping and until is None:
            return
        self.births += 1
        process = Process(self.clockwork, f"r{self.births}", pace_ms=self.pace_ms, on_exit=self._exited)
        self.processes.append(process)
        self.clockwork.say(f"{process.name} starts")
        process.start(self._runner(process, until or Until()), to_its_end=until is not None)

    def _runner(self, process: Process, until: Until) -> Runner:
        clockwork, history = self.clockwork, self.history
        return Runner(
            self.pipeline,
            name=process.name,
            jobs=SimulatedJobs(self.pipeline, self.cluster, process),
            open_source=lambda generation: SourceAt(history, generation),
            control=ControlStore(Connection(self.store, process), pipeline=self.pipeline.name),
            trace=Trace(None),
            until=until,
            file=SimulatedFile(self) if self.edited else None,
            background=SimulatedBackground(process, clockwork, self.cluster.delay_ms),
            clock=VirtualClock(clockwork),
            chance=random.Random(clockwork.rng.getrandbits(32)),
        )

    def _exited(self, process: Process) -> None:
        self.processes.remove(process)
        self.clockwork.say(f"{process.name} ends: {process.error or process.outcome!r}")
        if process.error is None:
            self.laws.stopped(process, self.cluster.sinks)
        elif isinstance(process.error, Killed):
            wait_ms = self.clockwork.between(100, 20_000) if self.troubled else 100
            self.clockwork.after_ms(wait_ms, self.birth)
        else:
            raise Broken(f"TheLoopGoesOn: {process.error!r}") from process.error

    def edit(self, sink: str) -> None:
        """Somebody takes this sink out of the file, or puts it back."""
        names = {one.name for one in self.pipeline.sinks} ^ {sink}
        if not names:
            return
        self.clockwork.say(f"the file has {sorted(names)} now")
        if self.removed_ms.pop(sink, None) is None:
            self.removed_ms[sink] = self.clockwork.now_ms
        self.pipeline = replace(self.whole, sinks=tuple(s for s in self.whole.sinks if s.name in names))

    def calm(self) -> None:
        """Nothing new happens."""
        self.troubled = False

    def heal(self) -> None:
        """Nothing fails any more, the source rests, nobody pauses anything; all runners use one store."""
        self.clockwork.say("everything heals")
        self.calm()
        self.cluster.troubles, self.cluster.refusing = Troubles(), set()
        for store in self.stores:
            store.troubles, store.down_until_ms = StoreTroubles(), 0
        self.history.heal()
        for name in list(self.cluster.hanging):
            self.cluster.release(name)
        self.users.resume_all()
        self.pace_ms = CALM_PACE_MS
        if len(self.stores) > 1:  # whoever has given a sink up says so, and somebody starts it again
            for process in list(self.processes):
                process.kill()
        for process in self.processes:
            process.pace_ms = CALM_PACE_MS
            process.thaw()
        if not self.processes:
            self.birth()

    def lacking(self, *, rows_only: bool = False) -> list[str]:
        """What is not at the head, and not held for a good reason either."""
        carried = {sink.name: tuple(sink.modes) for sink in self.pipeline.sinks}
        sinks = [sink for sink in self.cluster.sinks.values() if sink.name in carried]
        return self.laws.lacking(sinks, carried, self.processes, rows_only=rows_only)

    def leased_in_vain(self) -> list[str]:
        """Sinks that the file does not name, and that somebody has a lease of."""
        return sorted(self.removed_ms.keys() & self.store.owners())

    def close(self) -> None:
        """The end of this world."""
        self.stopping = True
        for process in list(self.processes):
            process.kill()
        for store in self.stores:
            store.close()
