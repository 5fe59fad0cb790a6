"""The first thing that `truecut` does: it hears signals, also while everything else is still to be imported.

A signal that comes so early is kept. A command that stops cleanly takes it up when it begins (`signals`); any
other ends then, with the code of the interface (`give_back`).
"""

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
heard: list[int] = []
_before: dict[int, object] = {}


def _hear(number: int, _: FrameType | None) -> None:
    if heard:  # the second: at once
        os._exit(128 + number)
    heard.append(number)


def give_back() -> None:
    """For a command that does nothing about signals: they mean what they always do; one that came ends it."""
    for number in _SIGNALS if _before else ():
        signal.signal(number, _before[number])  # type: ignore[arg-type] # as signal.signal gave it
    _before.clear()
    if heard:
        raise SystemExit(128 + heard[0])


def main() -> None:
    """`truecut`."""
    _before.update({number: signal.signal(number, _hear) for number in _SIGNALS})
    from truecut.cli.main import main

    main()
