"""From an append's return on an idle log until a reader in another process holds the record."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

from benchmarks.journal.logs import SINGLE_BYTES, Log, Payloads

IDLE_S = (0.05, 0.25)  # between two appends; not a rhythm that a reader's own could meet
SEEN_S = 30.0


def visibility(log: Log, *, appends: int) -> list[float]:
    """Seconds for each. A reader may see a record before its writer has heard: then it is none."""
    payloads, chance = Payloads(SINGLE_BYTES), random.Random(1)
    delays = []
    with log.writing() as write:
        write(payloads.some(after=0, upto=1), 1)
        with _reader(log) as seen:
            _next(seen)
            for number in range(2, appends + 2):
                time.sleep(chance.uniform(*IDLE_S))
                write([payloads.make(number)], 1)
                returned = time.monotonic()
                delays.append(max(0.0, _next(seen) - returned))
    return delays


@contextmanager
def _reader(log: Log) -> Iterator[Connection]:
    spawn = get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    reader = spawn.Process(target=_tell_when_seen, args=(log, there), daemon=True)
    reader.start()
    try:
        yield here
    finally:
        reader.terminate()
        reader.join()


def _tell_when_seen(log: Log, told: Connection) -> None:
    payloads = Payloads(SINGLE_BYTES)
    for number, payload in enumerate(log.follow(), start=1):
        seen = time.monotonic()
        payloads.check(number, payload)
        told.send(seen)


def _next(seen: Connection) -> float:
    assert seen.poll(SEEN_S), "what was appended is seen"
    return float(seen.recv())
