"""One Python in which the slow imports are done, and from which the daemons of all roles are forked.

Spark starts a daemon for each role of worker, and forks workers from it. Each would spend seconds of CPU on
the same imports, one after another, once the JVM asks for it. On the driver's own machine they are done once,
while the JVM starts: what Spark starts as a daemon hands its arguments, environment and streams over to a
fork of this process, and stays only to be ended.

Promises: whoever cannot hand over goes on alone; the zygote ends with the driver, however that ends (its
stdin closes), and the daemons with the JVM, as Spark's own do.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from select import select

VARIABLE = "TRUECUT_ZYGOTE"
MODULES = "TRUECUT_WORKER_MODULES"  # those of the kinds that the pipeline names
_STREAMS = (0, 1, 2)
_GOING_ON = b"y"
_END_S = 10.0


# --- the driver's side --------------------------------------------------------------------------------


class Zygote:
    """The process, started at once; whoever connects meanwhile waits."""

    def __init__(self, modules: str = "") -> None:
        self._folder = tempfile.mkdtemp(prefix="truecut-zygote-")  # nobody else may enter it
        self.address = os.path.join(self._folder, "socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(self.address)
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "truecut.spark.zygote", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what it cannot do, the daemons do and say
                pass_fds=(listener.fileno(),),
                # as Spark's own daemons have it
                env={"OMP_NUM_THREADS": "1", **os.environ, MODULES: modules},
                start_new_session=True,  # Ctrl-C in a terminal does not reach it
            )
        _alive.add(self)

    def end(self) -> None:
        """May be called twice. Daemons that were forked end with their JVM."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_END_S)
        _alive.discard(self)
        shutil.rmtree(self._folder, ignore_errors=True)


_alive: set[Zygote] = set()  # one that nobody held would lose its stdin, and end


# --- the daemon's side --------------------------------------------------------------------------------


def hand_over() -> bool:
    """Let a fork of the zygote be the daemon that Spark has started here, and wait for its end; False where
    there is no zygote, or none that could."""
    address = os.environ.get(VARIABLE)
    if address is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(address)
            socket.send_fds(connection, [_GOING_ON], _STREAMS)
            wanted = {
                "python": sys.executable,
                "argv": sys.argv,
                "environ": dict(os.environ),
                "cwd": os.getcwd(),
            }
            connection.sendall(json.dumps(wanted).encode())
            connection.shutdown(socket.SHUT_WR)
            if not connection.recv(1):
                return False
        except OSError:
            return False
        with suppress(OSError):
            connection.recv(1)  # the end of the daemon ends the connection
    return True


# --- the zygote's side --------------------------------------------------------------------------------


def warm() -> None:
    """Import what workers need. Nothing here opens a connection or starts a thread: no fork has them."""
    for module in (
        "pandas",
        "pyarrow.compute",
        "pyspark.worker",
        "truecut.spark.source",
        "truecut.spark.wave.job",
    ):
        importlib.import_module(module)
    for module in filter(None, os.environ.get(MODULES, "").split(",")):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a worker collects after each task: what all of them share is left alone, and stays shared


def be_daemon() -> None:
    """Fork workers for Spark until it closes our stdin."""
    from pyspark.daemon import manager

    _be_called(os.environ.get("TRUECUT_ROLE", "reader"))
    manager()


def serve(listener: socket.socket) -> Callable[[], None] | None:
    """Fork a daemon for whoever asks, until the driver ends. A fork gets what it has to do."""
    warm()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        ready, _, _ = select([listener.fileno(), 0], [], [])
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return lambda: _stand_in_for(connection)
        connection.close()


def _stand_in_for(connection: socket.socket) -> None:
    _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
    text = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    wanted = json.loads(text)
    if wanted["python"] != sys.executable:
        return
    for number, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["environ"])
    sys.argv = wanted["argv"]
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [entry for entry in path if entry and entry not in sys.path]
    os.register_at_fork(after_in_child=connection.close)  # only the daemon's own end shall end it
    connection.sendall(_GOING_ON)
    be_daemon()


def _be_called(role: str) -> None:
    """What `ps` and `top` show: workers keep it."""
    with suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write(f"truecut-{role}")


def _main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    folder = os.path.dirname(listener.getsockname())
    stand_in = serve(listener)
    if stand_in is not None:
        stand_in()
    else:
        shutil.rmtree(folder, ignore_errors=True)  # a driver that was killed could not


if __name__ == "__main__":
    _main()
