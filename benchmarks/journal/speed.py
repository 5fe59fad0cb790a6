"""The four figures of a log: batches with one and with sixteen under way, single appends, reading."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.journal.logs import BATCH_BYTES, SINGLE_BYTES, Cost, Log, Payloads, cpu_seconds, read_back

WINDOW = 16
READS = 3  # of one log, by one process: short, and they scatter

Make = Callable[[str], Log]  # a new, empty log of that name
Measure = Callable[[str], "Figures"]  # once, under that name


@dataclass(frozen=True)
class Figures:
    """Of one form."""

    batches_mb_s: float  # one under way
    window_mb_s: float  # sixteen
    singles_per_s: float
    read_mb_s: float
    window_cpu_s_gb: float = float("nan")  # of all processes, for a gigabyte
    read_cpu_s_gb: float = float("nan")


def speeds(forms: Mapping[str, Measure], *, rounds: int) -> dict[str, list[Figures]]:
    """Of several rounds, the forms in turn within each; a round before warms everything up."""
    found: dict[str, list[Figures]] = {form: [] for form in forms}
    for turn in range(rounds + 1):
        for form in sorted(forms, reverse=bool(turn % 2)):
            found[form].append(forms[form](f"{form}-{turn}"))
    return {form: figures[1:] for form, figures in found.items()}


def of_log(make: Make, *, megabytes: int, singles: int) -> Measure:
    """Everything that is written is read back; read speed is that of what was written with a window."""
    count, size_mb = _batches(megabytes), _mb(megabytes)

    def measure(name: str) -> Figures:
        one, _ = _write_and_read(make(f"{name}-one"), size=BATCH_BYTES, count=count, window=1)
        window, read = _write_and_read(make(f"{name}-window"), size=BATCH_BYTES, count=count, window=WINDOW)
        single, _ = _write_and_read(make(f"{name}-single"), size=SINGLE_BYTES, count=singles, window=1)
        return Figures(
            size_mb / one.wall_s,
            size_mb / window.wall_s,
            singles / single.wall_s,
            size_mb / read.wall_s,
            window.cpu_s / size_mb * 1e3,
            read.cpu_s / size_mb * 1e3,
        )

    return measure


def of_disk(folder: Path, *, megabytes: int, singles: int) -> Measure:
    """What a file does in the place of a log, with one under way: write, sync, again."""

    def measure(name: str) -> Figures:
        (folder / name).mkdir(parents=True)
        batches_s = _sync_each(folder / name / "batches", BATCH_BYTES, _batches(megabytes))
        single_s = _sync_each(folder / name / "single", SINGLE_BYTES, singles)
        return Figures(_mb(megabytes) / batches_s, float("nan"), singles / single_s, float("nan"))

    return measure


def _write_and_read(log: Log, *, size: int, count: int, window: int) -> tuple[Cost, Cost]:
    """What `count` records cost behind a first one, with which the writer makes its connections."""
    payloads = Payloads(size)
    processes = (os.getpid(), *log.served_by)
    with log.writing() as write:
        write(payloads.some(after=0, upto=1), 1)
        began, cpu_s = time.monotonic(), cpu_seconds(processes)
        write(payloads.some(after=1, upto=count + 1), window)
        wrote = Cost(time.monotonic() - began, cpu_seconds(processes) - cpu_s)
    return wrote, read_back(log, size=size, count=count + 1, times=READS if window > 1 else 1)


def _sync_each(path: Path, size: int, count: int) -> float:
    payloads = Payloads(size)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        began = time.monotonic()
        for payload in payloads.some(after=0, upto=count):
            os.write(file, payload)
            os.fdatasync(file)
        return time.monotonic() - began
    finally:
        os.close(file)


def _batches(megabytes: int) -> int:
    return (megabytes << 20) // BATCH_BYTES


def _mb(megabytes: int) -> float:
    return _batches(megabytes) * BATCH_BYTES / 1e6


def median(rounds: Sequence[Figures]) -> Figures:
    """Of each figure."""
    return Figures(
        *(statistics.median(getattr(one, field.name) for one in rounds) for field in fields(Figures))
    )
