"""What trimming leaves is enough for capture to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.postgres import pgoutput
from truecut.journal.local import LocalJournal
from truecut.journal.record import Kind, Record
from truecut.journal.retention import retain
from truecut.model.position import Position
from truecut.sources.postgres import journaled
from truecut.sources.postgres.lineage import Place, Publication
from truecut.sources.postgres.transactions import Block

PLACE = Place(100, "system", 1, "shop", "slot", 1, Publication(1, "shape"), 5)
MARKER = journaled.marker(PLACE, generation=1)
PART = journaled.changes(Block([pgoutput.begin(7, 200)], (), 0), (), generation=1)


@pytest.mark.parametrize("behind", [[], [Record(b"schema", Kind.SCHEMA), PART]])
def test_the_last_marker_stays_whoever_has_acknowledged_it(tmp_path: Path, behind: list[Record]) -> None:
    """Every record is acknowledged and each is a segment of its own; the journal is opened again: it still
    says how far it has the source's log, and with which transaction it has begun."""
    for records in [[MARKER], [MARKER], *([one] for one in behind)]:
        journal = LocalJournal(tmp_path)
        journal.append(records)
        journal.close()
    journal = LocalJournal(tmp_path)
    before = journaled.ending(journal)
    assert before.marker == Position(1, 2)
    head = journal.head()
    retain(journal, {"a": head}, bytes_max={"a": 1 << 40}, certified=head, resumes_at=before.marker)
    assert journal.oldest() == before.marker
    assert journaled.ending(journal) == before
    assert (before.place, before.unfinished is not None) == (PLACE, bool(behind))
    journal.close()
