"""Lag is told by a bounded list of heads, and never too small."""

from __future__ import annotations

from truecut.model.position import Position
from truecut.runtime.head_times import HEADS_MAX, Heads

SEEN = 100_000  # heads, one each second


def _at(place: int) -> Position:
    return Position(1, place)


def test_a_sink_that_stands_still_does_not_fill_the_memory() -> None:
    """However many heads it lacks: their number is bounded, and its own lag is told exactly."""
    heads = Heads()
    for place in range(1, SEEN + 1):
        heads.add(_at(place), place * 1000)
        assert len(heads) <= HEADS_MAX
    assert heads.first_after(_at(0)) == 1000


def test_a_lag_is_never_told_too_small() -> None:
    """At each place at least the truth, and at most a fiftieth more; exactly the truth near the head."""
    heads = Heads()
    for place in range(1, SEEN + 1):
        heads.add(_at(place), place * 1000)
    for place in range(0, SEEN, 7):
        told = heads.first_after(_at(place))
        assert told is not None
        lag_ms = (SEEN - place) * 1000
        assert 0 <= (place + 1) * 1000 - told <= lag_ms // 50
    assert heads.first_after(_at(SEEN - 1)) == SEEN * 1000
    assert heads.first_after(_at(SEEN)) is None


def test_what_everybody_has_is_forgotten() -> None:
    """But for the newest head."""
    heads = Heads()
    for place in range(1, 11):
        heads.add(_at(place), place)
    heads.forget_upto(_at(4))
    assert (len(heads), heads.first_after(_at(1))) == (6, 5)
    heads.forget_upto(_at(99))
    assert len(heads) == 1
