"""A command while it is measured: started, stopped and let go again with everything that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from truecut.config.load import load
from truecut.model.position import Position
from truecut.runtime.control_readonly import peek_reports

WAIT_S = 1800.0


@dataclass
class Command:
    """What runs, and where it writes."""

    process: subprocess.Popen[bytes]
    log: Path

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Nothing of it moves while the block does its work."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def has_said(self, words: str) -> bool:
        """Whether a line of it has been these words."""
        return words in self.log.read_text().splitlines()

    def _signal(self, number: signal.Signals) -> None:
        root = psutil.Process(self.process.pid)
        for process in [root, *root.children(recursive=True)]:
            process.send_signal(number)


def until(done: Callable[[], bool], command: Command, *, every_s: float = 0.1) -> None:
    """Until it holds, the command ends, or half an hour has passed."""
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert command.process.poll() is None, command.log.read_text()[-3000:]
        assert time.monotonic() < deadline, f"never came: {command.log.read_text()[-3000:]}"
        time.sleep(every_s)


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Command]:
    """A command in the background, which is asked to end at the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent)
    try:
        yield Command(process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()


def truecut(*arguments: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "truecut", *arguments]


def reached(file: Path, place: int) -> bool:
    """Whether every sink of a pipeline has told that it stands there, each table seeded."""
    pipeline = load(file, environ=os.environ)
    reports = peek_reports(pipeline.control, pipeline=pipeline.name).sinks
    return len(reports) == len(pipeline.sinks) and all(
        report["position"] is not None
        and Position.parse(report["position"]).place >= place - 1
        and all(copy["status"] == "streaming" for copy in report["tables"].values())
        for report in reports.values()
    )
