"""Real processes, killed at every durable step and at any time: what was acknowledged is there, once, in
order, with the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.journal.world import content, texts
from truecut.journal.local import LocalJournal
from truecut.journal.reader import LocalReader
from truecut.runtime.failpoint import KILLED, NAMES

STEPS = sorted(name for name in NAMES if name.startswith("journal_"))


class Writer:
    """`truecut journal append` as a process that is fed line after line, and what it has answered."""

    def __init__(self, data: Path, prefix: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "truecut", "journal", "append", "--data", str(data), "--log", "log"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        self.acknowledged: list[int] = []  # the places, in the order of the lines
        self._prefix = prefix
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._feed, self._listen)]
        for thread in self._threads:
            thread.start()

    def _feed(self) -> None:
        assert self.process.stdin is not None
        try:
            for n in range(1_000_000):
                self.process.stdin.write(f"{self._prefix}-{n}\n")
                self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.acknowledged.append(int(line.split("-")[1], 16))

    def wait_for(self, lines: int) -> None:
        """Until so many lines are acknowledged."""
        while len(self.acknowledged) < lines:
            assert self.process.poll() is None
            time.sleep(0.001)

    def end(self) -> int:
        """The exit code, once everything that it said has been heard."""
        code = self.process.wait()
        for thread in self._threads:
            thread.join()
        return code


def check(data: Path, writers: list[Writer]) -> None:
    """Each writer's lines are a prefix of what it was fed, one writer's behind the other's; what it
    acknowledged is at the place it said."""
    found = texts(content(LocalReader(data / "log")))
    expected = []
    for writer in writers:
        prefix = writer._prefix
        count = sum(text.startswith(f"{prefix}-") for text in found)
        expected += [f"{prefix}-{n}" for n in range(count)]
        assert [found[place - 1] for place in writer.acknowledged] == [
            f"{prefix}-{n}" for n in range(len(writer.acknowledged))
        ]
    assert found == expected


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_durable_step(tmp_path: Path, step: str) -> None:
    """In a new log and in one that is there; while it is written, also at a later time."""
    while_opening = step in ("journal_epoch_raised", "journal_segment_made")
    writers = []
    for number, times in enumerate((1, 1) if while_opening else (1, 1, 3)):
        writers.append(Writer(tmp_path, f"w{number}", {"TRUECUT_FAILPOINT": f"{step}:{times}"}))
        assert writers[-1].end() == KILLED
        check(tmp_path, writers)
        LocalJournal(tmp_path / "log").close()
        check(tmp_path, writers)


def test_killed_at_any_time(tmp_path: Path) -> None:
    """Ten times, under load, each followed by the next writer."""
    rng = random.Random(4)
    writers = []
    for number in range(10):
        writers.append(Writer(tmp_path, f"w{number}"))
        writers[-1].wait_for(rng.randrange(1, 300))
        writers[-1].process.kill()
        assert writers[-1].end() == -signal.SIGKILL
        check(tmp_path, writers)
    assert sum(len(writer.acknowledged) for writer in writers) > 100


def test_a_stopped_writer_wakes_up_after_a_takeover(tmp_path: Path) -> None:
    """SIGSTOP in the middle of its work, a newcomer takes over, SIGCONT: it writes nothing more."""
    old = Writer(tmp_path, "old")
    old.wait_for(100)
    old.process.send_signal(signal.SIGSTOP)
    time.sleep(0.05)
    acknowledged = len(old.acknowledged)
    with_old = LocalJournal(tmp_path / "log", take_over=True)
    before = texts(content(with_old))
    old.process.send_signal(signal.SIGCONT)
    assert old.end() == 1
    assert texts(content(with_old)) == before
    with_old.close()
    assert len(before) >= acknowledged
    check(tmp_path, [old])
