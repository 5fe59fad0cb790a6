"""A thread that works for one sink on a stream of items and gives one answer; or is left behind.

A thread of which nothing was felt for a deadline (no item taken, no statement begun, no progress of the one
that runs) is left behind: its sink is reported late, the others go on. Should it wake up later, the sink's
own fence and cursor decide what its commit is worth.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar

from truecut.errors import Fault, Retry, TruecutError
from truecut.threads import POLL_S, Work, refusal

QUEUE_MAX = 4  # items waiting for one sink

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Trouble = Callable[[Literal["late", "failed"], Fault], Answer]  # the answer of one that could not do it


class SinkWork(Generic[Item, Answer]):
    """One answer out of a stream of items."""

    def __init__(
        self,
        index: int,
        sink: str,
        trouble: Trouble[Answer],
        *,
        deadline_s: float,
        ended: Ended,
        waiting_max: int = QUEUE_MAX,
    ) -> None:
        self.index = index
        self._sink = sink
        self._trouble = trouble
        self._deadline_s = deadline_s
        self._inbox: queue.Queue[Item | None] = queue.Queue(waiting_max)
        self._answer: Answer | None = None
        self._done = threading.Event()
        self._ended = ended
        self._thread = Work(f"sink {sink}", deadline_s=deadline_s)

    def start(self, action: Callable[[Iterator[Item]], Answer]) -> None:
        """Work on what will be offered."""

        def body() -> None:
            try:
                self._end(action(self._items()))
            except TruecutError as error:
                self._end(self._trouble("failed", error.fault))
            except Exception as error:  # noqa: BLE001 - a sink's bug must not fail the others
                self._end(self._trouble("failed", _crashed(self._sink, error)))

        refused = refusal(f"sink {self._sink}")
        if refused is not None:
            self._end(self._trouble("failed", refused))
            return
        self._thread.start(body)

    def _end(self, answer: Answer) -> None:
        self._answer = answer
        self._done.set()
        self._ended.put(self)

    def _items(self) -> Iterator[Item]:
        while True:
            self._thread.stop_if_left()
            try:
                item = self._inbox.get(timeout=POLL_S)
            except queue.Empty:
                continue
            self._thread.beat()
            if item is None:
                return
            yield item

    def abandon(self) -> None:
        """Make the sink roll back instead of waiting for ever."""
        self._thread.leave_behind()

    def offer(self, item: Item | None) -> bool:
        """Hand over an item; False when the sink has ended or is late. Taking one counts as progress."""
        while not self.over():
            try:
                self._inbox.put(item, timeout=POLL_S)
            except queue.Full:
                continue
            self._thread.goes_on()
            return True
        return False

    def over(self) -> bool:
        """Whether it has ended, or may be given up: no progress for a whole deadline."""
        return self._done.is_set() or self._thread.is_late()

    def wait(self) -> Answer:
        """Its answer, when it has ended or is given up."""
        while not self.over():
            self._done.wait(POLL_S)
        return self.answer()

    def answer(self) -> Answer:
        """One that is late is left behind: its commit may still happen, or not."""
        if self._done.is_set() and self._answer is not None:
            return self._answer
        self.abandon()
        return self._trouble("late", _late(self._sink, self._deadline_s))


Ended = queue.SimpleQueue[SinkWork[Any, Any]]  # who has ended, so that nobody has to be asked in turn


def _late(sink: str, deadline_s: float) -> Fault:
    return Fault(
        "TC4101",
        f"sink {sink} made no progress for {deadline_s:g} s",
        "Check its storage; it is tried again by itself, and the other sinks go on.",
        Retry.RETRYABLE,
    )


def _crashed(sink: str, error: Exception) -> Fault:
    # The text of an unforeseen error may hold row values: only its class is told.
    return Fault(
        "TC4199",
        f"sink {sink}: unexpected {type(error).__name__}",
        "Report it if it persists.",
        Retry.RETRYABLE,
    )
