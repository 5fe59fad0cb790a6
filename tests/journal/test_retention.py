"""What is kept, and for whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.journal.conftest import Open
from tests.journal.world import at, content, numbered
from truecut.core.retention import Held, decide
from truecut.journal.retention import retain
from truecut.model.position import Position

PLACES = st.one_of(st.none(), st.integers(1, 20).map(at))
HELD = st.builds(Held, PLACES, st.integers(0, 10), st.integers(0, 10))
LARGE = 1 << 40


@given(sinks=st.dictionaries(st.sampled_from("abcd"), HELD), certified=PLACES, head=PLACES)
def test_nothing_that_somebody_needs_is_released(
    sinks: dict[str, Held], certified: Position | None, head: Position | None
) -> None:
    """Every attached sink and every certificate has what it needs; only who holds too much is detached."""
    decision = decide(sinks, certified=certified, head=head)
    assert decision.detached == {name for name, held in sinks.items() if held.bytes_behind > held.bytes_max}
    needs = [held.acknowledged for name, held in sinks.items() if name not in decision.detached]
    if decision.released is None:
        assert None in [*needs, certified, head]
    else:
        assert all(need is not None and need >= decision.released for need in [*needs, certified, head])
        assert decision.released in [*needs, certified, head]


def test_segments_go_when_all_sinks_have_acknowledged_them(open_journal: Open) -> None:
    """The slowest sink decides; what it has not acknowledged can be read."""
    journal = open_journal()
    records = numbered(1, 60)
    for record in records:
        journal.append([record])
    limits = {"fast": LARGE, "slow": LARGE}
    before = journal.size()
    waiting = retain(
        journal, {"fast": at(60), "slow": None}, bytes_max=limits, certified=at(60), resumes_at=None
    )
    assert (waiting.released, journal.size()) == (None, before)
    retain(journal, {"fast": at(60), "slow": at(40)}, bytes_max=limits, certified=at(60), resumes_at=None)
    assert 0 < journal.size() < before
    assert content(journal, after=at(40)) == records[40:]


def test_a_certificate_keeps_what_it_needs(open_journal: Open) -> None:
    """Even when all sinks are done with it."""
    journal = open_journal()
    records = numbered(1, 60)
    for record in records:
        journal.append([record])
    retain(journal, {"only": at(60)}, bytes_max={"only": LARGE}, certified=at(20), resumes_at=None)
    assert content(journal, after=at(20)) == records[20:]


def test_a_sink_that_holds_too_much_is_let_go(open_journal: Open) -> None:
    """The others go on: the journal shrinks although it has acknowledged nothing."""
    journal = open_journal()
    for record in numbered(1, 60):
        journal.append([record])
    before = journal.size()
    limits = {"good": LARGE, "dead": before // 2}
    decision = retain(
        journal, {"good": at(60), "dead": None}, bytes_max=limits, certified=at(60), resumes_at=None
    )
    assert decision.detached == {"dead"}
    assert journal.size() < before // 2
