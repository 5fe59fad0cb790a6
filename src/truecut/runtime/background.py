"""Everything slow runs here, in a few threads; what came of it is handed back to the loop.

Promises: answers and faults are taken up by whoever calls `take_answers`, one after another, so that the
state has one owner; no exception of a call ends the loop; nothing here keeps the process from ending,
whatever a call still waits for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from truecut.errors import Fault, Retry, TruecutError

THREADS = 12  # a job that hangs keeps one; there are a few kinds of jobs, and questions to the store

Answer = TypeVar("Answer")
Act = Callable[[], None]


class Background:
    """A few threads, and a queue of what they came back with."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Act | None] = queue.Queue()
        self._answers: queue.Queue[Act] = queue.Queue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(
        self, call: Callable[[], Answer], then: Callable[[Answer], None], otherwise: Callable[[Fault], None]
    ) -> None:
        """`call` in a thread; later, in the loop, `then` with its answer or `otherwise` with its fault."""

        def body() -> None:
            try:
                answer = call()
            except TruecutError as error:
                fault = error.fault
                self._answers.put(lambda: otherwise(fault))
            except Exception as error:  # noqa: BLE001 - Spark raises many kinds; none may end the loop
                unknown = _spark_fault(error)
                self._answers.put(lambda: otherwise(unknown))
            else:
                self._answers.put(lambda: then(answer))

        self._calls.put(body)
        if not self._idle.acquire(blocking=False) and len(self._threads) < THREADS:
            self._threads.append(threading.Thread(target=self._work, name="truecut", daemon=True))
            self._threads[-1].start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._idle.release()

    def take_answers(self, *, wait_s: float) -> None:
        """Wait a moment for an answer, then take up all that are there."""
        try:
            self._answers.get(timeout=wait_s)()
            while True:
                self._answers.get_nowait()()
        except queue.Empty:
            return

    def close(self) -> None:
        """What has not begun never will; what runs is not waited for."""
        while True:
            try:
                self._calls.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._calls.put(None)


def _spark_fault(error: Exception) -> Fault:
    # Spark's text may repeat what a worker printed: only the class of the error is told.
    return Fault(
        "TC5004",
        f"the Spark job failed ({type(error).__name__})",
        "It is tried again by itself; spark.log in the state folder may say more.",
        Retry.RETRYABLE,
    )
