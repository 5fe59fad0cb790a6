"""Ready means that the frontiers move."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.views import view_of
from truecut.serving.frontiers import STILL_MS, Frontiers

BEHIND = {"state": "behind", "lag_ms": 5}


def test_nothing_is_ready_before_the_source_was_seen(tmp_path: Path) -> None:
    """The process works, but nobody knows what there is to carry."""
    frontiers = Frontiers(began_ms=1)
    assert frontiers.works(now_ms=10**9)
    frontiers.update(view_of(tmp_path, {}, seen_at_ms=None), now_ms=2)
    assert frontiers.stuck(now_ms=2) == ["the source"]


@pytest.mark.parametrize(
    ("first", "then", "stuck"),
    [
        ({}, {}, []),  # current: nowhere to go
        (BEHIND, BEHIND, ["sink s"]),
        (BEHIND, {**BEHIND, "position": "further"}, []),
        (BEHIND, {**BEHIND, "rows": 7}, []),
        ({"lag_ms": None, "state": "behind"}, {"lag_ms": None, "state": "behind"}, ["sink s"]),
        ({**BEHIND, "state": "paused"}, {**BEHIND, "state": "paused"}, []),
        ({"status": "held"}, {"status": "held"}, ["sink s"]),
    ],
)
def test_a_sink_that_lacks_something_has_to_move(
    tmp_path: Path, first: dict[str, object], then: dict[str, object], stuck: list[str]
) -> None:
    """One that lacks nothing, or was told to pause, may stand still; one that is held is stuck at once."""
    frontiers = Frontiers(began_ms=1)
    frontiers.update(view_of(tmp_path, {"s": first}, seen_at_ms=1), now_ms=1)
    now_ms = 2 + STILL_MS
    frontiers.update(view_of(tmp_path, {"s": then}, seen_at_ms=2), now_ms=now_ms)
    assert frontiers.stuck(now_ms=now_ms) == stuck


def test_a_seed_that_goes_on_moves(tmp_path: Path) -> None:
    """Nothing is at the sink before a seed has ended: how far it is counts."""
    frontiers = Frontiers(began_ms=1)
    unseeded = {"s": {"state": "backfilling", "lag_ms": None, "status": "unseeded"}}
    for number, done in enumerate((0.1, 0.2)):
        view = view_of(tmp_path, unseeded, seen_at_ms=number)
        view.seeds = {("s",): done}
        frontiers.update(view, now_ms=1 + number * (STILL_MS + 1))
    assert frontiers.stuck(now_ms=2 + STILL_MS) == []


def test_a_loop_that_does_not_turn_is_not_well(tmp_path: Path) -> None:
    """Whatever it said last."""
    frontiers = Frontiers(began_ms=1)
    frontiers.update(view_of(tmp_path, {}), now_ms=5)
    assert frontiers.stuck(now_ms=5) == []
    later_ms = 6 + STILL_MS
    assert not frontiers.works(now_ms=later_ms)
    assert frontiers.stuck(now_ms=later_ms) == ["the run", "the source"]
