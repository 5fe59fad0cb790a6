"""Which orders of a seed are staged by the tasks that read it. Pure."""

from __future__ import annotations

from truecut.spark.wave.apart import ROWS_MIN, SINKS_MAX, staged_apart
from truecut.spark.wave.route import TableRoute
from truecut.testing.orders import changes, order, persisted, seed

SEED = order(None, 9, t=seed())
EVERYWHERE = TableRoute(None, (0,), {}, all_wanted=True)


def test_a_large_seed_of_a_sink_that_can() -> None:
    """Not a small one, not one of a sink that stages whole orders, not changes."""
    chosen = {
        "large": staged_apart([SEED], [EVERYWHERE], [True], rows=ROWS_MIN),
        "small": staged_apart([SEED], [EVERYWHERE], [True], rows=ROWS_MIN - 1),
        "unable": staged_apart([SEED], [EVERYWHERE], [False], rows=ROWS_MIN),
        "changes": staged_apart([order(4, 5, t=changes())], [EVERYWHERE], [True], rows=ROWS_MIN),
        "idle": staged_apart([order(4, 5, t=persisted())], [EVERYWHERE], [True], rows=ROWS_MIN),
        "beside a hold": staged_apart(
            [order(None, 9, t=seed(), u=persisted())], [EVERYWHERE], [True], rows=ROWS_MIN
        ),
    }
    assert {name for name, sinks in chosen.items() if sinks} == {"large", "beside a hold"}


def test_a_share_counts_not_the_whole() -> None:
    """Of rows that are split by their route each sink gets a part; whoever gets all gets all."""
    routed = TableRoute("tenant", (2,), {"a": (0,), "b": (1,), "c": (), "d": ()})
    orders = [SEED] * 3
    assert staged_apart(orders, [routed], [True] * 3, rows=4 * ROWS_MIN) == (0, 1, 2)
    assert staged_apart(orders, [routed], [True] * 3, rows=4 * ROWS_MIN - 1) == (2,)


def test_more_sinks_than_a_task_may_write_for() -> None:
    """Then all go by packets, as changes do."""
    many = SINKS_MAX + 1
    how = TableRoute(None, tuple(range(many)), {}, all_wanted=True)
    assert staged_apart([SEED] * many, [how], [True] * many, rows=ROWS_MIN) == ()
