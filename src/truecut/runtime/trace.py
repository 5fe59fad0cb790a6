"""A run in the words of specs/Delivery.tla: one JSON line for each action. Off unless a path is given.

`step(before, after)` writes what one call of the delivery machine did, read off the two states, so that a
trace tells what the machine has done and not what somebody meant to say. Each line has `action`,
`runner` (one process is one runner), `at_ns` (the machine's clock), and these fields. Positions are
text, null where there is none.

  Observe        identity, oldest, head
  Acquire        sink, token, epoch
  Lose           sink, epoch
  StartRecovery  sink, token, epoch
  Recovered      sink, epoch, cursor, copy
  RecoveryFail   sink, epoch
  StartWave      sink, epoch, wave, expected, after, upto       (upto: the latest end it may have)
  StartSeed      sink, epoch, wave, expected, upto
  PersistIdle    sink, epoch, wave, expected, upto
  WaveCommit     sink, epoch, wave, cursor, copy
  WaveFail       sink, epoch, wave
  WaveAbort      sink, epoch, wave, copy
  Advance        sink, epoch, wave, upto, copy
  LostHistory    sink, epoch, copy
  PauseTable     sink, epoch, copy
  ResumeTable    sink, epoch, copy

`epoch` is the one after the action. `copy` is how the sink's tables are: streaming, unseeded, held, or
mixed when they differ.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from truecut.core.state import Delivery, SinkState
from truecut.model.position import text_of

VARIABLE = "TRUECUT_TRACE"
_STARTS = {"changes": "StartWave", "seed": "StartSeed", "persist": "PersistIdle"}


class Trace:
    """Appends actions to a file; costs one comparison when off."""

    def __init__(self, path: Path | None, *, runner: str = "") -> None:
        self._file: IO[str] | None = None if path is None else path.open("a", buffering=1)
        self._runner = runner or f"runner-{os.getpid()}"

    @classmethod
    def from_environment(cls) -> Trace:
        """The file that TRUECUT_TRACE names, if any. A folder gets a file for each process."""
        named = os.environ.get(VARIABLE)
        if not named:
            return cls(None)
        path = Path(named)
        return cls(path / f"{os.getpid()}.jsonl" if path.is_dir() else path)

    def emit(self, action: str, **fields: object) -> None:
        """One action of the spec."""
        if self._file is not None:
            line = {"action": action, "runner": self._runner, "at_ns": time.time_ns(), **fields}
            self._file.write(json.dumps(line) + "\n")

    def step(self, before: Delivery, after: Delivery) -> None:
        """What one call of the delivery machine did."""
        if self._file is None or before is after:
            return
        for action, fields in actions(before, after):
            self.emit(action, **fields)

    def close(self) -> None:
        """Nothing more is written."""
        if self._file is not None:
            self._file.close()
            self._file = None


def actions(before: Delivery, after: Delivery) -> Iterator[tuple[str, dict[str, object]]]:
    """The spec's actions between two states of the machine, one call apart."""
    source = (before.identity, before.oldest, before.head)
    if source != (after.identity, after.oldest, after.head):
        oldest, head = text_of(after.oldest), text_of(after.head)
        yield "Observe", {"identity": after.identity, "oldest": oldest, "head": head}
    for name, sink in after.sinks.items():
        old = before.sinks[name]
        if old is not sink and (old.phase, old.epoch) != (sink.phase, sink.epoch):
            action, fields = _action(before, after, old, sink)
            yield action, {"sink": name, "epoch": sink.epoch, **fields}
        elif old.copies is not sink.copies and _copy(old) != _copy(sink) and before.oldest == after.oldest:
            yield _copies_changed(old, sink), {"sink": name, "epoch": sink.epoch, "copy": _copy(sink)}


def _copies_changed(old: SinkState, sink: SinkState) -> str:
    """Between two answers: somebody paused or resumed a table, or its history was lost."""
    if any(copy.status == "held" and sink.copies[t].status != "held" for t, copy in old.copies.items()):
        return "ResumeTable"
    lost = any(copy.status == "unseeded" for copy in sink.copies.values())
    return "LostHistory" if lost else "PauseTable"


def _action(
    before: Delivery, after: Delivery, old: SinkState, sink: SinkState
) -> tuple[str, dict[str, object]]:
    match old.phase, sink.phase:
        case _, "unowned":
            return "Lose", {}
        case _, "acquired" if old.token != sink.token or old.phase in ("unowned", "acquired", "idle"):
            return "Acquire", {"token": sink.token}
        case "acquired", "recovering":
            return "StartRecovery", {"token": sink.token}
        case "recovering", "acquired":
            return "RecoveryFail", {}
        case "recovering", "idle":
            return "Recovered", {"cursor": text_of(sink.cursor), "copy": _copy(sink)}
        case "idle", "applying":
            return _started(after, sink)
        case "applying", _:
            return _answered(before, old, sink)
    raise AssertionError(f"no action of the spec leads from {old.phase} to {sink.phase}")


def _started(after: Delivery, sink: SinkState) -> tuple[str, dict[str, object]]:
    assert sink.wave is not None
    wave = after.waves[sink.wave]
    fields: dict[str, object] = {
        "wave": wave.id,
        "expected": text_of(sink.cursor),
        "upto": text_of(wave.upto_max),
    }
    if wave.kind == "changes":
        fields["after"] = text_of(wave.after)
    return _STARTS[wave.kind], fields


def _answered(before: Delivery, old: SinkState, sink: SinkState) -> tuple[str, dict[str, object]]:
    assert old.wave is not None
    wave = before.waves[old.wave]
    if sink.phase == "acquired":
        return "WaveFail", {"wave": wave.id}
    done: dict[str, object] = {"wave": wave.id, "copy": _copy(sink)}
    seeded = wave.kind == "seed" and sink.copies != old.copies
    if sink.cursor != old.cursor or seeded:
        return "WaveCommit", {**done, "cursor": text_of(sink.cursor)}
    if wave.kind == "changes" and sink.position != old.position:
        return "Advance", {**done, "upto": text_of(sink.position)}
    return "WaveAbort", done


def _copy(sink: SinkState) -> str:
    statuses = {copy.status for copy in sink.copies.values()}
    return statuses.pop() if len(statuses) == 1 else "mixed"
