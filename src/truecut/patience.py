"""Trying again for a moment, where a retry can help: for commands that look and do not wait."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TypeVar

from truecut.errors import Retry, TruecutError

PATIENCE_S = 3.0  # a runner or a tenant may hold a file for a moment

Answer = TypeVar("Answer")


def patiently(call: Callable[[], Answer]) -> Answer:
    """What the call answers, or its error once patience has run out."""
    deadline = time.monotonic() + PATIENCE_S
    for attempt in itertools.count():
        try:
            return call()
        except TruecutError as error:
            if error.fault.retry is not Retry.RETRYABLE or time.monotonic() > deadline:
                raise
        time.sleep(min(0.5, 0.05 * 2**attempt))
    raise AssertionError("unreachable")
