"""Where a log is, as a small value that goes to other processes, and how a reader of it is opened there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from truecut.journal import faults
from truecut.journal.contract import JournalReader
from truecut.journal.reader import LocalReader


@dataclass(frozen=True, slots=True)
class Where:
    """A folder on this machine, or the name of a log and its coordinator. Never anything that is open."""

    folder: str | None = None
    coordinator: str | None = None  # HOST:PORT
    log: str | None = None

    def __str__(self) -> str:
        return self.folder if self.folder is not None else f"{self.log} at {self.coordinator}"


def open_reader(where: Where) -> JournalReader:
    """A reader of the log, in the process that calls."""
    if where.folder is None:
        raise faults.not_yet(f"the replicated log {where}")
    return LocalReader(Path(where.folder))
