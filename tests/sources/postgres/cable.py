"""A cable to a server, which can be cut: new calls are refused, or everything stays away without a word."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Cable:
    """Whole at first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._lines: list[socket.socket] = []
        self._refuses = False
        self._open = threading.Event()
        self._open.set()
        self.swallowed = threading.Event()  # something was sent, by either side, that did not arrive
        self.refused = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self) -> None:
        """Every connection breaks, and no new one is made."""
        self.refused.clear()
        self._refuses = True
        lines, self._lines = self._lines, []
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._open.set()

    def fall_silent(self) -> None:
        """Nothing breaks, and nothing comes through."""
        self.swallowed.clear()
        self._open.clear()

    def mend(self) -> None:
        """What was under way in a silence arrives."""
        self._refuses = False
        self._open.set()

    def close(self) -> None:
        self.refuse()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                if self._refuses:
                    caller.close()
                    self.refused.set()
                    continue
                called = socket.create_connection(("127.0.0.1", self._port))
                self._lines += [caller, called]
                for one, other in ((caller, called), (called, caller)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if not self._open.is_set():
                    self.swallowed.set()
                    self._open.wait()
                other.sendall(data)
        for line in (one, other):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
