"""A coordinator and log nodes as real processes, on free ports, with folders of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S
from tests.ports import free_port
from truecut.errors import TruecutError
from truecut.journal.replicated.wire import Peer
from truecut.journal.security import Security


class Process:
    """One of them: it can be killed, stopped, and started again on the same folder and port."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self._arguments = [sys.executable, "-m", "truecut", "journal", *arguments]
        self._log = log
        self._environment = environment
        self.running: subprocess.Popen[bytes] | None = None
        self.started = 0

    def start(self, **environment: str) -> None:
        self.started += 1
        with self._log.open("ab") as log:
            self.running = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment, **environment},
            )

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running.wait()

    def signal(self, number: int) -> None:
        assert self.running is not None
        self.running.send_signal(number)

    def end(self) -> int:
        """Asked to stop; its exit code."""
        assert self.running is not None
        self.running.send_signal(signal.SIGCONT)
        self.running.terminate()
        return self.running.wait(PATIENCE_S)

    def said(self) -> str:
        return self._log.read_text()

    def listens(self) -> bool:
        """Whether the process that was started last does."""
        return self.said().count("listens on") == self.started


class Proxy:
    """A cable to a port, which can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks, and no new one is made."""
        self._whole = False
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open = []

    def mend(self) -> None:
        self._whole = True

    def _accept(self) -> None:
        while True:
            caller, _ = self._listening.accept()
            try:
                if not self._whole:
                    raise OSError("cut")
                called = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                caller.close()
                continue
            self._open += [caller, called]
            for one, other in ((caller, called), (called, caller)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Cluster:
    """Three nodes, unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        options: Sequence[str] = (),
        coordinator_options: Sequence[str] = (),
        security: Security | None = None,
        proxied: bool = False,
        **environment: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.security = security or Security()
        self.address = f"127.0.0.1:{free_port()}"
        listen = ["--data", str(folder / "c"), "--listen", self.address]
        self.coordinator = Process(
            ["coordinate", *listen, *coordinator_options, *options], folder / "c.txt", environment
        )
        self.ports = [free_port() for _ in range(nodes)]
        self.proxies = [Proxy(port) for port in self.ports] if proxied else []
        self.nodes = [
            Process(
                ["serve", "--data", str(folder / f"n{n}"), "--listen", f"127.0.0.1:{port}"]
                + ["--coordinator", self.address, *options]
                + (["--advertise", self.proxies[n].address] if proxied else []),
                folder / f"n{n}.txt",
                environment,
            )
            for n, port in enumerate(self.ports)
        ]

    @staticmethod
    def with_token(folder: Path, token: Path) -> Cluster:
        """One whose processes want a token, which is in that file."""
        return Cluster(folder, options=["--token-file", str(token)], security=Security.read(token_file=token))

    def start(self) -> Cluster:
        for process in (self.coordinator, *self.nodes):
            process.start()
        self.wait_for(
            lambda status: sum(node["state"] == "alive" for node in status["nodes"]) == len(self.nodes)
        )
        return self

    def status(self) -> dict[str, Any]:
        return self.ask("coordinator.status", {})

    def segments(self, log: str = "log") -> list[dict[str, Any]]:
        """Those that hold something, as the coordinator describes them."""
        question = {"log": log, "entry": 1, "newer_than": -1, "wait_s": 0}
        return list(self.ask("coordinator.segments", question)["segments"])

    def ask(self, action: str, question: dict[str, Any]) -> dict[str, Any]:
        peer = Peer(self.address, self.security)
        try:
            return peer.ask(action, question)
        finally:
            peer.close()

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], *, timeout_s: float = PATIENCE_S) -> None:
        """Until the coordinator's status is so."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if condition(status := self.status()):
                    return
            except TruecutError as error:
                status = {"error": str(error)}
            assert time.monotonic() < deadline, (status, self.said())
            time.sleep(0.05)

    def node_at(self, address: str) -> int:
        """Which of the nodes listens there."""
        return self.ports.index(int(address.rpartition(":")[2]))

    def said(self) -> str:
        return "".join(process.said() for process in (self.coordinator, *self.nodes))

    def stop(self) -> None:
        for process in (*self.nodes, self.coordinator):
            if process.running is not None and process.running.poll() is None:
                process.end()
        for proxy in self.proxies:
            proxy.cut()
