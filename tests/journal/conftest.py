"""A new log for each test, in every form of the journal that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from truecut.journal.contract import Journal
from truecut.journal.local import LocalJournal

FORMS = ("local",)
Open = Callable[..., Journal]


@pytest.fixture(params=FORMS)
def open_journal(request: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the test's log for writing, in small segments. Whatever is left open is closed in the end."""
    opened: list[Journal] = []

    def open_it(**options: Any) -> Journal:
        journal = LocalJournal(tmp_path / "log", **{"segment_bytes_max": 5_000, **options})
        opened.append(journal)
        return journal

    yield open_it
    for journal in opened:
        journal.close()
