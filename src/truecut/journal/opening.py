"""Where a log is, as a small value that goes to other processes, and how a reader of it is opened there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from truecut.config.settings import SourceSettings
from truecut.journal.contract import JournalReader
from truecut.journal.reader import LocalReader
from truecut.journal.security import Security


@dataclass(frozen=True, slots=True)
class Where:
    """A folder on this machine, or the name of a log and its coordinator. Never anything that is open."""

    folder: str | None = None
    coordinator: str | None = None  # HOST:PORT
    log: str | None = None
    security: Security = field(default_factory=Security)

    def __str__(self) -> str:
        return self.folder if self.folder is not None else f"{self.log} at {self.coordinator}"


def journal_of(source: SourceSettings) -> Where:
    """Where a source's changes are captured."""
    journal = source.journal
    assert journal is not None, "the file's own, or its default"
    if journal.coordinator is None:
        return Where(folder=str(journal.path))
    return Where(coordinator=journal.coordinator, log=source.pipeline, security=Security.read())


def open_reader(where: Where) -> JournalReader:
    """A reader of the log, in the process that calls."""
    if where.folder is not None:
        return LocalReader(Path(where.folder))
    from truecut.journal.replicated.reader import ReplicatedReader

    assert where.coordinator is not None
    assert where.log is not None
    return ReplicatedReader(where.coordinator, where.log, security=where.security)
