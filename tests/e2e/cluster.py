"""A real standalone Spark cluster on this machine, from the installed package: a master and workers.

One for all tests that want one (`tests/conftest.py`): they run in one process (`tests/sharing.py`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.patience import PATIENCE_S
from tests.ports import free_port


@dataclass(frozen=True, slots=True)
class Cluster:
    """`workers` are the processes that start executors; each has its executors as children."""

    url: str
    workers: tuple[subprocess.Popen[bytes], ...]

    def kill_worker(self, number: int) -> int:
        """kill -9 a worker with everything it runs; returns how many processes died."""
        worker = psutil.Process(self.workers[number].pid)
        doomed = [worker, *worker.children(recursive=True)]
        for process in doomed:
            process.kill()
        return len(doomed)

    def kill_executor(self) -> None:
        """kill -9 one executor, with its Python; its worker starts another."""
        executor = next(child for worker in self.workers for child in psutil.Process(worker.pid).children())
        for process in [executor, *executor.children(recursive=True)]:
            process.kill()

    def executors(self) -> int:
        """How many executors are running on it."""
        return sum(len(_children(worker.pid)) for worker in self.workers)


@contextmanager
def spark_cluster(folder: Path, *, workers: int) -> Iterator[Cluster]:
    """Start it on a free port; whatever is left of it is killed at the end."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    master = _start(folder, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    started: list[subprocess.Popen[bytes]] = []
    try:
        _wait_for(port)
        arguments = ("--cores", "2", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0")
        for number in range(workers):
            work = str(folder / f"worker-{number}")
            started.append(_start(folder, "worker.Worker", *arguments, "--work-dir", work, url))
        yield Cluster(url, tuple(started))
    finally:
        for process in (*started, master):
            for doomed in [*_children(process.pid), psutil.Process(process.pid)]:
                with_no_such(doomed)
            process.wait(timeout=PATIENCE_S)


def with_no_such(process: psutil.Process) -> None:
    """Kill it, if it is still there."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    log = (folder / f"{name}.log").open("ab")
    return subprocess.Popen(
        [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=log,
        stderr=log,
    )


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "the master did not start"
            time.sleep(0.2)
        else:
            return
