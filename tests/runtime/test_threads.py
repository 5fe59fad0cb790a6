"""Threads that hang: how many are given to whom."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from tests.journal.served import until
from truecut import threads
from truecut.threads import Work, refusal


def test_beyond_the_bound_of_all_only_those_begin_of_whom_none_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So those that hang are never many more than those whom they serve."""
    monkeypatch.setattr(threads, "_hanging", Counter())
    monkeypatch.setattr(threads, "ALL_MAX", 3)
    released = threading.Event()

    def wait() -> None:
        released.wait()

    def hang(who: str) -> None:
        work = Work(who, deadline_s=60.0)
        work.start(wait)
        work.leave_behind()

    try:
        hang("a")
        hang("a")
        assert refusal("a") is None
        hang("b")
        assert [refusal(who) is None for who in ("a", "b", "c")] == [False, False, True]
        hang("c")
        assert refusal("d") is None
    finally:
        released.set()
        until(lambda: threads._hanging.total() == 0)
    assert refusal("a") is None
