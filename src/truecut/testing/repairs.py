"""The laws of a repair at a sink: rows that somebody else has changed are put right where the copy stands."""

from __future__ import annotations

from dataclasses import replace

from truecut.model.change import DELETE, INSERT, UPDATE
from truecut.testing.bench import SEED, SEEDED, SinkBench, cursor_of, seeded
from truecut.testing.orders import (
    Change,
    applied,
    changes,
    order,
    packets,
    position,
    repair,
    seed,
)

_REPAIRS: list[Change] = [(DELETE, 4, 1, "?"), (INSERT, 4, 1, "a1"), (INSERT, 4, 7, "g"), (DELETE, 4, 3, "?")]
_REPAIRED = [(1, "a1"), (2, "b"), (7, "g")]


def test_a_repair_changes_its_rows_and_nothing_else(bench: SinkBench) -> None:
    """Rows that differ, lack or are too many are as they should be; cursor, version and chain of evidence say
    what they said before. Run twice, or late, it has no other effect; and the next changes follow it."""
    applied(bench.sink().recover(epoch=1, token=1))
    first = order(None, 4, t=seed(), u=seed())
    told = {name: replace(one, evidence="base") for name, one in first.tables.items()}
    applied(bench.sink().apply(replace(first, tables=told), packets(t=SEED, u=SEED)))
    before = cursor_of(bench, 1)
    wanted = order(4, 4, t=repair())
    receipt = applied(bench.sink().apply(wanted, packets(t=_REPAIRS)))
    assert (bench.rows("t"), bench.rows("u")) == (_REPAIRED, SEEDED)
    assert receipt.cursor == before == cursor_of(bench, 1)
    assert before.copies["main.t"].evidence != ""
    assert bench.sink().apply(wanted, packets(t=_REPAIRS)).outcome == "failed"
    assert (bench.rows("t"), cursor_of(bench, 1)) == (_REPAIRED, before)
    applied(bench.sink().apply(order(4, 5, t=changes()), packets(t=[(UPDATE, 5, 7, "g1")])))
    assert bench.sink().apply(wanted, packets(t=_REPAIRS)).outcome == "failed"
    assert bench.rows("t") == [*_REPAIRED[:2], (7, "g1")]


def test_a_repair_of_one_copy_does_not_move_the_sink(bench: SinkBench) -> None:
    """A copy that is ahead of the others is repaired there; the others have not come so far by that."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, u=seed()), packets(u=SEED)))
    applied(bench.sink().apply(order(None, 9, t=seed()), packets(t=[(op, 9, *row) for op, _, *row in SEED])))
    ahead = [(op, 9, *row) for op, _, *row in _REPAIRS]
    applied(bench.sink().apply(order(9, 9, t=repair()), packets(t=ahead)))
    assert (bench.rows("t"), cursor_of(bench, 1).position) == (_REPAIRED, position(4))


def test_a_repair_that_does_not_fit_is_refused(bench: SinkBench) -> None:
    """Somebody has changed the rows once more: nothing is written, and nothing is held for it, so that what
    follows the source goes on."""
    seeded(bench)
    before = cursor_of(bench, 1)
    unfit: list[list[Change]] = [
        [(DELETE, 4, 1, "?"), (INSERT, 4, 1, "a1"), (DELETE, 4, 9, "not there")],
        [(DELETE, 4, 1, "?"), (INSERT, 4, 1, "a1"), (INSERT, 4, 2, "there already")],
    ]
    for found in unfit:
        receipt = bench.sink().apply(order(4, 4, t=repair()), packets(t=found))
        assert (receipt.outcome, receipt.fault is not None) == ("failed", True)
        assert (bench.rows("t"), cursor_of(bench, 1)) == (SEEDED, before)
    applied(bench.sink().apply(order(4, 5, t=changes()), packets(t=[(UPDATE, 5, 2, "b1")])))
