"""A producer's connection to one replica of its segment: frames out, answers back.

Two threads of its own, because a node that hangs blocks whoever writes to it. A stream that is let go is not
waited for: its threads end when the node answers, dies or wakes up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pyarrow as pa
from pyarrow import flight

from truecut.errors import TruecutError
from truecut.journal.replicated.node_server import ANSWER, SENT, SMALL_BYTES, batch_of
from truecut.journal.replicated.wire import BROKEN, Message, Peer
from truecut.journal.security import Security

_Sending = tuple[
    bytes | None, int, int
]  # a frame, the index of its first entry, what is known to be committed


class ReplicaStream:
    """Calls back with each acknowledged index, and once when it is over."""

    def __init__(
        self,
        address: str,
        security: Security,
        command: Message,
        *,
        acknowledged: Callable[[int], None],
        over: Callable[[str], None],
    ) -> None:
        self._peer = Peer(address, security)
        self._command = command
        self._acknowledged = acknowledged
        self._over = over
        self._sending: SimpleQueue[_Sending | None] = SimpleQueue()
        threading.Thread(target=self._send, name=f"to {address}", daemon=True).start()

    def send(self, frame: bytes, *, index: int, known: int) -> None:
        """Soon, in order."""
        self._sending.put((frame, index, known))

    def publish(self, known: int) -> None:
        """What is committed, when nothing follows that could tell."""
        self._sending.put((None, 0, known))

    def let_go(self) -> None:
        """Nothing more is sent, and nobody waits for answers."""
        self._acknowledged = lambda _: None
        self._over = lambda _: None
        self._sending.put(None)

    def _send(self) -> None:
        try:
            writer, answers = self._peer.put(self._command)
            listening = threading.Thread(target=self._listen, args=(answers,), daemon=True)
            listening.start()
            while (sending := self._sending.get()) is not None:
                frame, index, known = sending
                told = SENT.pack(index, known)
                if frame is None or len(frame) <= SMALL_BYTES:
                    writer.write_metadata(pa.py_buffer(told + (frame or b"")))
                else:
                    writer.write_with_metadata(batch_of([frame]), pa.py_buffer(told))
            writer.done_writing()
            listening.join()  # closing while somebody listens would block both for good
            writer.close()
        except TruecutError as error:
            self._over(error.fault.code)
        except BROKEN as error:
            self._over(self._peer.failure(error).fault.code)
        finally:
            self._peer.close()

    def _listen(self, answers: flight.FlightMetadataReader) -> None:
        try:
            while (answer := answers.read()) is not None:
                code, last = ANSWER.unpack(answer.to_pybytes())
                if last:
                    self._acknowledged(last)
                if code:
                    self._over(f"answer {code}")
                    return
            self._over("ended")
        except BROKEN as error:
            self._over(self._peer.failure(error).fault.code)
