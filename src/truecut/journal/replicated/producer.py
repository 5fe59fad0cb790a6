"""The replicated journal, for its one writer: every record goes to all replicas of the open segment.

One thread decides, by the steps of `core/segment_log.py`: it takes what was submitted, sends it, and answers
when all replicas have it on disk. When one of them fails, hangs or is closed, the segment ends with what is
committed, and the rest is sent again, into a segment on other nodes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import TypeVar

from truecut.core import segment_log as core
from truecut.errors import Fault, TruecutError, require
from truecut.journal import faults as journal_faults
from truecut.journal.contract import Entry, Outline
from truecut.journal.frame import size_of, whole
from truecut.journal.record import Record
from truecut.journal.replicated import faults
from truecut.journal.replicated.patient_peer import PatientPeer
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.stream import ReplicaStream
from truecut.journal.replicated.wire import Message
from truecut.journal.security import Security
from truecut.journal.submission import Submission, position_after
from truecut.model.position import Position

REPLICAS = 2
SEGMENT_BYTES_MAX = 64 << 20
CHUNK_BYTES_MAX = 1 << 20  # of small submissions sent together
CHUNK_BYTES_ENOUGH = 128 << 10  # to be sent whatever is on its way
CHUNKS_ON_THE_WAY = 4  # small ones; then what is submitted waits and is sent together
SUBMITTED_BYTES_MAX = 64 << 20
ANSWER_TIMEOUT_S = 2.0  # of a replica that has something to write
PUBLISH_S = 0.005  # until the committed position of a log that has gone quiet is told to the nodes
CLOSE_S = 10.0  # for what was submitted to be committed, once the journal is closed

_T = TypeVar("_T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Submissions that are sent, and committed, together."""

    submissions: list[Submission]
    count: int  # of records
    size: int


class ReplicatedJournal:
    """A log on several nodes, opened for writing. Whoever opens it takes it over."""

    def __init__(
        self,
        coordinator: str,
        log: str,
        *,
        security: Security | None = None,
        replicas: int = REPLICAS,
        bytes_max: int | None = None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._security = security or Security()
        self._coordinator = PatientPeer(coordinator, self._security)
        self._log = log
        self._bytes_max = bytes_max
        self._kept_bytes = 0  # on each replica, without the open segment
        self._segment_bytes_max = segment_bytes_max
        self._answer_timeout_s = answer_timeout_s
        self._reader = ReplicatedReader(coordinator, log, security=self._security)
        granted = self._coordinator.granted({"log": log, "replicas": replicas})
        self._log_id = granted["log_id"]
        self._state = core.granted(token=granted["token"])
        self._after = granted["last"]  # the segment behind which the next one comes
        self._closing_end: int | None = None
        self._suspects: set[str] = set()
        self._streams: dict[str, ReplicaStream] = {}
        self._first = 0  # entries before the segment
        self._sent_bytes = 0  # to the segment
        self._sent: deque[tuple[int, _Chunk]] = deque()  # with the index of its last entry
        self._submitted: deque[Submission] = deque()
        self._queued_bytes = 0  # submitted and not yet sent
        self._submitted_bytes = 0  # and not yet committed
        self._last: Position | None = None  # of what was submitted
        self._committed: Position | None = None
        self._changed = threading.Condition()
        self._ready = self._closing = False
        self._closing_at = 0.0
        self._failed_nodes: dict[str, str] = {}
        self._progress_at = 0.0
        self._published = 0
        self._resting = False  # the deciding thread, until something happens
        self._waiting = 0  # threads that want to submit
        self._broken: TruecutError | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # --- for everybody ---

    def head(self) -> Position | None:
        """The last committed position."""
        with self._changed:
            self._wait_until_ready()
            return self._committed

    def oldest(self) -> Position | None:
        """The first position that is still there."""
        return self._reader.oldest()

    def read(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Entry]:
        """The committed records in `(after, upto]`; what this writer was told is committed, among them."""
        head = self.head()
        if head is not None:
            last = head.place if upto is None else min(upto.place, head.place)
            yield from self._reader.read_committed(after=after, last=last)

    def heads(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Outline]:
        """The same without payloads."""
        head = self.head()
        if head is not None:
            last = head.place if upto is None else min(upto.place, head.place)
            yield from self._reader.heads_committed(after=after, last=last)

    def size(self, *, after: Position | None = None) -> int:
        """How many bytes each replica keeps of the records behind a position, in whole segments."""
        return self._reader.size(after=after)

    def wait(self, *, after: Position | None, timeout_s: float) -> Position | None:
        """The head, as soon as it is behind `after`."""
        return self._reader.wait(after=after, timeout_s=timeout_s)

    def hindrance(self) -> Fault | None:
        """Why appends wait, while they do."""
        return self._coordinator.hindrance

    def append(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Position:
        """Durable on all replicas when it returns."""
        return self.submit(records, expected_last=expected_last).result()

    def submit(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Future[Position]:
        """Append; answered when durable."""
        require(len(records) > 0, "an append holds a record")
        size = size_of(records)
        submission = Submission(records, size, Future())
        with self._changed:
            self._wait_until_ready()
            self._wait_for_room()
            if self._stopped:
                raise self._broken or faults.taken_over(self._log)
            if expected_last is not None and expected_last != self._last:
                raise journal_faults.moved_on(expected=expected_last, last=self._last)
            if self._bytes_max is not None and self._bytes() + size > self._bytes_max:
                raise journal_faults.full(self._log, bytes_max=self._bytes_max)
            self._last = position_after(self._last, records)
            self._submitted.append(submission)
            self._queued_bytes += size
            self._submitted_bytes += size
            if self._at_ease():
                self._send(self._next_chunk())  # at once, without waking anybody
            else:
                self._changed.notify_all()
        return submission.answer

    def trim(self, *, before: Position) -> None:
        """Records before this one are no longer needed."""
        request = {"log": self._log, "token": self._state.token, "before": before.place}
        self._coordinator.ask("coordinator.trim", request)
        self._measure()

    def close(self) -> None:
        """Write what was submitted, say where the segment ends, let go; once is enough."""
        with self._changed:
            if self._closing:
                return
            self._closing, self._closing_at = True, time.monotonic()
            self._changed.notify_all()
        self._thread.join()
        for stream in self._streams.values():
            stream.let_go()
        self._reader.close()
        self._coordinator.close()

    def _wait_for_room(self) -> None:
        self._waiting += 1
        self._changed.wait_for(lambda: self._submitted_bytes < SUBMITTED_BYTES_MAX or self._stopped)
        self._waiting -= 1

    def _wait_until_ready(self) -> None:
        self._changed.wait_for(lambda: self._ready or self._stopped)
        if self._broken is not None:
            raise self._broken

    @property
    def _stopped(self) -> bool:
        return self._closing or self._broken is not None

    def _bytes(self) -> int:
        return self._kept_bytes + self._sent_bytes + self._queued_bytes

    def _measure(self) -> None:
        """What the log keeps, where that is bounded."""
        if self._bytes_max is not None:
            kept = self._reader.size()
            with self._changed:
                self._kept_bytes = max(0, kept - self._sent_bytes)

    # --- the deciding thread ---

    def _run(self) -> None:
        try:
            self._settle()
            while self._wait_for_work():
                if self._state.phase == "asking" and not self._sent and not self._submitted:
                    self._tell_end()
                elif self._state.phase == "asking":
                    self._ask_for_segment()
                elif not self._move():
                    self._give_up()
            self._finish()
        except TruecutError as error:
            self._break(error)
        except Exception as error:  # a fault of ours: nobody may wait for a thread that is gone
            log.exception("the log %s cannot go on", self._log)
            self._break(journal_faults.writer_failed(self._log, type(error).__name__))

    def _settle(self) -> None:
        """Where the log ends, now that nobody else writes to it."""
        answer = self._ask("coordinator.settled", {}, until=lambda: self._closing)
        if answer is None:
            return
        entries = answer["entries"]
        head = self._persistently(lambda: self._reader.head(entries=entries)) if entries else None
        self._persistently(self._measure)
        with self._changed:
            self._last = self._committed = head
            self._ready = True
            self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        """False at the end: everything is committed, or nobody wants it any more."""
        with self._changed:
            while True:
                if self._closing and not self._submitted and not self._sent:
                    return False
                if self._out_of_time():
                    raise faults.unfinished(self._log)
                if self._state.phase == "asking":
                    if self._submitted or self._sent or self._closing_end is not None:
                        return True
                    self._changed.wait()
                    continue
                if self._failed_nodes or self._late() or self._sendable():
                    return True
                if self._published < self._state.done:
                    quiet_s = time.monotonic() - self._progress_at
                    if quiet_s >= PUBLISH_S:
                        return True
                    self._changed.wait(PUBLISH_S - quiet_s)
                else:
                    self._resting = True
                    self._changed.wait(self._answer_timeout_s / 4)
                    self._resting = False

    def _out_of_time(self) -> bool:
        return self._closing and time.monotonic() > self._closing_at + CLOSE_S

    def _at_ease(self) -> bool:
        """Nothing is in the way, and nothing on its way."""
        writing = self._state.phase == "writing" and not self._failed_nodes and not self._sent
        return writing and len(self._submitted) == 1 and self._sent_bytes < self._segment_bytes_max

    def _sendable(self) -> bool:
        return bool(self._submitted) and (
            len(self._sent) < CHUNKS_ON_THE_WAY or self._queued_bytes >= CHUNK_BYTES_ENOUGH
        )

    def _late(self) -> bool:
        return bool(self._sent) and time.monotonic() - self._progress_at > self._answer_timeout_s

    def _ask_for_segment(self) -> None:
        """NewSegment, and the end of the one before, asked for until it is answered."""
        request = {"after": self._after, "end": self._closing_end, "suspects": sorted(self._suspects)}
        answer = self._ask("coordinator.segment", request, until=self._out_of_time)
        if answer is None:
            return
        self._suspects = set()
        self._closing_end = None
        self._sent_bytes = 0
        self._persistently(self._measure)
        with self._changed:
            number, self._first = answer["segment"], answer["first"]
            self._state = core.told_segment(self._state, segment=number, nodes=answer["nodes"])
            self._failed_nodes, self._published = {}, 0
            home = Home(self._log, self._log_id, number, self._first, answer["token"])
            self._streams = {
                node: self._stream(node, address, number, {"home": asdict(home), "node": node})
                for node, address in answer["nodes"].items()
            }
            again, self._sent = [chunk for _, chunk in self._sent], deque()
            for chunk in again:
                self._send(chunk)

    def _stream(self, node: str, address: str, segment: int, command: Message) -> ReplicaStream:
        def acknowledged(index: int) -> None:
            with self._changed:
                self._take_ack(segment, node, index)

        def over(why: str) -> None:
            with self._changed:
                if segment == self._state.segment and self._state.phase == "writing":
                    self._failed_nodes.setdefault(node, why)
                    self._changed.notify_all()

        return ReplicaStream(address, self._security, command, acknowledged=acknowledged, over=over)

    def _move(self) -> bool:
        """Send what was submitted, or publish; False when the segment is to be given up."""
        with self._changed:
            if self._failed_nodes or self._late():
                return False
            if self._sent_bytes >= self._segment_bytes_max and self._submitted:
                if not self._sent:
                    return False  # full: the log goes on in the next one
                self._changed.wait(self._answer_timeout_s / 4)
                return True
            if self._sendable():
                self._send(self._next_chunk())
            elif self._published < self._state.done:
                self._publish()
            return True

    def _next_chunk(self) -> _Chunk:
        taken = [self._submitted.popleft()]
        size = taken[0].size
        while self._submitted and size + self._submitted[0].size <= CHUNK_BYTES_MAX:
            taken.append(self._submitted.popleft())
            size += taken[-1].size
        self._queued_bytes -= size
        return _Chunk(taken, sum(len(one.records) for one in taken), size)

    def _send(self, chunk: _Chunk) -> None:
        """Write."""
        if not self._sent:
            self._progress_at = time.monotonic()
        index = self._state.sent + 1
        self._state = core.write(self._state, count=chunk.count)
        self._sent.append((self._state.sent, chunk))
        self._sent_bytes += chunk.size
        records = [record for submission in chunk.submissions for record in submission.records]
        log_id = bytes.fromhex(self._log_id)
        frame = whole(records, log_id=log_id, first=self._first + index, epoch=self._state.token)
        known = self._published = self._state.done
        for stream in self._streams.values():
            stream.send(frame, index=index, known=known)

    def _publish(self) -> None:
        """Publish: nothing follows that could tell."""
        self._published = self._state.done
        for stream in self._streams.values():
            stream.publish(self._published)

    def _take_ack(self, segment: int, node: str, index: int) -> None:
        """TakeAck; within the lock, in the thread of the stream."""
        state = core.take_ack(self._state, segment=segment, node=node, index=index)
        if state is not self._state:
            self._progress_at = time.monotonic()
        committed = state.done > self._state.done
        self._state = state
        if committed:
            self._answer_committed()

    def _answer_committed(self) -> None:
        answers: list[tuple[Future[Position], Position]] = []
        while self._sent and self._sent[0][0] <= self._state.done:
            last, chunk = self._sent.popleft()
            number = self._first + last - chunk.count
            for submission in chunk.submissions:
                number += len(submission.records)
                answers.append((submission.answer, Position(submission.records[-1].generation, number)))
            self._submitted_bytes -= chunk.size
        if answers:
            self._committed = answers[-1][1]
            # Waking a thread costs as much as an append: only who waits for this is woken.
            if self._resting or self._submitted or self._waiting or self._closing:
                self._changed.notify_all()
        for answer, position in answers:
            answer.set_result(position)

    def _give_up(self) -> None:
        """GiveUp: the segment ends with what is committed."""
        with self._changed:
            late = {node for node, index in self._state.acked.items() if index < self._state.sent}
            self._suspects = set(self._failed_nodes) or (late if self._sent else set())
            self._closing_end, self._after = self._state.done, self._state.segment
            self._state = core.give_up(self._state)
            streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.let_go()

    def _finish(self) -> None:
        """A segment that was written to is ended now, so that readers need not wait for another owner."""
        if self._state.phase == "writing":
            self._give_up()
        if self._closing_end is not None:
            self._tell_end()

    def _tell_end(self) -> None:
        """DecideByProducer, where no segment follows."""
        request = {"segment": self._after, "end": self._closing_end}
        if self._ask("coordinator.close", request, until=self._out_of_time) is not None:
            self._closing_end = None

    def _ask(self, action: str, request: Message, *, until: Callable[[], bool]) -> Message | None:
        owned = {"log": self._log, "token": self._state.token, **request}
        return self._coordinator.ask_until(until, action, owned)

    def _persistently(self, ask: Callable[[], _T]) -> _T | None:
        return self._coordinator.persistently(self._out_of_time, ask)

    def _break(self, error: TruecutError) -> None:
        """For good: another writer owns the log. What was not answered may or may not be in it."""
        with self._changed:
            self._broken = error
            pending = [one for _, chunk in self._sent for one in chunk.submissions] + list(self._submitted)
            self._sent, self._submitted = deque(), deque()
            self._changed.notify_all()
        for submission in pending:
            submission.answer.set_exception(error)
