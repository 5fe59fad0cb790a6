"""Pauses are files in the state folder: they survive restarts and the loss of the control store.

`pause/all`, `pause/sink=NAME`, `pause/table=NAME`; and `resume/table=NAME`, a request that the runner
takes up once the table goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class Pauses:
    """What is paused now, and which held tables shall go on."""

    everything: bool = False
    sinks: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    resumed_tables: frozenset[str] = frozenset()


def read_pauses(state: Path) -> Pauses:
    """What the files say."""
    names = _names(state / "pause")
    return Pauses(
        everything="all" in names,
        sinks=_of("sink", names),
        tables=_of("table", names),
        resumed_tables=_of("table", _names(state / "resume")),
    )


def pause(state: Path, *, sink: str | None = None, table: str | None = None) -> None:
    """Ask a running pipeline, or the next run, to pause."""
    _touch(state / "pause" / _file(sink, table))
    if table is not None:
        (state / "resume" / _file(None, table)).unlink(missing_ok=True)


def resume(state: Path, *, sink: str | None = None, table: str | None = None) -> bool:
    """Take a pause back; for a table also ask that a held copy goes on. False: nothing was paused."""
    path = state / "pause" / _file(sink, table)
    was_paused = path.exists()
    path.unlink(missing_ok=True)
    if sink is None and table is None:
        for other in (state / "pause").glob("*"):
            was_paused = True
            other.unlink(missing_ok=True)
    if table is not None:
        _touch(state / "resume" / _file(None, table))
    return was_paused


def how_to_resume(table: str) -> str:
    """The way out for a held table."""
    return f"Remove the cause, then run `truecut resume FILE --table {table}`."


def resumed(state: Path, *, table: str) -> None:
    """The request has been taken up."""
    (state / "resume" / _file(None, table)).unlink(missing_ok=True)


def _file(sink: str | None, table: str | None) -> str:
    if sink is not None:
        return f"sink={quote(sink, safe='')}"
    return "all" if table is None else f"table={quote(table, safe='')}"


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


def _of(kind: str, names: list[str]) -> frozenset[str]:
    prefix = f"{kind}="
    return frozenset(unquote(name.removeprefix(prefix)) for name in names if name.startswith(prefix))
