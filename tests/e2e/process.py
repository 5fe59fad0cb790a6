"""The command line as a user runs it: real processes that tests stop, kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.e2e.world import World
from tests.patience import PATIENCE_S

TRUECUT = str(Path(sys.executable).with_name("truecut"))


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


def run(world: World, *arguments: str) -> Finished:
    """`truecut run` on a world's pipeline, to its end."""
    return truecut("run", world.file, *arguments, env=_traced(world))


def running(world: World, **env: str) -> AbstractContextManager[Process]:
    """`truecut run` on a world's pipeline, in the background."""
    return started("run", world.file, env={**_traced(world), **env})


def _traced(world: World) -> dict[str, str]:
    return {"TRUECUT_TRACE": str(world.traces)}


def truecut(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Finished:
    """Run a command to its end."""
    done = subprocess.run(
        [TRUECUT, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class Process:
    """A command that is running, with everything it has started."""

    popen: subprocess.Popen[str]

    def tree(self) -> list[psutil.Process]:
        """The driver first, then its JVM and Python workers."""
        driver = psutil.Process(self.popen.pid)
        return [driver, *driver.children(recursive=True)]

    def workers(self, *, role: str) -> list[psutil.Process]:
        """Spark's Python workers, forked from a daemon for each role (`truecut.spark.session.python_of`)."""
        return [p for p in self.tree() if _is_worker(p, role)]

    def signal(self, number: signal.Signals) -> None:
        """To every process of it."""
        for process in self.tree():
            process.send_signal(number)

    def is_dead(self) -> bool:
        """Whether the driver has ended, in whatever way."""
        return self.popen.poll() is not None

    def kill(self) -> None:
        """kill -9, the driver alone: the rest has to notice by itself."""
        self.popen.kill()
        self.popen.wait(timeout=PATIENCE_S)

    def stop(self) -> Finished:
        """As Ctrl-C does."""
        self.popen.send_signal(signal.SIGINT)
        stdout, stderr = self.popen.communicate(timeout=PATIENCE_S)
        return Finished(self.popen.returncode, stdout, stderr)


@contextmanager
def started(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A command in the background; whatever is left of it is killed at the end of the block."""
    popen = subprocess.Popen(
        [TRUECUT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    process = Process(popen)
    try:
        yield process
    finally:  # also of a block that failed: what is left holds the pipes open
        for left in process.tree() if popen.poll() is None else []:
            with _gone():
                left.kill()
        if popen.poll() is None:
            popen.kill()
        popen.communicate()


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


def _is_worker(process: psutil.Process, role: str) -> bool:
    try:
        parent = process.parent()
        return parent is not None and process.name() == parent.name() == f"truecut-{role}"
    except psutil.NoSuchProcess:
        return False


def hold_at(armed: Path, point: str) -> Path:
    """Whoever comes next to this failpoint of `@armed` waits there while the file exists that this names; it
    comes when somebody does."""
    (armed / "new").write_text("hold")
    (armed / "new").rename(armed / point)
    return armed / f"{point}.held"
