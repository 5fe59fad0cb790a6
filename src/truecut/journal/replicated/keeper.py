"""What the coordinator does by itself, again and again until it is done: fence, copy, decide, tell ends.

Each task is a question to one node, asked in a lane of its own, never twice at the same time: a node that is
lost holds up nobody else. Nothing here is remembered across a restart: the tasks follow from the registry. An
error that nobody foresaw is logged, and told as what the log waits for, until the task succeeds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

from truecut.core import segment_log as core
from truecut.core.segment_log import Copying, NodeId
from truecut.errors import TruecutError
from truecut.journal.replicated import faults
from truecut.journal.replicated.coordinator import Coordinator
from truecut.journal.replicated.lanes import Lane, Lanes
from truecut.journal.replicated.registry import LogEntry
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Message, Peer
from truecut.journal.security import Security

AGAIN_S = 0.2  # before the same question is asked again, should it still be one
IDLE_S = 0.5
COPY_TIMEOUT_S = 600.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A question to a node about a segment."""

    action: Literal["fence", "end", "copy", "repair"]
    log: str
    segment: int
    node: NodeId

    @property
    def lane(self) -> Lane:
        """Where it waits for nobody but its like."""
        lanes: dict[str, Lane] = {"copy": "copy to decide", "repair": "copy to repair"}
        return lanes.get(self.action, "question")

    def __str__(self) -> str:
        return f"{self.action} segment {self.segment} of the log {self.log} at node {self.node}"


class Keeper(threading.Thread):
    """The coordinator's own work."""

    def __init__(self, coordinator: Coordinator, security: Security) -> None:
        super().__init__(daemon=True)
        self._coordinator = coordinator
        self._security = security
        self._peers: dict[str, Peer] = {}
        self._busy: dict[Task, float] = {}  # until when it is not asked again
        self._lanes = Lanes()
        self._stopped = False

    def run(self) -> None:
        changed = self._coordinator.changed
        while not self._stopped:
            with changed:
                tasks = self._found_tasks()
                for task, _ in tasks:
                    self._busy[task] = float("inf")
                if not tasks:
                    changed.wait(min(IDLE_S, self._until_next()))
            for task, ask in tasks:
                if not self._stopped:
                    self._lanes.submit(task.node, task.lane, partial(self._do, task, ask))
        self._lanes.close()

    def stop(self) -> None:
        """No more of it."""
        self._stopped = True

    # --- what there is to do (within the coordinator's lock) ---

    def _found_tasks(self) -> list[tuple[Task, Callable[[], None]]]:
        """One log whose tasks cannot be told does not stop the others."""
        now = time.monotonic()
        self._busy = {task: until for task, until in self._busy.items() if until > now}
        found: list[tuple[Task, Callable[[], None]]] = []
        for entry in list(self._coordinator.logs.values()):
            try:
                wanted = list(self._of_log(entry))
            except Exception as error:  # noqa: BLE001  (logged, and told to whoever asks for the log)
                self._failed(entry.name, "find out what is to be done", error)
            else:
                self._coordinator.wanted(entry.name, {str(task) for task, _ in wanted})
                found += [(task, ask) for task, ask in wanted if task not in self._busy]
        return found

    def _of_log(self, entry: LogEntry) -> Iterator[tuple[Task, Callable[[], None]]]:
        coordinator, found = self._coordinator, entry.log
        alive = coordinator.alive(entry, found.last)
        for node in sorted(
            core.to_fence(found) & alive - set(found[found.last].fenced) if found.last else ()
        ):
            yield Task("fence", entry.name, found.last, node), self._fence(entry, found.last, node)
        for copying in core.to_copy(found, alive=alive, spare=self._spare(alive)):
            yield self._copy(entry, copying, sealed=False)
        for number, node in core.to_end(found):
            if node in coordinator.alive(entry, number):
                yield Task("end", entry.name, number, node), self._end(entry, number, node)
        present = coordinator.present()
        for copying in core.to_replace(found, alive=present, spare=self._spare(alive)):
            yield self._copy(entry, copying, sealed=True)
        yield from self._repairs(entry)

    def _repairs(self, entry: LogEntry) -> Iterator[tuple[Task, Callable[[], None]]]:
        """A damaged replica of a segment whose end is decided is copied from a good one."""
        for node, known in self._coordinator.nodes.items():
            for name, number in known.damaged:
                if name != entry.name or not entry.log.trimmed < number <= entry.log.last:
                    continue
                alive = self._coordinator.alive(entry, number)
                copying = core.to_repair(entry.log, segment=number, node=node, alive=alive)
                if copying is not None:
                    yield self._copy(entry, copying, sealed=True)

    def _spare(self, alive: frozenset[NodeId]) -> list[NodeId]:
        return sorted(node for node in alive if not self._coordinator.nodes[node].full)

    def _until_next(self) -> float:
        now = time.monotonic()
        waiting = [until - now for until in self._busy.values() if until != float("inf")]
        return max(0.01, min((left for left in waiting if left > 0), default=IDLE_S))

    # --- asking (without the lock) ---

    def _do(self, task: Task, ask: Callable[[], None]) -> None:
        try:
            ask()
            self._coordinator.succeeded(task.log, str(task))
        except TruecutError as error:
            log.debug("%s: %s", task, error.fault.code)
        except Exception as error:  # noqa: BLE001  (the same)
            self._failed(task.log, str(task), error)
        finally:
            with self._coordinator.changed:
                self._busy[task] = time.monotonic() + AGAIN_S
                self._coordinator.changed.notify_all()

    def _failed(self, name: str, task: str, error: Exception) -> None:
        """Not one of ours: its text may hold anything, so only its kind is told; its log has the rest."""
        log.error("cannot %s", task, exc_info=error)
        self._coordinator.failed(name, task, faults.keeper_failed(task, type(error).__name__).fault)

    def _fence(self, entry: LogEntry, number: int, node: NodeId) -> Callable[[], None]:
        home = self._coordinator.home(entry, number)

        def ask() -> None:
            length = self._ask(node, "node.fence", home, {})["length"]
            if length is not None:
                told = partial(core.take_fenced, segment=number, node=node, length=length)
                self._coordinator.step(entry.name, number, told)
                self._coordinator.step(entry.name, number, _decided)

        return ask

    def _end(self, entry: LogEntry, number: int, node: NodeId) -> Callable[[], None]:
        home, end = self._coordinator.home(entry, number), entry.log[number].end

        def ask() -> None:
            if self._ask(node, "node.end", home, {"end": end})["end"] == end:
                assert end is not None
                told = partial(core.take_ended, segment=number, node=node, end=end)
                self._coordinator.step(entry.name, number, told)

        return ask

    def _copy(self, entry: LogEntry, copying: Copying, *, sealed: bool) -> tuple[Task, Callable[[], None]]:
        number, target = copying.segment, copying.target
        home = self._coordinator.home(entry, number)
        request = {
            "source": self._coordinator.nodes[copying.source].address,
            "length": copying.length,
            "sealed": sealed,
        }

        def ask() -> None:
            made = self._ask(target, "node.copy", home, request, timeout_s=COPY_TIMEOUT_S)["length"]
            if made is None:
                return
            if sealed:
                self._coordinator.repaired(target, (entry.name, number))
                self._coordinator.step(entry.name, number, partial(self._replaced, number, target))
            else:
                told = partial(core.take_fenced, segment=number, node=target, length=made)
                self._coordinator.step(entry.name, number, told)
                self._coordinator.step(entry.name, number, _decided)

        return Task("repair" if sealed else "copy", entry.name, number, target), ask

    def _replaced(self, number: int, target: NodeId, found: core.Log) -> core.Log:
        """Replace: the target stands in for a replica that is gone; or it is one itself, repaired."""
        segment = found[number]
        if target in segment.nodes:
            assert segment.end is not None
            return core.take_ended(found, segment=number, node=target, end=segment.end)
        present = self._coordinator.present()
        gone = sorted(segment.nodes - present)
        return core.replace_node(found, segment=number, gone=gone[0], new=target) if gone else found

    def _ask(
        self, node: NodeId, action: str, home: Home, request: Message, *, timeout_s: float = 5.0
    ) -> Message:
        address = self._coordinator.nodes[node].address
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(address, self._security)
        asked = {"home": asdict(home), "node": node, **request}
        return peer.ask(action, asked, timeout_s=timeout_s)


def _decided(found: core.Log) -> core.Log:
    undecided = found.undecided
    return found if undecided is None else core.decide_by_fence(found, replicas=len(undecided.nodes))
