"""Backfills beside a source that never stands still, and that the judge would notice if they were wrong."""

from __future__ import annotations

import pytest

from specs import tlc
from tests.core import cut_life
from tests.core.cut_faults import FAULTS, WIDTH, injected
from tests.core.cut_life import Broken

LIVES = 3_000
FAULTY_LIVES = 400
# What breaks first.
LAWS = {
    "end_is_last_key": "Claimed",
    "applied_again": "AppliedOnce",
    "applied_unrecorded": "Evidenced",
    "start_unchecked": "EvidenceTrue",
    "snapshot_apart": "EvidenceTrue",
    "lock_after_snapshot": "EvidenceTrue",
}


def test_the_sink_is_the_source_at_every_frontier() -> None:
    """Overlapping transactions, savepoints, TRUNCATE, changed keys, absent values, several readers, crashes,
    splits, repeated backfills, a log that is trimmed: the laws hold after every step, and when the source
    falls quiet the backfill ends at its last commit."""
    lives = _lives(LIVES)
    assert sum(life.torn for life in lives) > 50, "some units lacked a value and were read again"
    assert sum(life.crashes for life in lives) > LIVES, "many readers died"
    assert sum(life.sink.edition > 1 for life in lives) > LIVES / 10, "many were repeated"
    assert sum(life.early for life in lives) > 20, "some snapshots came too early"


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_survives(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug of the spec, put into the code or what is around it, breaks a law within hundreds of lives."""
    injected(monkeypatch, fault)
    with pytest.raises(Broken, match=LAWS.get(fault, "SinkTrue")):
        _lives(FAULTY_LIVES)


def _lives(count: int) -> list[cut_life.Life]:
    return [cut_life.run(seed) for seed in range(count)]


def test_every_bug_of_the_spec_is_put_into_the_code() -> None:
    """A switch without its fault would prove nothing about the code."""
    assert set(FAULTS) - set(WIDTH) == set(tlc.switches((tlc.SPECS / "Cut.tla").read_text()))


def test_a_seed_is_one_life() -> None:
    """Whatever a seed has shown, it shows again."""
    one, other = cut_life.run(7), cut_life.run(7)
    assert one.backfill == other.backfill
    assert one.sink.rows == other.sink.rows
