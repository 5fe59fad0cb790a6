"""Writers and readers as the processes that a user starts, and what is asked of what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from tests.journal.world import content, texts
from tests.patience import PATIENCE_S
from truecut.journal.contract import JournalReader

# A writer is fed in bursts, so that many appends are under way at a time, with pauses that leave the machine
# to whatever else is tried meanwhile.
AT_ONCE = 50
PAUSE_S = 0.25


def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`truecut journal …` to its end, which must come."""
    return ended(start(*arguments, **environment), stdin)


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`truecut journal …`, which is to be ended by `ended`."""
    return subprocess.Popen(
        [sys.executable, "-m", "truecut", "journal", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        text=True,
    )


def ended(process: subprocess.Popen[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What it left behind."""
    try:
        out, err = process.communicate(stdin, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{process.args!r} does not end: {process.communicate()}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Writer:
    """`truecut journal append` as a process that is fed line after line, and what it has answered."""

    def __init__(
        self,
        place: Sequence[str],
        prefix: str,
        environment: dict[str, str] | None = None,
        *,
        log: str = "log",
    ) -> None:
        command = [sys.executable, "-m", "truecut", "journal", "append", *place, "--log", log]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        self.acknowledged: list[int] = []  # the places, in the order of the lines
        self.prefix = prefix
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._feed, self._listen)]
        for thread in self._threads:
            thread.start()

    def _feed(self) -> None:
        assert self.process.stdin is not None
        try:
            for n in range(1_000_000):
                self.process.stdin.write(f"{self.prefix}-{n}\n")
                self.process.stdin.flush()
                if n % AT_ONCE == AT_ONCE - 1:
                    time.sleep(PAUSE_S)
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


def check(reader: JournalReader, writers: Sequence[Writer]) -> list[str]:
    """As `check_texts`, of what a reader gets. Returns what is there."""
    found = texts(content(reader))
    check_texts(found, writers)
    return found


def check_texts(found: Sequence[str], writers: Sequence[Writer]) -> None:
    """Each writer's lines are a prefix of what it was fed, one writer's behind the other's; what it
    acknowledged is at the place it said."""
    expected = []
    for writer in writers:
        prefix = writer.prefix
        count = sum(text.startswith(f"{prefix}-") for text in found)
        expected += [f"{prefix}-{n}" for n in range(count)]
        assert [found[place - 1] for place in writer.acknowledged] == [
            f"{prefix}-{n}" for n in range(len(writer.acknowledged))
        ]
    assert found == expected


class Follower:
    """`truecut journal read --follow` as a process, and what it has printed."""

    def __init__(self, place: Sequence[str], *, log: str = "log") -> None:
        command = [sys.executable, "-m", "truecut", "journal", "read", *place, "--log", log]
        self.process = subprocess.Popen(
            [*command, "--follow", "--positions"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.read: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            position, text = line.rstrip("\n").split("\t")
            self.read.append((int(position.split("-")[1], 16), text))

    def wait_for(self, count: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Until it has read so many."""
        deadline = time.monotonic() + timeout_s
        while len(self.read) < count:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline, f"read {len(self.read)} of {count}"
            time.sleep(0.01)

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0
        self._thread.join()
