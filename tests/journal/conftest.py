"""A new log for each test, in every form of the journal that there is."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journal.cluster import Cluster
from truecut.journal.contract import Journal
from truecut.journal.local import LocalJournal
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.testing.journals import Open

__all__ = ["FORMS", "Open"]
FORMS = ("local", "replicated")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that nobody hurts; each test has a log of its own."""
    running = Cluster(tmp_path_factory.mktemp("cluster")).start()
    yield running
    running.stop()


@pytest.fixture
def started() -> Iterator[Callable[[Any], Any]]:
    """Takes note of writers and followers: whatever is left of them when a test ends is killed."""
    known: list[Any] = []

    def note(one: Any) -> Any:
        known.append(one)
        return one

    yield note
    for one in known:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture(params=FORMS)
def open_journal(request: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the test's log for writing, in small segments. Whatever is left open is closed in the end."""
    opened: list[Journal] = []
    name = f"log-{uuid.uuid4().hex}"

    def open_it(**options: Any) -> Journal:
        options = {"segment_bytes_max": 5_000, **options}
        if request.param == "local":
            journal: Journal = LocalJournal(tmp_path / "log", **options)
        else:
            journal = ReplicatedJournal(request.getfixturevalue("cluster").address, name, **options)
        opened.append(journal)
        return journal

    yield open_it
    for journal in opened:
        journal.close()
