"""What the coordinator does by itself, again and again until it is done: fence, copy, decide, tell ends.

Each task is a question to one node, asked in a thread of its own, never twice at the same time. Nothing here
is remembered across a restart: the tasks follow from the registry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

from truecut.core import segment_log as core
from truecut.core.segment_log import Copying, NodeId
from truecut.errors import TruecutError
from truecut.journal.replicated.coordinator import Coordinator
from truecut.journal.replicated.registry import LogEntry
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Message, Peer
from truecut.journal.security import Security

AGAIN_S = 0.2  # before the same question is asked again, should it still be one
IDLE_S = 0.5
THREADS = 16
COPY_TIMEOUT_S = 600.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A question to a node about a segment."""

    action: str
    log: str
    segment: int
    node: NodeId


class Keeper(threading.Thread):
    """The coordinator's own work."""

    def __init__(self, coordinator: Coordinator, security: Security) -> None:
        super().__init__(daemon=True)
        self._coordinator = coordinator
        self._security = security
        self._peers: dict[str, Peer] = {}
        self._busy: dict[Task, float] = {}  # until when it is not asked again
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="keeper")
        self._stopped = False

    def run(self) -> None:
        changed = self._coordinator.changed
        while not self._stopped:
            with changed:
                tasks = list(self._tasks())
                for task, _ in tasks:
                    self._busy[task] = float("inf")
                if not tasks:
                    changed.wait(min(IDLE_S, self._until_next()))
            for task, ask in tasks:
                self._pool.submit(self._do, task, ask)

    def stop(self) -> None:
        """No more of it."""
        self._stopped = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    # --- what there is to do (within the coordinator's lock) ---

    def _tasks(self) -> Iterator[tuple[Task, Callable[[], None]]]:
        now = time.monotonic()
        self._busy = {task: until for task, until in self._busy.items() if until > now}
        for entry in list(self._coordinator.logs.values()):
            for task, ask in self._of_log(entry):
                if task not in self._busy:
                    yield task, ask

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
                segment = entry.log[number]
                sources = sorted((segment.ended - {node}) & self._coordinator.alive(entry, number))
                if segment.end is not None and node in segment.nodes and sources:
                    yield self._copy(entry, Copying(number, sources[0], node, segment.end), sealed=True)

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
        except TruecutError as error:
            log.debug("%s segment %d of %s: %s", task.action, task.segment, task.log, error.fault.code)
        finally:
            with self._coordinator.changed:
                self._busy[task] = time.monotonic() + AGAIN_S
                self._coordinator.changed.notify_all()

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

        return Task("copy", entry.name, number, target), ask

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
        return peer.ask(action, {"home": asdict(home), **request}, timeout_s=timeout_s)


def _decided(found: core.Log) -> core.Log:
    undecided = found.undecided
    return found if undecided is None else core.decide_by_fence(found, replicas=len(undecided.nodes))
