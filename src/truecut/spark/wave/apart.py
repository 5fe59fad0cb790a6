"""Which orders of a seed are staged by the tasks that read it. Pure.

Rows of a large seed stay with the tasks that have read them: through the shuffle goes what they have left
(`sinks.parts`), and the task that commits moves no rows. A small share is carried as packets, as changes are:
it would be a file of a few rows from every task.
"""

from __future__ import annotations

from collections.abc import Sequence

from truecut.model.order import Order
from truecut.spark.wave.route import TableRoute

ROWS_MIN = 100_000  # of one sink's share, about
SINKS_MAX = 8  # that one task writes for at the same time: each holds rows for itself


def staged_apart(
    orders: Sequence[Order], routes: Sequence[TableRoute], able: Sequence[bool], *, rows: int
) -> tuple[int, ...]:
    """Indexes of the orders; `able`: whose sinks stage apart. `rows`: of the whole seed, before routing."""
    chosen = tuple(
        index
        for index, order in enumerate(orders)
        if able[index] and _is_seed(order) and rows // _ways(index, routes) >= ROWS_MIN
    )
    return chosen if len(chosen) <= SINKS_MAX else ()


def _is_seed(order: Order) -> bool:
    kinds = {wanted.kind for wanted in order.tables.values()}
    return "replace" in kinds and "changes" not in kinds


def _ways(sink: int, routes: Sequence[TableRoute]) -> int:
    """Into how many shares the rows are split before this sink gets one."""
    own = [1 if sink in how.everywhere else len(how.by_value) for how in routes if sink in how.sinks]
    return max(1, min(own, default=1))
