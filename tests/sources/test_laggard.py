"""Planning for a sink that is far behind: in bounded windows, and with the same care as for any other."""

from __future__ import annotations

import pytest

from tests.sources.conftest import MakeLake
from tests.sources.lake_writer import LakeWriter
from tests.sources.test_boundary import changes, plan
from truecut.model.change import INSERT
from truecut.sources.ducklake import catalog, window
from truecut.sources.ducklake.attach import connection, pinned
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.tasks import DifferenceTask, FeedTask

BEHIND = 23
SNAPSHOTS_MAX = 5


@pytest.fixture
def lake(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> LakeWriter:
    """A table, and so many snapshots with one row each."""
    monkeypatch.setattr(window, "SNAPSHOTS_MAX", SNAPSHOTS_MAX)
    writer = make_lake(inlining=0)
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)")
    start = writer.head()
    writer.run(*(f"INSERT INTO t VALUES ({start + 1 + n}, 'x')" for n in range(BEHIND)))
    return writer


def test_a_laggard_gets_everything_in_bounded_windows(lake: LakeWriter) -> None:
    """Each change once, in as many windows as it takes; all of them from the feed."""
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)
    place, found, ends = head - BEHIND, [], []
    while place < head:
        planned = plan(source, after=place, upto=head)
        assert {type(task) for task in planned.tasks} == {FeedTask}
        found += changes(planned)
        place = planned.upto.place
        ends.append(place)
    assert ends == [*range(head - BEHIND + SNAPSHOTS_MAX, head, SNAPSHOTS_MAX), head]
    assert found == [(n, INSERT, n) for n in range(head - BEHIND + 1, head + 1)]


@pytest.mark.parametrize("spoilt", ["rewritten", "expired"])
def test_what_happened_after_a_window_counts(lake: LakeWriter, spoilt: str) -> None:
    """Maintenance or a hole far beyond the window: the feed is not believed, the change is the same."""
    after = lake.head() - BEHIND
    if spoilt == "rewritten":
        lake.run("CALL ducklake_merge_adjacent_files('lake')")
    else:
        lake.run(f"CALL ducklake_expire_snapshots('lake', versions => [{lake.head() - 2}])")
    head = lake.head()
    lake.release()
    planned = plan(DuckLakeSource(lake.address, generation=1), after=after, upto=head)
    assert planned.upto.place == after + SNAPSHOTS_MAX
    assert {type(task) for task in planned.tasks} == {DifferenceTask}
    assert [change[2] for change in changes(planned)] == [*range(after + 1, after + SNAPSHOTS_MAX + 1)]


def test_the_list_is_bounded(lake: LakeWriter) -> None:
    """However many snapshots there are, only some are told one by one; the rest is one entry."""
    head = lake.head()
    lake.release()
    with connection() as own, pinned(lake.address, own) as attached:
        listed, last = catalog.snapshots_behind(attached, after=2, beyond=4, count_max=3)
    assert ([s.id for s in listed], last) == ([3, 4, 5, 6, 7, 8], 7)
    assert listed[-1].changes == listed[-2].changes
    assert head > 8
