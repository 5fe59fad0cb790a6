"""Pauses are files in the state folder: they survive restarts and the loss of the control store.

`pause/all`, `pause/sink=NAME`, `pause/table=NAME`; and `resume/table=NAME`, a request that the runner
takes up once the table goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from truecut.state_folder import PAUSE, RESUME


@dataclass(frozen=True, slots=True)
class Pauses:
    """What is paused now, and which held tables shall go on."""

    everything: bool = False
    sinks: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    resumed_tables: Mapping[str, int] = field(default_factory=dict)  # and when it was asked for, in ns


def read_pauses(state: Path) -> Pauses:
    """What the files say."""
    names = _names(state / PAUSE)
    return Pauses(
        everything="all" in names,
        sinks=_of("sink", names),
        tables=_of("table", names),
        resumed_tables=_requests(state / RESUME),
    )


def pause(state: Path, *, sink: str | None = None, table: str | None = None) -> None:
    """Ask a running pipeline, or the next run, to pause."""
    _touch(state / PAUSE / _file(sink, table))
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
        _touch(state / RESUME / _file(None, table))
    return was_paused


def how_to_resume(table: str) -> str:
    """The way out for a held table."""
    return f"Remove the cause, then run `truecut resume FILE --table {table}`."


def resumed(state: Path, *, table: str, asked_ns: int) -> None:
    """The request of that time has been taken up; one that came since stays."""
    path = state / RESUME / _file(None, table)
    if _asked_ns(path) == asked_ns:
        path.unlink(missing_ok=True)


def _file(sink: str | None, table: str | None) -> str:
    if sink is not None:
        return f"sink={_quoted(sink)}"
    return "all" if table is None else f"table={_quoted(table)}"


def _quoted(name: str) -> str:
    """Only what a file cannot be called: with three bytes for each a name may be too long for one."""
    return name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


def _requests(folder: Path) -> dict[str, int]:
    asked = {table: _asked_ns(folder / _file(None, table)) for table in _of("table", _names(folder))}
    return {table: ns for table, ns in asked.items() if ns is not None}


def _asked_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # taken up by another runner in this moment
        return None


def _of(kind: str, names: list[str]) -> frozenset[str]:
    prefix = f"{kind}="
    return frozenset(unquote(name.removeprefix(prefix)) for name in names if name.startswith(prefix))
