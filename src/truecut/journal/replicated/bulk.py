"""Frames in bulk, beside gRPC: a plain connection on which a node sends a range of a segment as it is stored.

A reader asks for it by a call (`node.bulk`), which is guarded as every call is, and gets a port, a ticket and
a proof, all good for this range, once and for a few seconds. It connects and shows the ticket; the node
answers with the proof, so that a stranger on that port is none of ours, and sends frames until the range is
over or something is wrong, and closes. Nothing is believed here that a call would not have to show: log,
writer, number and every checksum. What went wrong is asked for by a call. Only where the wire is not
encrypted: what is private travels by gRPC alone.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO

from truecut.errors import TruecutError
from truecut.journal.frame import HEADER_BYTES, Header, parse_header, read_records
from truecut.journal.record import Damaged, Record
from truecut.journal.replicated.wire import Message
from truecut.journal.scan import Piece, Run
from truecut.listen_address import Address

SECRET_BYTES = 32
TICKET_S = 10.0  # from the call until it is shown
SHOW_S = 5.0  # from the connection until it is shown
CONNECT_S = 2.0
STALL_S = 10.0  # without a byte, until the reader asks elsewhere
CONNECTIONS_MAX = 64
UNTAKEN_S = 60.0  # without a byte that the reader takes, until its place is somebody else's; it may ask again
_BUFFER_BYTES = 64 << 10  # small: a large payload is received where it stays

Pieces = Callable[[], Iterator[Piece]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Promised:
    pieces: Pieces
    proof: bytes
    until: float


class BulkServer:
    """A node's port for it, with a thread for each reader. A slow reader holds up nobody but its thread; one
    that takes nothing for long loses it."""

    def __init__(self, listen: Address) -> None:
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        self._listening = socket.create_server((listen.host, listen.port), family=family)
        self.port: int = self._listening.getsockname()[1]
        self._promised: dict[bytes, _Promised] = {}
        self._changing = threading.Lock()
        self._room = threading.Semaphore(CONNECTIONS_MAX)
        threading.Thread(target=self._accept, name="bulk", daemon=True).start()

    def promise(self, pieces: Pieces) -> Message:
        """What a reader needs to fetch this."""
        ticket, proof = secrets.token_bytes(SECRET_BYTES), secrets.token_bytes(SECRET_BYTES)
        now = time.monotonic()
        with self._changing:
            waiting = {key: one for key, one in self._promised.items() if one.until > now}
            while len(waiting) >= CONNECTIONS_MAX:
                del waiting[next(iter(waiting))]  # the oldest; who comes too late asks by call
            self._promised = {**waiting, ticket: _Promised(pieces, proof, now + TICKET_S)}
        return {"port": self.port, "ticket": ticket.hex(), "proof": proof.hex()}

    def close(self) -> None:
        """No more connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for one
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                if self._listening.fileno() < 0:
                    return
                time.sleep(0.1)  # no descriptor left, say
                continue
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), name="bulk", daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._send(connection)
        except (OSError, TruecutError):
            pass  # the reader is gone, or asks by call what is wrong
        except Exception:
            log.exception("a range of frames cannot be sent")
        finally:
            self._room.release()

    def _send(self, connection: socket.socket) -> None:
        connection.settimeout(SHOW_S)
        with connection.makefile("rb", buffering=SECRET_BYTES) as shown:
            promised = self._taken(shown.read(SECRET_BYTES))
        if promised is None:
            return
        connection.setblocking(False)
        _send_bytes(connection, promised.proof)
        for piece in promised.pieces():
            if isinstance(piece, Run):
                _send_run(connection, piece)
            else:
                _send_bytes(connection, piece)

    def _taken(self, ticket: bytes) -> _Promised | None:
        """Once."""
        with self._changing:
            found = self._promised.pop(ticket, None)
        return found if found is not None and found.until > time.monotonic() else None


def _send_bytes(connection: socket.socket, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[connection.send(rest) :]
        except BlockingIOError:
            _wait_for_reader(connection)


def _send_run(connection: socket.socket, run: Run) -> None:
    at, end = run.offset, run.offset + run.size
    while at < end:
        try:
            sent = os.sendfile(connection.fileno(), run.file.fileno(), at, end - at)
        except BlockingIOError:
            _wait_for_reader(connection)
            continue
        if not sent:
            raise OSError("the file is shorter than it was")
        at += sent


def _wait_for_reader(connection: socket.socket) -> None:
    """A slow one has its time: as long as it takes something."""
    waiting = select.poll()
    waiting.register(connection, select.POLLOUT)
    if not waiting.poll(UNTAKEN_S * 1000):
        raise TimeoutError("the reader takes nothing")


def fetch(host: str, told: Message) -> Iterator[tuple[Header, Iterator[Record]]]:
    """Every frame of what was promised, its records to be taken before the next one's. OSError when the
    connection breaks or stalls, Damaged when a frame is not what it should be, or is cut: a call tells more.
    """
    belongs = bytes.fromhex(told["log_id"]), told["epoch"]
    with closing(socket.create_connection((host, told["port"]), CONNECT_S)) as connection:
        connection.settimeout(STALL_S)
        connection.sendall(bytes.fromhex(told["ticket"]))
        with BufferedReader(connection.makefile("rb", buffering=0), _BUFFER_BYTES) as file:
            if not secrets.compare_digest(file.read(SECRET_BYTES), bytes.fromhex(told["proof"])):
                raise Damaged("proof")
            yield from _frames(file, belongs)


def _frames(file: BinaryIO, belongs: tuple[bytes, int]) -> Iterator[tuple[Header, Iterator[Record]]]:
    following: int | None = None
    while fixed := file.read(HEADER_BYTES):
        header = parse_header(fixed)
        if (header.log_id, header.epoch) != belongs or following not in (None, header.first):
            raise Damaged("order")
        yield header, _records(file, header)
        following = header.last + 1


def _records(file: BinaryIO, header: Header) -> Iterator[Record]:
    """They are taken outside: where they end because the connection does, that is said there."""
    try:
        yield from read_records(file, header)
    except OSError as error:
        raise Damaged("connection") from error
