"""Thousands of lives of the segment log, each from one seed; and every bug of the spec, found in them."""

from __future__ import annotations

import pytest

from specs import tlc
from tests.journal import bugs
from tests.journal.simulation import CABLES_CUT_FROM, LawBroken, live

LIVES = 3_000
LIVES_IN_SOAK = 100_000


def test_every_law_holds_in_every_life() -> None:
    """Whatever is lost, late, doubled, crashed, fenced or taken over. A seed that fails is in the message:
    `python -m tests.journal.simulation SEED` lives it again."""
    _live_many(range(LIVES))


def test_every_law_holds_where_cables_are_cut() -> None:
    """Nodes, producers and the coordinator, for a moment or for long."""
    _live_many(range(CABLES_CUT_FROM, CABLES_CUT_FROM + LIVES // 3))


def test_a_copy_of_a_shorter_replica_does_not_block_the_log() -> None:
    """A node has copied a short replica, which is lost; the one that is left is longer."""
    _live_many(range(1_053_773, 1_053_774))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_every_law_holds_in_many_lives(part: int) -> None:
    """The same, for long."""
    each = LIVES_IN_SOAK // 10
    _live_many(range(1_000_000 + part * each, 1_000_000 + (part + 1) * each))


@pytest.mark.parametrize("bug", bugs.ALL)
def test_no_bug_survives_in_the_code(bug: str) -> None:
    """Each of the spec's bugs, put into the code, breaks a law in one of the first lives."""
    with bugs.switched_on(bug) as surroundings, pytest.raises(LawBroken):
        _live_many(range(1_000), surroundings)


def _live_many(seeds: range, surroundings: frozenset[str] = frozenset()) -> None:
    for seed in seeds:
        live(seed, bugs=surroundings)


def test_every_bug_of_the_spec_is_tried_in_the_code() -> None:
    """A switch in the spec without its counterpart here would prove nothing about the code."""
    assert set(bugs.ALL) == set(tlc.switches((tlc.SPECS / "SegmentLog.tla").read_text()))
