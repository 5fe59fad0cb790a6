"""A log node's process: appends as streams, reads as streams, questions as actions; and its heartbeat.

Each stream of appends has two threads: one takes frames from the network, one writes what has come since it
last looked as one frame, syncs, and answers (group commit).
"""

from __future__ import annotations

import logging
import os
import queue
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyarrow import flight

from truecut.errors import ExitCode, Fault, Retry, TruecutError
from truecut.journal import disk
from truecut.journal import faults as journal_faults
from truecut.journal.frame import APPEND_HEADS_BYTES_MAX, decode
from truecut.journal.record import Damaged
from truecut.journal.replicated import faults, fields
from truecut.journal.replicated.bulk import BulkServer
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.replica import Append, StoredReplica
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import BROKEN, FRAMES, Message, Peer, Server, message_of
from truecut.journal.security import Security
from truecut.listen_address import Address

HEARTBEAT_S = 0.2
PATIENCE_S = 5.0  # for a place that the node itself has left
SETTLE_S = 0.02  # until the mark of a segment that has gone quiet is durable, too
GROUP_BYTES_MAX = 8 << 20
PENDING_MAX = 16
LOOK_S_MAX = 30.0
BATCH_BYTES = 1 << 20  # of frames sent at once to a reader

# Index of the first entry (0: none), how many are known to be committed. A small frame follows at once: it
# need not be made a batch of. A large one is the batch, which is not copied.
SENT = struct.Struct("<QQ")
SMALL_BYTES = 16 << 10
ANSWER = struct.Struct("<BQ")  # what became of it, up to which entry
ANSWERS = {"appended": 0, "had already": 0, "closed": 1, "gap": 2, "full": 3}

log = logging.getLogger(__name__)


class NodeServer(Server):
    """The node, on the wire."""

    def __init__(self, node: Node, listen: Address, security: Security, *, bulk_port: int = 0) -> None:
        self._node = node
        actions = {"node.fence": self._fence, "node.end": self._end, "node.copy": self._copy}
        asked = {"node.look": self._look, "node.bulk": self._promise}
        super().__init__("node", listen, security, {**actions, **asked})
        self._bulk = None if security.encrypted else _bulk_server(Address(listen.host, bulk_port))

    def shutdown(self) -> None:
        """No more of it."""
        if self._bulk is not None:
            self._bulk.close()
        super().shutdown()

    def answer(self, act: Callable[[], Any]) -> Any:
        """A disk that fails is the end of the node; one that is full is said so."""

        def on_disk() -> Any:
            try:
                return act()
            except OSError as error:
                raise self._node.failed(error) from error

        try:
            return super().answer(on_disk)
        except flight.FlightServerError as error:
            if isinstance(error.__cause__, TruecutError) and error.__cause__.fault.retry is Retry.FATAL:
                die(error.__cause__)
            raise

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """A producer's appends to one segment."""
        self.answer(lambda: self._take(message_of(descriptor.command or b"null"), reader, writer))

    def _take(self, command: Message, reader: Any, writer: Any) -> None:
        home = self._home(command)
        replica = self._node.replica_for(home)
        with replica.written_to():
            self._take_all(home, _Committing(self._node, replica, writer), reader)

    def _take_all(self, home: Home, committing: _Committing, reader: Any) -> None:
        committing.start()
        try:
            while True:
                committing.take(*_append_of(home, reader.read_chunk()))
        except StopIteration:
            pass
        except Damaged as damage:
            raise faults.bad_frame(str(damage)) from damage
        except pa.ArrowInvalid as error:
            raise faults.bad_frame("not a stream of frames") from error
        except BROKEN:
            pass  # the producer is gone
        finally:
            committing.end()

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Frames of one segment."""
        frames = self.answer(lambda: self._frames(message_of(ticket.ticket)))
        return flight.GeneratorStream(FRAMES, self._batches(frames))

    def _frames(self, asked: Message) -> Iterator[bytes]:
        key = _key(asked)
        after, upto = fields.number(asked, "after"), fields.number(asked, "upto")
        if fields.optional_flag(asked, "heads"):
            return self._node.heads(key, after=after, upto=upto)
        return self._node.read(key, after=after, upto=upto, withheld=fields.optional_flag(asked, "withheld"))

    def _batches(self, frames: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        gathered: list[bytes] = []
        size = 0
        while (frame := self.answer(lambda: next(frames, None))) is not None:
            gathered.append(frame)
            size += len(frame)
            if size >= BATCH_BYTES:
                yield batch_of(gathered)
                gathered, size = [], 0
        if gathered:
            yield batch_of(gathered)

    def _promise(self, asked: Message) -> Message:
        """Frames of one segment, on a connection of their own."""
        if self._bulk is None:
            raise faults.wrong_role("node", "node.bulk")
        bounds = {"after": fields.number(asked, "after"), "upto": fields.number(asked, "upto")}
        home, pieces = self._node.pieces(_key(asked), **bounds)
        return {"log_id": home.log_id, "epoch": home.token, **self._bulk.promise(pieces)}

    def _home(self, asked: Message) -> Home:
        """Which segment; only what is meant for this very node: another one may have listened here."""
        home = fields.home(asked)
        if fields.text(asked, "node") != self._node.id:
            raise faults.another_node(home.log, home.segment)
        return home

    def _fence(self, asked: Message) -> Message:
        return {"length": self._node.fence(self._home(asked))}

    def _end(self, asked: Message) -> Message:
        return {"end": self._node.end(self._home(asked), end=fields.number(asked, "end"))}

    def _copy(self, asked: Message) -> Message:
        made = self._node.copy(
            self._home(asked),
            source=fields.address(asked, "source"),
            length=fields.number(asked, "length"),
            sealed=fields.flag(asked, "sealed"),
        )
        return {"length": made}

    def _look(self, asked: Message) -> Message:
        beyond = fields.number(asked, "beyond", least=-1)
        wait_s = fields.seconds(asked, "wait_s", most=LOOK_S_MAX)
        return asdict(self._node.look(_key(asked), beyond=beyond, wait_s=wait_s))


class _Committing(threading.Thread):
    """Writes what a stream brings, in groups, and answers."""

    def __init__(self, node: Node, replica: StoredReplica, writer: Any) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._replica = replica
        self._writer = writer
        self._pending: queue.SimpleQueue[tuple[Append, int] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(PENDING_MAX)
        self._over = False

    def take(self, append: Append, size: int) -> None:
        """Waits while too much is pending."""
        if not self._over:
            self._room.acquire()
            self._pending.put((append, size))

    def end(self) -> None:
        """Once everything that came has been dealt with."""
        self._pending.put(None)
        self.join()

    def run(self) -> None:
        settled = True
        while True:
            try:
                first = self._pending.get(timeout=None if settled else SETTLE_S)
            except queue.Empty:
                self._settle()
                settled = True
                continue
            group, last = self._group(first)
            if group and not self._over:
                settled = not self._commit(group) and settled
            if group:
                self._room.release(len(group))
            if last:
                self._settle()
                return

    def _group(self, first: tuple[Append, int] | None) -> tuple[list[Append], bool]:
        group: list[Append] = []
        size = 0
        found = first
        while found is not None:
            group.append(found[0])
            size += found[1]
            if size >= GROUP_BYTES_MAX:
                return group, False
            try:
                found = self._pending.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _commit(self, group: list[Append]) -> bool:
        """Whether something was written."""
        appends = [append for append in group if append.index]
        try:
            if appends:
                last, taken = self._replica.append(appends)
                self._answer(ANSWERS[taken], last)
            self._replica.know(group[-1].known)
        except OSError as error:
            self._node.failed(error)
            self._answer(ANSWERS["full"], 0)
        except TruecutError as error:
            if error.fault.retry is Retry.FATAL:
                die(error)
            self._answer(ANSWERS["closed"], 0)
        except (
            Exception
        ):  # a fault of ours: its producer goes on elsewhere, and does not wait for this thread
            log.exception("a replica of %s cannot be written to", self._replica.home.log)
            self._answer(ANSWERS["closed"], 0)
        return bool(appends)

    def _settle(self) -> None:
        try:
            self._replica.settle()
        except TruecutError as error:
            die(error)

    def _answer(self, code: int, last: int) -> None:
        try:
            if last:
                self._writer.write(pa.py_buffer(ANSWER.pack(0, last)))
            if code:
                self._over = True
                self._writer.write(pa.py_buffer(ANSWER.pack(code, last)))
        except BROKEN:
            self._over = True  # the producer is gone


class Heartbeat(threading.Thread):
    """Tells the coordinator that this node lives, and hears what it no longer needs to keep."""

    def __init__(self, node: Node, *, address: str, coordinator: str, security: Security) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._address = address
        self._peer = Peer(coordinator, security)
        self._instance = str(uuid.uuid4())
        self._stopping = threading.Event()
        self._told_all = False  # a coordinator that was started anew has to hear everything again
        self.refused: TruecutError | None = None
        self.hindrance: Fault | None = None  # why the coordinator does not hear of it
        self.heard = threading.Event()  # the coordinator has answered

    def run(self) -> None:
        patience = time.monotonic() + PATIENCE_S  # the one before this may count as alive for a moment
        while not self._stopping.wait(HEARTBEAT_S if self.heard.is_set() else HEARTBEAT_S / 4):
            try:
                self.beat()
                self.hindrance = None
            except disk.SyncFailed as error:
                die(journal_faults.failed(self._node.folder, error.strerror or "unknown reason"))
            except OSError as error:  # of its own disk; the next one may find it better
                self.hindrance = journal_faults.failed(self._node.folder, error.strerror or "unknown").fault
            except TruecutError as error:
                self.hindrance, self._told_all = error.fault, False
                patient = error.fault.code == faults.NODE_TWICE and time.monotonic() < patience
                if error.fault.retry is not Retry.RETRYABLE and not patient:
                    self.refused = error
                    self.heard.set()
                    return

    def beat(self) -> None:
        """Once."""
        node = self._node
        told = {
            "node": node.id,
            "cluster": node.cluster,
            "address": self._address,
            "instance": self._instance,
        }
        found: Message = {"damaged": node.damaged(), "abandoned": node.abandoned(), "full": node.full()}
        if not self._told_all:
            found["has"] = node.has()
        answer = self._peer.ask("coordinator.heartbeat", {**told, **found})
        node.join(answer["cluster"])
        node.drop(answer["trimmed"])
        node.forget((log, segment) for log, segment in answer["unneeded"])
        self._told_all = True
        self.heard.set()

    def stop(self) -> None:
        """No more of it."""
        self._stopping.set()


def batch_of(frames: list[bytes]) -> pa.RecordBatch:
    """Frames for the wire; a single one without copying it. (`pa.array` would import pandas where it is
    installed: seconds, and tens of megabytes, for each node.)"""
    ends = accumulate(map(len, frames), initial=0)
    offsets = pa.py_buffer(struct.pack(f"<{len(frames) + 1}q", *ends))
    data = pa.py_buffer(frames[0] if len(frames) == 1 else b"".join(frames))
    column = pa.Array.from_buffers(pa.large_binary(), len(frames), [None, offsets, data])
    return pa.record_batch([column], schema=FRAMES)


def _bulk_server(listen: Address) -> BulkServer:
    try:
        return BulkServer(listen)
    except OSError as error:
        raise faults.cannot_listen(str(listen)) from error


def _append_of(home: Home, chunk: Any) -> tuple[Append, int]:
    """What a producer sent, and its size; Damaged when it is not exactly one frame for its place, or less.

    How much is committed (`known`) is its producer's word: a node alone cannot know what the others have. It
    is never taken to be more than what is here.
    """
    if chunk.app_metadata is None or chunk.app_metadata.size < SENT.size:
        raise Damaged("metadata")
    told = memoryview(chunk.app_metadata)
    index, known = SENT.unpack(told[: SENT.size])
    small, batch = told[SENT.size :], chunk.data
    if batch is None or not batch.num_rows:
        if not index and not small:
            return Append(0, (), known), 0
        frame = small
    elif small or batch.schema != FRAMES or batch.num_rows != 1 or batch.column(0).null_count:
        raise Damaged("not one frame")
    else:
        frame = memoryview(batch.column(0)[0].as_buffer())
    header, records = decode(frame)
    if header.heads_bytes > APPEND_HEADS_BYTES_MAX:
        raise Damaged("size")
    if (header.log_id, header.first, header.epoch) != (home.start.log_id, home.first + index, home.token):
        raise Damaged("place")
    return Append(index, records, known), len(frame)


def _key(asked: Message) -> tuple[str, int]:
    return fields.log_name(asked), fields.number(asked, "segment", most=fields.SEGMENT_MAX)


def die(error: TruecutError) -> None:
    """What is on the disk is not known any more: only a new process, which reads it anew, may answer."""
    log.error("%s", error)
    os._exit(ExitCode.FAILED)
