"""Where a place of the server's log is in the journal, also when that is not the journal that it was."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from truecut.journal.local import LocalJournal
from truecut.journal.reader import LocalReader
from truecut.model.position import Position
from truecut.sources.postgres import journaled
from truecut.sources.postgres.captured import CapturedLog, Extent, Mark
from truecut.sources.postgres.lineage import Place, Publication

PLACE = Place(100, "system", 1, "shop", "slot", 1, Publication(1, "shape"), 5, begun="drawn")


def captured(folder: Path, *lsns: int, generation: int = 1) -> None:
    """One marker more for each."""
    journal = LocalJournal(folder)
    for lsn in lsns:
        journal.append([journaled.marker(replace(PLACE, lsn=lsn), generation=generation)])
    journal.close()


def extent_of(log: CapturedLog) -> Extent:
    extent = log.extent()
    assert extent is not None
    return extent


@pytest.mark.parametrize("more", [3, 4, 9])
def test_a_journal_that_was_put_back_is_not_read_by_the_numbers_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """Captured again with other appends, and as the same log: whoever went by what was found before would
    begin behind what is wanted, and miss what is in between."""
    monkeypatch.setattr("truecut.sources.postgres.captured.FRESH_S", 0.0)
    journal, backup = tmp_path / "journal", tmp_path / "backup"
    captured(journal, 100)
    shutil.copytree(journal, backup)
    captured(journal, 110, 120, 130, 140)
    log = CapturedLog(LocalReader(journal))
    before = extent_of(log)
    assert log.before(before, 130) == Mark(4, 130)
    assert log.has(before, Mark(4, 130))

    shutil.rmtree(journal)
    backup.rename(journal)
    captured(journal, *(130 + 10 * n for n in range(1, more + 1)))
    now = extent_of(log)
    assert now.identity == before.identity
    assert log.before(now, 130) == Mark(1, 100)
    assert not log.has(now, Mark(4, 130))
    assert log.before(now, 140) == Mark(2, 140)


def test_what_was_found_in_a_generation_is_not_looked_for_in_the_next(tmp_path: Path) -> None:
    """A slot that was made anew may begin behind a place that the log before it had, too."""
    captured(tmp_path, 100, 110, 120)
    log = CapturedLog(LocalReader(tmp_path))
    assert log.before(extent_of(log), 115) == Mark(2, 110)
    captured(tmp_path, 110, 130, generation=2)
    assert log.before(extent_of(log), 115) == Mark(4, 110)


def test_what_was_found_is_not_looked_for_once_it_is_trimmed(tmp_path: Path) -> None:
    """Asked for what was not there yet, the answer was the last marker of then."""
    captured(tmp_path, 100)
    log = CapturedLog(LocalReader(tmp_path))
    assert log.before(extent_of(log), 160) == Mark(1, 100)
    captured(tmp_path, 150)
    journal = LocalJournal(tmp_path)
    journal.trim(before=Position(1, 2))
    journal.close()
    assert log.before(extent_of(log), 160) == Mark(2, 150)
