"""A thousand lives of the segment log, each from one seed; and every bug of the spec, found in them or
shown by a situation of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specs import tlc
from tests.journal import bugs, situations
from tests.journal.simulation import LawBroken, live
from tests.journal.situations import Stage

LIVES = 1_000  # a bug has to show in as many
LIVES_IN_SOAK = 100_000


def test_every_law_holds_in_every_life() -> None:
    """Whatever is lost, late, doubled, cut, crashed, damaged, fenced, trimmed or taken over. A seed that
    fails is in the message: `python -m tests.journal.simulation SEED` lives it again."""
    _live_many(range(LIVES))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_every_law_holds_in_many_lives(part: int) -> None:
    """The same, for long."""
    each = LIVES_IN_SOAK // 10
    _live_many(range(1_000_000 + part * each, 1_000_000 + (part + 1) * each))


@pytest.mark.parametrize("situation", situations.ALL, ids=lambda one: one.__name__)
def test_every_situation_ends_well(situation: Callable[[Stage], None]) -> None:
    """Each story, as it is told."""
    situation(Stage(frozenset()))


@pytest.mark.parametrize("bug", bugs.ALL)
def test_no_bug_survives_in_the_code(bug: str) -> None:
    """Each of the spec's bugs, put into the code, breaks a law: in its own situation, or in one of the first
    lives."""
    with bugs.switched_on(bug) as surroundings, pytest.raises(LawBroken):
        _show(bug, surroundings)


def _show(bug: str, surroundings: frozenset[str]) -> None:
    if bug in situations.SHOWN:
        situations.SHOWN[bug](Stage(surroundings))
    else:
        _live_many(range(LIVES), surroundings)


def _live_many(seeds: range, surroundings: frozenset[str] = frozenset()) -> None:
    for seed in seeds:
        live(seed, bugs=surroundings)


def test_every_bug_of_the_spec_is_tried_in_the_code() -> None:
    """A switch in the spec without its counterpart here would prove nothing about the code."""
    assert set(bugs.ALL) == set(tlc.switches((tlc.SPECS / "SegmentLog.tla").read_text()))
