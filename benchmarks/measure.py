"""Wall seconds, CPU seconds and peak memory of a block: of this process and of all it started."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

SAMPLE_S = 0.2
SAMPLING_SHARE = 0.05  # of the time, at most: asking for a large process's pages is work, too


@dataclass
class Measured:
    """What a block cost. CPU of processes that ended inside the block counts up to their last sample; pages
    that forked processes share are counted once."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_rss_mb: float = 0.0


@contextmanager
def measured() -> Iterator[Measured]:
    """Measure a block."""
    result = Measured()
    cpu: dict[int, tuple[float, float]] = {}
    done = threading.Event()
    started = time.monotonic()
    _sample(cpu, result)
    first = {pid: used for pid, (used, _) in cpu.items()}

    def watch() -> None:
        cost_s = 0.0
        while not done.wait(max(SAMPLE_S, cost_s / SAMPLING_SHARE)):
            began = time.monotonic()
            _sample(cpu, result)
            cost_s = time.monotonic() - began

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield result
    finally:
        result.wall_s = time.monotonic() - started
        done.set()
        thread.join()
        _sample(cpu, result)
        result.cpu_s = sum(used - first.get(pid, 0.0) for pid, (used, _) in cpu.items())


def _sample(cpu: dict[int, tuple[float, float]], result: Measured) -> None:
    total = 0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            with process.oneshot():
                times = process.cpu_times()
                total += process.memory_full_info().pss
                cpu[process.pid] = (times.user + times.system, process.create_time())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    result.peak_rss_mb = max(result.peak_rss_mb, total / 1e6)
