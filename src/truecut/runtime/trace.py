"""A run in the words of specs/Delivery.tla: one JSON line for each action. Off unless a path is given.

`step(before, after)` writes what one call of the delivery machine did, read off the two states, so that a
trace tells what the machine has done and not what somebody meant to say. Each line has `action`,
`runner` (one process is one runner), `at_ns` (the machine's clock), and these fields. Positions are
text, null where there is none.

  Observe        identity, oldest, head
  Acquire        sink, epoch, token
  Lose           sink, epoch
  StartRecovery  sink, epoch, token
  Recovered      sink, epoch, position, copies
  RecoveryFail   sink, epoch
  StartWave      sink, epoch, wave, token, after, upto, tables, apart
                 (upto: the latest end it may have; apart: tables that could not be read, and go alone)
  StartSeed      sink, epoch, wave, token, upto, tables
  PersistIdle    sink, epoch, wave, token, upto, tables, leaves
  WaveCommit     sink, epoch, wave, position, copies
  WaveFail       sink, epoch, wave
  WaveAbort      sink, epoch, wave, copies
  Advance        sink, epoch, wave, upto, copies
  LostHistory    sink, epoch, copies
  PauseTable     sink, epoch, copies
  UnpauseTable   sink, epoch, copies
  ResumeTable    sink, epoch, copies
  CopyAgain      sink, epoch, copies

`epoch` is the one after the action. `tables` are the versions that an order expects, `leaves` those that it
leaves; `copies` are all copies of the sink after the action.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from truecut.core.state import CopyOrder, Delivery, SinkState, Wave
from truecut.model.cursor import Version
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
    if (before.identity, before.oldest, before.head) != (after.identity, after.oldest, after.head):
        oldest, head = text_of(after.oldest), text_of(after.head)
        yield "Observe", {"identity": after.identity, "oldest": oldest, "head": head}
        return
    for name, sink in after.sinks.items():
        old = before.sinks.get(name)  # none: it is new, and nobody's
        if old is not None and old is not sink:
            for action, fields in _of_sink(name, before, after):
                yield action, {"sink": name, "epoch": sink.epoch, **fields}


def _of_sink(name: str, before: Delivery, after: Delivery) -> Iterator[tuple[str, dict[str, object]]]:
    old, sink = before.sinks[name], after.sinks[name]
    ended = [wave for key, wave in before.waves.items() if key not in after.waves]
    started = [wave for key, wave in after.waves.items() if key not in before.waves and name in wave.sinks]
    if old.epoch != sink.epoch:
        yield _reset(name, old, sink, ended)
    elif old.phase != sink.phase:
        yield _recovery(sink)
    elif started:
        yield _started(started[0], name, old)
    elif ended:
        yield _answered(name, ended[0], old, sink)
    elif old.paused_tables != sink.paused_tables:
        added = bool(sink.paused_tables - old.paused_tables)
        yield "PauseTable" if added else "UnpauseTable", {"copies": _copies(sink)}
    elif old.copies != sink.copies:
        yield _copies_changed(old, sink), {"copies": _copies(sink)}


def _reset(name: str, old: SinkState, sink: SinkState, ended: list[Wave]) -> tuple[str, dict[str, object]]:
    if sink.phase == "unowned":
        return "Lose", {}
    if ended:
        return "WaveFail", {"wave": ended[0].id}
    if old.phase == "recovering" and old.token == sink.token:
        return "RecoveryFail", {}
    return "Acquire", {"token": sink.token}


def _recovery(sink: SinkState) -> tuple[str, dict[str, object]]:
    if sink.phase == "recovering":
        return "StartRecovery", {"token": sink.token}
    return "Recovered", {"position": text_of(sink.cursor), "copies": _copies(sink)}


def _started(wave: Wave, name: str, old: SinkState) -> tuple[str, dict[str, object]]:
    order = wave.sinks[name]
    fields: dict[str, object] = {"wave": wave.id, "token": order.token}
    if wave.kind == "changes":
        apart = [table for table, copy in old.copies.items() if copy.failures]
        fields |= {"after": text_of(wave.after), "apart": apart}
    fields |= {"upto": text_of(wave.upto_max)}
    fields["tables"] = {table: _version(one.expected) for table, one in order.tables.items()}
    if wave.kind == "persist":
        fields["leaves"] = {table: _version(_left(one)) for table, one in order.tables.items()}
    return _STARTS[wave.kind], fields


def _left(order: CopyOrder) -> Version:
    assert order.at is not None
    code = None if order.hold is None else order.hold.code
    return Version(order.edition, order.at, code, order.resumed)


def _answered(name: str, wave: Wave, old: SinkState, sink: SinkState) -> tuple[str, dict[str, object]]:
    done: dict[str, object] = {"wave": wave.id, "copies": _copies(sink)}
    tables = wave.sinks[name].tables
    if any(old.copies[table].durable != sink.copies[table].durable for table in tables):
        return "WaveCommit", {**done, "position": text_of(sink.cursor)}
    places = {sink.copies[table].at for table in tables} - {None, wave.after}
    if (
        wave.kind == "changes" and places
    ):  # none: what was read has expired since, which is as if it had not been
        return "Advance", {**done, "upto": text_of(places.pop())}
    return "WaveAbort", done


def _copies_changed(old: SinkState, sink: SinkState) -> str:
    """Between two answers: somebody resumed a table or wants it again, or its history was lost."""
    asked = [table for table, copy in old.copies.items() if copy.resumed != sink.copies[table].resumed]
    if not asked:
        return "LostHistory"
    again = any(
        old.copies[table].status != "held" and sink.copies[table].status == "unseeded" for table in asked
    )
    return "CopyAgain" if again else "ResumeTable"


def _version(version: Version | None) -> dict[str, object] | None:
    if version is None:
        return None
    return {
        "edition": version.edition,
        "at": str(version.at),
        "hold": version.hold,
        "resumed": version.resumed,
    }


def _copies(sink: SinkState) -> dict[str, dict[str, object]]:
    return {
        table: {
            "status": copy.status,
            "at": text_of(copy.at),
            "edition": copy.edition,
            "hold": None if copy.hold is None else copy.hold.code,
            "resumed": copy.resumed,
            "paused": table in sink.paused_tables,
            "wave": copy.wave,
            "durable": _version(copy.durable),
        }
        for table, copy in sink.copies.items()
    }
