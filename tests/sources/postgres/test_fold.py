"""What events leave of a row that moves to another key, and does not tell all of its values again; and events
that no rows with a key can have."""

from __future__ import annotations

import pytest

from truecut.core.splice import MISSING
from truecut.model.change import DELETE, INSERT, UPDATE
from truecut.sources.postgres.fold import Contradicted, Keyed, OfFile, Step

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


COME, GONE = Step(INSERT, 5, 0, None, OLD, 0), Step(DELETE, 5, 1, OLD, None, -1)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([COME, COME], id="it came twice"),
        pytest.param([GONE, GONE], id="it went twice"),
        pytest.param([GONE, Step(UPDATE, 6, 0, None, OLD, 0)], id="it changed when it was gone"),
        pytest.param([Step(DELETE, 6, 0, (None,), None, -1)], id="its key is not told"),
    ],
)
def test_a_contradiction_is_none_of_its_rows(steps: list[Step]) -> None:
    """Whatever is not the story of rows with a key each, is no state of them: it is not folded in silence."""
    rows = Keyed(1)
    for step in steps[:-1]:
        rows.take(step)
    with pytest.raises(Contradicted):
        rows.take(steps[-1])
