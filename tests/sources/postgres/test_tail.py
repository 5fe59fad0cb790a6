"""The stream takes what there is, not what libpq takes in at a time."""

from __future__ import annotations

import fcntl
import struct
import termios
import time

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.sources.postgres.shop import Shop
from truecut.sources.postgres import server as asking
from truecut.sources.postgres.tail import BYTES_MAX, Tail

LIBPQ_BYTES = 16_384


def test_whatever_has_come_is_taken_at_once(postgres: PostgresServer) -> None:
    """Not 16 KiB in each gulp's pause, which would be some five thousand changes a second; and no more than
    is good for the memory."""
    shop = Shop(postgres, "tailed")
    with shop.connect() as writer:
        writer.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (shop.slot,))
        writer.commit()
        for _ in range(40):
            writer.execute("SELECT pg_logical_emit_message(true, 'tail', repeat('x', 4000))")
            writer.commit()
    tail = Tail(shop.address, after=0, identity=asking.identify(shop.address))
    try:
        until_s = time.monotonic() + PATIENCE_S
        while _waiting(tail) <= 4 * LIBPQ_BYTES:
            assert time.monotonic() < until_s, "the server has sent nothing"
            time.sleep(0.01)
        # The first time perhaps only what libpq has already.
        heard = [tail.hear(durable=0, timeout_s=1.0).messages for _ in range(2)]
        taken = max(sum(map(len, messages)) for messages in heard)
        assert 3 * LIBPQ_BYTES < taken < 2 * BYTES_MAX
    finally:
        tail.close()


def _waiting(tail: Tail) -> int:
    """Bytes that the socket has for us."""
    told = fcntl.ioctl(tail._pg.socket, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", told)[0])
