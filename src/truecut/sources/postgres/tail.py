"""Reading changes as they come: the streaming replication protocol, through libpq.

Promises: what is confirmed to the server is what the caller says is durable, and nothing else; large
transactions come while they run (protocol 2). The slot is this session's as long as it lives.
"""

from __future__ import annotations

import select
import struct
import time
from dataclasses import dataclass

from psycopg import pq
from psycopg.pq.abc import PGresult

from truecut.sources.postgres import faults, server
from truecut.sources.postgres.faults import identifier, literal
from truecut.sources.postgres.messages import lsn_text
from truecut.sources.postgres.server import Address, Identity, answering, connecting, parameters, promptly

GULP_S = 0.02  # a walsender's messages are cheaper by the dozen
STATUS_S = 5.0
SILENCE_S = 120.0  # of a server that is asked to answer as often as that
BYTES_MAX = 1 << 20  # taken at once, about

_DATA = struct.Struct(">cQQq")
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")
_EPOCH_US = 946_684_800_000_000  # PostgreSQL's times begin in 2000


@dataclass(frozen=True, slots=True)
class Heard:
    """What came: messages, and how far the server is. `idle_at`: all that committed up to there has come."""

    messages: list[bytes]
    server_lsn: int
    idle_at: int | None


class Tail:
    """A stream from the slot."""

    def __init__(self, address: Address, *, after: int, identity: Identity | None = None) -> None:
        """`identity`: of the server that was asked for everything else."""
        self._address = address
        self._pg = pq.PGconn.connect(parameters(address, replication="database").encode())
        self._server = after
        self._told_s = 0.0
        self._told = 0
        self._heard_s = time.monotonic()
        if self._pg.status != pq.ConnStatus.OK:
            raise connecting(address, self._pg.get_error_message())
        try:
            with (
                answering(address, "stream its changes"),
                promptly(self._pg.socket, within_s=server.ANSWER_S),
            ):
                self._require_same(identity)
                self._start(after)
        except BaseException:
            self.close()
            raise

    def _require_same(self, identity: Identity | None) -> None:
        if identity is None:
            return
        said = self._pg.exec_(b"IDENTIFY_SYSTEM")
        if said.status != pq.ExecStatus.TUPLES_OK:
            raise self._fault("tell who it is", said)
        system, timeline = said.get_value(0, 0) or b"", said.get_value(0, 1) or b"0"
        started = self._pg.exec_(server.STARTED.encode()).get_value(0, 0) or b""
        told = system.decode(), int(timeline), started.decode()
        if told != (identity.system, identity.timeline, identity.started):
            raise faults.exchanged()

    def _start(self, after: int) -> None:
        options = {
            "proto_version": "2",
            "publication_names": identifier(self._address.publication),
            "streaming": "on",
            "messages": "true",
        }
        said = ", ".join(f"{name} {literal(value)}" for name, value in options.items())
        slot = identifier(self._address.slot)
        self._pg.nonblocking = 0
        result = self._pg.exec_(f"START_REPLICATION SLOT {slot} LOGICAL {lsn_text(after)} ({said})".encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._fault("stream its changes", result)
        self._pg.nonblocking = 1

    def hear(self, *, durable: int, timeout_s: float) -> Heard:
        """What has come by now; waits a while when there is nothing."""
        with answering(self._address, "stream its changes"):
            return self._hear(durable, timeout_s)

    def _hear(self, durable: int, timeout_s: float) -> Heard:
        self.confirm(durable)
        messages: list[bytes] = []
        idle_at = self._drain(messages)
        if not messages and idle_at is None:
            select.select([self._pg.socket], [], [], timeout_s)
            time.sleep(GULP_S)
            self._pg.consume_input()
            idle_at = self._drain(messages, to_the_end=True)
        if messages or idle_at is not None:
            self._heard_s = time.monotonic()
        elif time.monotonic() - self._heard_s > SILENCE_S:
            raise faults.unreachable("its stream has fallen silent")
        return Heard(messages, self._server, idle_at)

    def confirm(self, durable: int, *, now: bool = False) -> None:
        """Tell the server how far the journal is: when it moved, and now and then."""
        passed_s = time.monotonic() - self._told_s
        if not now and passed_s < STATUS_S and (durable == self._told or passed_s < GULP_S):
            return
        now_us = time.time_ns() // 1_000 - _EPOCH_US
        asks = passed_s >= STATUS_S  # for an answer: whether anybody is there
        self._pg.put_copy_data(_STATUS.pack(b"r", durable, durable, durable, now_us, asks))
        self._pg.flush()
        self._told, self._told_s = durable, time.monotonic()

    def close(self) -> None:
        """The slot is free when the server has noticed."""
        self._pg.finish()

    def _drain(self, messages: list[bytes], *, to_the_end: bool = False) -> int | None:
        """Whatever is at hand; `to_the_end`: also what libpq, which takes 16 KiB, has not taken in yet.
        Returns the place of a keepalive that nothing has followed."""
        idle_at: int | None = None
        taken = 0
        while taken < BYTES_MAX:
            size, data = self._pg.get_copy_data(1)
            if size == 0:
                if not to_the_end or not select.select([self._pg.socket], [], [], 0)[0]:
                    break
                self._pg.consume_input()
                continue
            if size < 0:
                raise self._fault("go on streaming", self._pg.get_result())
            taken += size
            kind = data[0:1].tobytes()
            if kind == b"w":
                self._server = max(self._server, _DATA.unpack_from(data)[2])
                messages.append(data[_DATA.size :].tobytes())
                idle_at = None
            elif kind == b"k":
                idle_at = self._keepalive(data)
        return idle_at

    def _keepalive(self, data: memoryview) -> int:
        _, place, _, wants_answer = _KEEPALIVE.unpack_from(data)
        self._server = max(self._server, place)
        if wants_answer:
            self.confirm(self._told, now=True)
        return int(place)

    def _fault(self, what: str, result: PGresult | None = None) -> Exception:
        state = result.error_field(pq.DiagnosticField.SQLSTATE) if result is not None else None
        code = state.decode() if state else ""
        if code == "55006":
            return faults.slot_in_use(self._address.slot, None)
        return faults.failed(what, code) if code else faults.unreachable("the stream ended")
