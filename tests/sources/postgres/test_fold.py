"""What events leave of a row that moves to another key, and does not tell all of its values again."""

from __future__ import annotations

import pytest

from truecut.core.splice import MISSING
from truecut.model.change import DELETE, INSERT
from truecut.sources.postgres.fold import Keyed, OfFile, Step

OLD, OTHER, NEW = ("1",), ("2",), ("3",)
MOVED = Step(INSERT, 6, 4, None, NEW, 0, absent=(1,))  # its second value is the old row's


@pytest.mark.parametrize(
    ("before", "second"),
    [
        pytest.param([Step(DELETE, 6, 3, OLD, None, -1)], OfFile(OLD), id="right before it"),
        pytest.param([], MISSING, id="that did not count"),
        pytest.param([Step(DELETE, 5, 3, OTHER, None, -1)], MISSING, id="of another transaction"),
        pytest.param([Step(DELETE, 6, 1, OTHER, None, -1)], MISSING, id="of another change"),
        pytest.param(
            [Step(DELETE, 5, 3, OTHER, None, -1), Step(DELETE, 6, 3, OLD, None, -1)],
            OfFile(OLD),
            id="the last",
        ),
    ],
)
def test_a_row_that_moved_has_the_values_of_the_delete_right_before_it(
    before: list[Step], second: object
) -> None:
    """S2: of that one alone, and if it counted. Whatever another delete took away is another row's: then the
    value is missing, which is seen, and its unit is read again."""
    rows = Keyed(2)
    for step in (*before, MOVED):
        rows.take(step)
    assert rows.rows[NEW] == (0, second)
    assert all(rows.rows[step.before] is None for step in before if step.before is not None)
