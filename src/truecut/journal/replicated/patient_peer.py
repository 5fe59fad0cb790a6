"""The coordinator, asked with patience: again as long as only time can help.

Why it waits is told meanwhile (`hindrance`), so that whoever waits for an append can say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from truecut.errors import Fault, Retry, TruecutError
from truecut.journal.replicated.wire import Message, Peer

AGAIN_S = 0.1  # between two questions to one that does not answer
OPEN_S = 5.0  # for an answer, when a log is opened

_T = TypeVar("_T")


class PatientPeer(Peer):
    """A peer that is not always there."""

    hindrance: Fault | None = None

    def granted(self, request: Message) -> Message:
        """Grant. One that is not there is waited for briefly: whoever opens a log wants to know."""
        deadline = time.monotonic() + OPEN_S
        while True:
            try:
                return self.ask("coordinator.open", request)
            except TruecutError as error:
                if error.fault.retry is not Retry.RETRYABLE or time.monotonic() > deadline:
                    raise
            time.sleep(AGAIN_S)

    def ask_until(self, given_up: Callable[[], bool], action: str, request: Message) -> Message | None:
        """Until there is an answer that is more than what it waits for; None when it was given up."""
        while True:
            answer = self.persistently(given_up, lambda: self.ask(action, request))
            if answer is None or "waiting" not in answer:
                return answer
            told = answer["waiting"]
            self.hindrance = Fault(told["code"], told["message"], told["fix"], Retry.RETRYABLE)
            if given_up():
                return None

    def persistently(self, given_up: Callable[[], bool], ask: Callable[[], _T]) -> _T | None:
        """What `ask` brings, once it does; None when it was given up."""
        while not given_up():
            try:
                answer = ask()
            except TruecutError as error:
                if error.fault.retry is not Retry.RETRYABLE:
                    raise
                self.hindrance = error.fault
                time.sleep(AGAIN_S)
            else:
                self.hindrance = None
                return answer
        return None
