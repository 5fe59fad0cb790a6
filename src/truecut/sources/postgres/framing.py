"""How a payload of the codec `pgoutput/1` holds messages: as PostgreSQL sent them, after their lengths.

    number of messages n (u32) | n lengths (u32) | the n messages

All numbers are little-endian. The messages are whole transactions in commit order, or consecutive parts of
one: Begin, its changes, Commit, in the form that is not streamed and with values as text. So no message
carries the transaction id that streamed ones do, and nothing of an aborted subtransaction is there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CODEC = "pgoutput/1"

_COUNT = struct.Struct("<I")
_LENGTH = np.dtype("<u4")

Offsets = npt.NDArray[np.int64]


def encode(messages: Sequence[bytes]) -> bytes:
    """One payload of these messages."""
    lengths = np.fromiter(map(len, messages), _LENGTH, len(messages))
    return b"".join((_COUNT.pack(len(messages)), lengths.tobytes(), *messages))


def decode(payload: bytes) -> tuple[Offsets, bytes]:
    """Where the messages begin, with the end of the last one, and the bytes that this counts in: the payload
    itself, so that nothing is copied. ValueError where the bytes are anything else."""
    if len(payload) < _COUNT.size:
        raise ValueError("it ends before the number of its messages")
    (count,) = _COUNT.unpack_from(payload)
    first = _COUNT.size + count * _LENGTH.itemsize
    if len(payload) < first:
        raise ValueError("it ends in the middle of the lengths of its messages")
    offsets = np.full(count + 1, first, np.int64)
    offsets[1:] += np.cumsum(np.frombuffer(payload, _LENGTH, count, _COUNT.size), dtype=np.int64)
    if offsets[-1] != len(payload):
        raise ValueError(f"its messages end at byte {offsets[-1]}, not where it does, at {len(payload)}")
    return offsets, payload
