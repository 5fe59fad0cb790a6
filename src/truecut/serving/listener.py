"""The HTTP side of a run: `/metrics`, `/healthz`, `/readyz`.

Promises: the loop never waits for it; a listener that others than this machine can reach asks for a token
(`Authorization: Bearer …`) before it tells a name or a number. Health without the token is one word.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from threading import Thread

from truecut.config.secret import Secret
from truecut.errors import ExitCode, TruecutError
from truecut.listen_address import Address
from truecut.runtime.run_report import View
from truecut.serving.frontiers import Frontiers
from truecut.serving.metrics import RunMetrics

NAMED_MAX = 20


class Told:
    """What may be asked for; the runner's loop brings it up to date."""

    def __init__(self, pipeline: str) -> None:
        self.metrics = RunMetrics(pipeline)
        self._frontiers = Frontiers(_now_ms())

    def update(self, view: View) -> None:
        """A new view."""
        self.metrics.view = view
        self._frontiers.update(view, now_ms=_now_ms())

    def healthy(self) -> bool:
        """The process works."""
        return self._frontiers.works(now_ms=_now_ms())

    def stuck(self) -> list[str]:
        """What does not move; nothing: ready."""
        return self._frontiers.stuck(now_ms=_now_ms())


@contextmanager
def listening(address: Address, told: Told, *, token: Secret | None) -> Iterator[Address]:
    """Serve while the block runs; gives the address with its true port."""
    server = _serve(address, told, token)
    thread = Thread(target=server.serve_forever, name="truecut-listen", daemon=True)
    thread.start()
    try:
        yield Address(address.host, int(server.server_address[1]))
    finally:
        server.shutdown()
        server.server_close()


def _serve(address: Address, told: Told, token: Secret | None) -> _Server:
    try:
        return _Server(address, told, token)
    except OSError as error:
        raise TruecutError(
            "TC5025",
            f"cannot listen on {address} ({error.strerror})",
            fix="Choose a port that is free, and an address of this machine, with --listen or `listen:`.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        ) from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: Address, told: Told, token: Secret | None) -> None:
        self.told = told
        self.token = token
        self.address_family = AF_INET6 if ":" in address.host else AF_INET
        super().__init__((address.host, address.port), _Answers)


class _Answers(BaseHTTPRequestHandler):
    """One request."""

    server: _Server

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/healthz":
                self._health(self.server.told.healthy(), [])
            case "/readyz":
                stuck = self.server.told.stuck()
                self._health(not stuck, stuck)
            case "/metrics" if self._may_know():
                self._answer(200, self.server.told.metrics.text(), "text/plain; version=0.0.4; charset=utf-8")
            case "/metrics":
                self._answer(401, b"a token is needed\n", "text/plain")
            case _:
                self._answer(404, b"there are /metrics, /healthz and /readyz\n", "text/plain")

    def _health(self, well: bool, stuck: list[str]) -> None:
        document: dict[str, object] = {"status": "ok" if well else "failing"}
        if stuck and self._may_know():
            document |= {"stuck": stuck[:NAMED_MAX], "stuck_count": len(stuck)}
        self._answer(200 if well else 503, json.dumps(document).encode() + b"\n", "application/json")

    def _may_know(self) -> bool:
        token = self.server.token
        if token is None:
            return True
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), token.reveal().encode())

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: they come every few seconds."""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
