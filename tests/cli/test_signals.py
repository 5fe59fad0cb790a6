"""A signal counts, whenever it comes."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from truecut.cli import entry
from truecut.cli.signals import received_signals


@pytest.mark.parametrize("heard_by_whom", ["whoever was there before", "us"])
def test_a_signal_counts_that_comes_while_others_take_over(
    heard_by_whom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before the last handler is there, or just after it: a stop that was asked for is not lost."""
    monkeypatch.setattr(entry, "heard", heard := list[int]())
    monkeypatch.setattr("truecut.cli.signals.heard", heard)
    really, came = signal.signal, list[int]()

    def installing(number: int, handler: Any) -> Any:
        before = really(number, handler)
        if number == signal.SIGTERM and not came:
            came.append(number)
            (entry._hear if heard_by_whom != "us" else handler)(number, None)
        return before

    monkeypatch.setattr(signal, "signal", installing)
    with received_signals() as signals:
        assert signals.received == [signal.SIGTERM]
