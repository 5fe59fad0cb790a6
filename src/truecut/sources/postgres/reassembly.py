"""Large transactions that the server sends while they run (protocol 2 and up), put back in commit order.

In: messages as they come, blocks of several open transactions between each other. Out: the form of a server
that does not stream: Begin, changes, Commit, one transaction after another. Promises: nothing of a
transaction is given out before its commit has come; nothing of an aborted subtransaction ever; a
transaction that is sent anew replaces what had come of it. A schema that was announced inside a
subtransaction stays announced when that aborts: the server does not send it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from truecut.sources.postgres import messages as wire
from truecut.sources.postgres.spool import Spool

_KEPT = wire.SCHEMA | {wire.ORIGIN}


@dataclass(frozen=True, slots=True)
class Whole:
    """A transaction that is known to have committed: its first and last message, and all between."""

    begin: bytes
    changes: Callable[[], Iterator[Sequence[bytes]]]
    commit: bytes
    size: int  # bytes, about
    close: Callable[[], None]


@dataclass(slots=True)
class _Open:
    spool: Spool
    aborted: set[bytes] = field(default_factory=set)

    def changes(self) -> Iterator[Sequence[bytes]]:
        for chunk in self.spool.chunks():
            yield [_plain(one) for one in chunk if one[1:5] not in self.aborted or one[0] in _KEPT]


class Streams:
    """Of one decoding session; after a new connection begin with a new one."""

    def __init__(self, spool: Callable[[], Spool] = Spool) -> None:
        self._spool = spool
        self._open: dict[int, _Open] = {}
        self._block: _Open | None = None  # the one whose block has begun

    def take(self, messages: Sequence[bytes]) -> Iterator[Sequence[bytes] | Whole]:
        """What can be given out by now, in order: messages that were not streamed, whole transactions."""
        done = 0
        for at, message in enumerate(messages):
            if message[0] not in wire.STREAMING:
                continue
            if at > done:
                yield from self._between(messages[done:at])
            done = at + 1
            yield from self._turn(message)
        if done < len(messages):
            yield from self._between(messages[done:])

    def close(self) -> None:
        """Forget what has not committed."""
        for one in self._open.values():
            one.spool.close()
        self._open.clear()
        self._block = None

    def _between(self, messages: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        if self._block is None:
            yield messages
        else:
            self._block.spool.add(messages)

    def _turn(self, message: bytes) -> Iterator[Whole]:
        kind = message[0]
        if kind == wire.STREAM_START:
            self._start(*wire.stream_start(message))
        elif kind == wire.STREAM_STOP:
            self._block = None
        elif kind == wire.STREAM_ABORT:
            self._abort(*wire.stream_abort(message))
        else:
            yield self._commit(message)

    def _start(self, xid: int, first: bool) -> None:
        if self._block is not None:
            raise wire.Unreadable("a block of a streamed transaction inside another")
        if first:
            self._forget(xid)
            self._open[xid] = _Open(self._spool())
        if xid not in self._open:
            raise wire.Unreadable("a streamed transaction without its first block")
        self._block = self._open[xid]

    def _abort(self, xid: int, gone: int) -> None:
        if gone == xid:
            self._forget(xid)
        elif xid in self._open:
            self._open[xid].aborted.add(gone.to_bytes(4, "big"))

    def _commit(self, message: bytes) -> Whole:
        first, last = wire.stream_commit(message)
        found = self._open.pop(first.xid, None)
        if found is None:
            raise wire.Unreadable("the commit of a streamed transaction of which nothing has come")
        spool = found.spool
        return Whole(first.message(), found.changes, last.message(), spool.bytes, spool.close)

    def _forget(self, xid: int) -> None:
        if (found := self._open.pop(xid, None)) is not None:
            found.spool.close()


def _plain(message: bytes) -> bytes:
    """Without the id of its (sub)transaction. An Origin has none."""
    return message if message[0] == wire.ORIGIN else message[:1] + message[5:]
