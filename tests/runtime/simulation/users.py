"""Users of a running pipeline: they pause and resume, by the real files, and remember what they asked for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.runtime.simulation.clockwork import Clockwork
from tests.runtime.simulation.source import History
from truecut.runtime import pauses


class Users:
    """What they have asked for, and since when. Keys are the names of the files: `sink=a`, `table=main.t`."""

    def __init__(
        self, clockwork: Clockwork, folder: Path, history: History, *, sinks: list[str], tables: list[str]
    ) -> None:
        self._clockwork = clockwork
        self._folder = folder
        self._history = history
        self._sinks = sinks
        self._tables = tables
        self.paused_ms: dict[str, int] = {}
        self.again: list[pauses.Request] = []  # to read a table again
        self.resumed_ms: dict[str, int] = {}  # table → the last request that it shall go on

    def act(self) -> None:
        """Somebody wants something."""
        rng = self._clockwork.rng
        what = rng.choice(["sink", "table", "table", "all"])
        name = {"sink": rng.choice(self._sinks), "table": rng.choice(self._tables), "all": None}[what]
        wanted = {what: name} if name is not None else {}
        key = f"{what}={name}" if name is not None else what
        if key in self.paused_ms or (what == "table" and self._clockwork.happens(0.4)):
            self._resume(key, wanted)
        else:
            self._pause(key, wanted)

    def resume_table(self, table: str) -> None:
        """Somebody wants a held table to go on."""
        self._resume(f"table={table}", {"table": table})

    def resume_all(self) -> None:
        """Nothing shall be paused any more; a table that is held for another reason stays so."""
        for key in list(self.paused_ms):
            kind, _, name = key.partition("=")
            self._resume(key, {kind: name} if name else {})

    def _pause(self, key: str, wanted: dict[str, str]) -> None:
        self._clockwork.say(f"users pause {key}")
        pauses.pause(self._folder, **wanted)
        self.paused_ms[key] = self._clockwork.now_ms
        self.resumed_ms.pop(wanted.get("table", ""), None)

    def _resume(self, key: str, wanted: dict[str, str]) -> None:
        self._clockwork.say(f"users resume {key}")
        pauses.resume(self._folder, **wanted)
        self.paused_ms.pop(key, None)
        if not wanted:
            self.paused_ms.clear()
        table = wanted.get("table")
        if table is not None:
            self._history.unfit.pop(table, None)  # the cause was removed first
            self.resumed_ms[table] = self._clockwork.now_ms
            asked_ns = self._clockwork.stamp_us() * 1_000
            path = next(self._folder.glob(f"resume/table={table}"))
            os.utime(path, ns=(asked_ns, asked_ns))

    def read_again(self) -> None:
        """Somebody wants a table read again, for one sink or all."""
        rng = self._clockwork.rng
        table, sink = rng.choice(self._tables), rng.choice([None, *self._sinks])
        request = pauses.backfill(self._folder, table=table, sink=sink)
        asked_ns = self._clockwork.stamp_us() * 1_000
        folder = self._folder / "backfill" / (f"sink={sink}" if sink is not None else "")
        os.utime(folder / f"table={table}", ns=(asked_ns, asked_ns))
        self._clockwork.say(f"users want {table} read again for {sink or 'all'}")
        self.again.append(replace(request, asked=asked_ns))

    def unanswered(self) -> list[str]:
        """Requests whose files are still there."""
        return sorted(
            path.name for kind in ("resume", "backfill") for path in self._folder.rglob(f"{kind}/**/table=*")
        )

    def paused_since_ms(self, *, sink: str, table: str | None = None) -> int | None:
        """Since when nothing of this shall move; None: it may."""
        keys = ["all", f"sink={sink}", *([] if table is None else [f"table={table}"])]
        since = [self.paused_ms[key] for key in keys if key in self.paused_ms]
        return min(since, default=None)
