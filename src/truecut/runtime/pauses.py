"""What users ask for are files in the state folder: they survive restarts and the loss of the control store.

`pause/all`, `pause/sink=NAME`, `pause/table=NAME`; and requests, which runners answer: that a held table goes
on (`resume/table=NAME`), that one is read again (`backfill/table=NAME`, `backfill/sink=NAME/table=NAME`).
The time of its file is a request's number; each is above all before it, also when the clock is set back.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from truecut.state_folder import BACKFILL, LAST_REQUEST, PAUSE, RESUME


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """Something that the copies of a table shall show: in the order of the numbers, one after another."""

    asked: int  # when, in ns: its number
    table: str
    again: bool = False  # read the table again; else: let a held copy go on
    sink: str | None = None  # None: all


@dataclass(frozen=True, slots=True)
class Pauses:
    """What is paused now, and which held tables shall go on."""

    everything: bool = False
    sinks: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    requests: tuple[Request, ...] = ()

    @property
    def resumed_tables(self) -> Mapping[str, int]:
        """The tables that shall go on, and the number of the request."""
        return {one.table: one.asked for one in self.requests if not one.again}


def read_pauses(state: Path) -> Pauses:
    """What the files say."""
    names = _names(state / PAUSE)
    return Pauses(
        everything="all" in names,
        sinks=_of("sink", names),
        tables=_of("table", names),
        requests=tuple(sorted(_requests(state))),
    )


def pause(state: Path, *, sink: str | None = None, table: str | None = None) -> None:
    """Ask a running pipeline, or the next run, to pause. What was to be read again waits until that ends."""
    path = state / PAUSE / _file(sink, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if table is not None:
        (state / RESUME / _file(None, table)).unlink(missing_ok=True)


def resume(state: Path, *, sink: str | None = None, table: str | None = None) -> bool:
    """Take a pause back; for a table also ask that a held copy goes on. False: nothing was paused."""
    path = state / PAUSE / _file(sink, table)
    was_paused = path.exists()
    path.unlink(missing_ok=True)
    if sink is None and table is None:
        for other in (state / PAUSE).glob("*"):
            was_paused = True
            other.unlink(missing_ok=True)
    if table is not None:
        _ask(state, state / RESUME / _file(None, table))
    return was_paused


def backfill(state: Path, *, table: str, sink: str | None = None) -> Request:
    """Ask that a table is read again, for one sink or all. One that still waits is taken for the same."""
    return Request(_ask(state, _again(state, table, sink)), table, again=True, sink=sink)


def how_to_resume(table: str, fix: str = "") -> str:
    """The way out for a held table: what its code says, and that it has to be resumed then."""
    resume = f"run `truecut resume FILE --table {table}`."
    if "truecut resume" in fix:
        return fix
    return f"{fix} Then {resume}" if fix else f"Remove the cause, then {resume}"


def answered(state: Path, request: Request) -> None:
    """The sinks show it; one that came since stays."""
    resume = state / RESUME / _file(None, request.table)
    path = _again(state, request.table, request.sink) if request.again else resume
    if _asked_ns(path) == request.asked:
        path.unlink(missing_ok=True)


def _file(sink: str | None, table: str | None) -> str:
    if sink is not None:
        return f"sink={_quoted(sink)}"
    return "all" if table is None else f"table={_quoted(table)}"


def _quoted(name: str) -> str:
    """Only what a file cannot be called: with three bytes for each a name may be too long for one."""
    return name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def _again(state: Path, table: str, sink: str | None) -> Path:
    folder = state / BACKFILL
    return (folder if sink is None else folder / _file(sink, None)) / _file(None, table)


def _ask(state: Path, path: Path) -> int:
    """A request's file appears with its number, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number = _next_number(state)
    draft = path.with_name(f"{uuid.uuid4().hex}.draft")
    draft.touch()
    os.utime(draft, ns=(number, number))
    draft.replace(path)
    return number


def _next_number(state: Path) -> int:
    """Above the last one, which is remembered."""
    last, known = state / LAST_REQUEST, 0
    with suppress(OSError, ValueError):  # the first, or damaged: the clock says enough
        known = int(last.read_text())
    number = max(time.time_ns(), known + 1)
    draft = last.with_name(f"{uuid.uuid4().hex}.draft")
    draft.write_text(str(number))
    draft.replace(last)
    return number


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


def _requests(state: Path) -> Iterator[Request]:
    folders: list[tuple[Path, bool, str | None]] = [
        (state / RESUME, False, None),
        (state / BACKFILL, True, None),
    ]
    folders += [
        (state / BACKFILL / _file(sink, None), True, sink) for sink in _of("sink", _names(state / BACKFILL))
    ]
    for folder, again, sink in folders:
        for table in _of("table", _names(folder)):
            if (asked := _asked_ns(folder / _file(None, table))) is not None:
                yield Request(asked, table, again, sink)


def _asked_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # taken up by another runner in this moment
        return None


def _of(kind: str, names: list[str]) -> frozenset[str]:
    prefix = f"{kind}="
    return frozenset(unquote(name.removeprefix(prefix)) for name in names if name.startswith(prefix))
