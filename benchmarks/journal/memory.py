"""The memory of the nodes and their coordinator while gigabytes are written, read and trimmed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import psutil

from benchmarks.journal.logs import BATCH_BYTES, Payloads, ReplicatedLog, submit_all
from benchmarks.journal.speed import WINDOW
from tests.journal.cluster import Cluster
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.model.position import Position

PART_BYTES = 256 << 20  # written, read back and trimmed together
FREE_BYTES_MIN = 16 * PART_BYTES  # two replicas, and what is trimmed but not removed yet
SAMPLE_S = 0.1
MARKS = (0.1, 0.5, 1.0)


@dataclass
class Memory:
    """Megabytes of one process, by how much of all had been written."""

    samples: list[tuple[float, float]] = field(default_factory=list)

    def at(self, share: float) -> float:
        """When so much had been written; the last before, if nobody looked at that moment."""
        return [mb for written, mb in self.samples if written <= share][-1]

    @property
    def most(self) -> float:
        """The highest of all samples."""
        return max(mb for _, mb in self.samples)


def memory(cluster: Cluster, log: ReplicatedLog, *, gigabytes: float) -> dict[str, Memory]:
    """Of each process."""
    parts = max(1, round(gigabytes * 1e9 / PART_BYTES))
    count = PART_BYTES // BATCH_BYTES
    payloads = Payloads(BATCH_BYTES)
    with closing(log.journal()) as journal, closing(log.reader()) as reader, _watch(cluster) as watch:
        for part in range(parts):
            _require_room(cluster)
            after = part * count
            submit_all(journal, payloads.some(after=after, upto=after + count), WINDOW)
            _read_part(reader, payloads, after=after, upto=after + count)
            _trim(journal, after + count)
            watch.written = (part + 1) / parts
    return watch.found


def _read_part(reader: ReplicatedReader, payloads: Payloads, *, after: int, upto: int) -> None:
    number = after
    start = Position(1, after) if after else None
    for position, record in reader.read_committed(after=start, last=upto):
        number += 1
        assert position.place == number
        payloads.check(number, record.payload)
    assert number == upto, "everything is read back"


def _trim(journal: ReplicatedJournal, number: int) -> None:
    journal.trim(before=Position(1, number))


def _require_room(cluster: Cluster) -> None:
    free = shutil.disk_usage(cluster.folder).free
    if free < FREE_BYTES_MIN:
        raise SystemExit(
            f"{cluster.folder} has {free / 1e9:.1f} GB free; the nodes need {FREE_BYTES_MIN / 1e9:.1f} GB. "
            "Make room, or name a folder on another disk with --folder."
        )


class _Watch(threading.Thread):
    """Samples until it is stopped."""

    def __init__(self, processes: dict[str, psutil.Process]) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self._over = threading.Event()
        self.written = 0.0
        self.found = {name: Memory() for name in processes}

    def run(self) -> None:
        self.sample()
        while not self._over.wait(SAMPLE_S):
            self.sample()

    def sample(self) -> None:
        for name, process in self._processes.items():
            self.found[name].samples.append((self.written, process.memory_info().rss / 1e6))

    def stop(self) -> None:
        self._over.set()
        self.join()
        self.sample()


@contextmanager
def _watch(cluster: Cluster) -> Iterator[_Watch]:
    running = {f"node {n}": node.running for n, node in enumerate(cluster.nodes, start=1)}
    running["coordinator"] = cluster.coordinator.running
    watch = _Watch({name: psutil.Process(one.pid) for name, one in running.items() if one is not None})
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
