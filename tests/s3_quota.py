"""A door in front of the object store that lets nothing more in while its owner's quota is used up.

S3Proxy knows no quotas; MinIO answers 507 `XMinioStorageFull` to whoever writes, and reads go on. Everything
else is passed on as it came, `Host` included, which the signature covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.s3_server import S3Server

_FULL = b"<Error><Code>XMinioStorageFull</Code><Message>full</Message></Error>"
_OF_THE_HOP = {"connection", "transfer-encoding", "content-length", "expect", "keep-alive"}


@dataclass
class Quota:
    """Reached at `endpoint` instead of the store's own."""

    endpoint: str = ""
    used_up: bool = False
    refused: int = 0


@contextmanager
def quota_of(store: S3Server) -> Iterator[Quota]:
    """Not used up until somebody says so."""
    quota = Quota()

    class Door(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if quota.used_up and self.command in ("PUT", "POST"):
                quota.refused += 1
                self._send(507, [], _FULL)
                return
            inner = HTTPConnection("127.0.0.1", store.port)
            inner.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _OF_THE_HOP:
                    inner.putheader(name, value)
            inner.putheader("Content-Length", str(len(body)))
            inner.endheaders(body)
            came = inner.getresponse()
            headers = [(n, v) for n, v in came.getheaders() if n.lower() not in _OF_THE_HOP]
            self._send(came.status, headers, came.read(), length=came.getheader("Content-Length"))
            inner.close()

        def _send(
            self, status: int, headers: list[tuple[str, str]], body: bytes, *, length: str | None = None
        ) -> None:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header(
                "Content-Length", length if self.command == "HEAD" and length else str(len(body))
            )
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            """Not on the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.daemon_threads = True
    quota.endpoint = f"127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield quota
    finally:
        server.shutdown()
        server.server_close()
