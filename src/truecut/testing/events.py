"""The laws of a sink about changes that come one by one (`truecut.model.change`): their order, values that
the source did not send, truncates, deletes by key alone.

They are taken over together with `truecut.testing.sinks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from truecut.model.change import DELETE, INSERT, READ, TRUNCATE, UPDATE
from truecut.model.order import Counts, Receipt
from truecut.sinks.contract import Packet
from truecut.testing.bench import SEED, SEEDED, SinkBench, seeded
from truecut.testing.orders import (
    ABSENT,
    NOTED,
    Change,
    applied,
    changes,
    copy_of,
    in_transactions,
    order,
    packets,
    position,
    rows,
    seed,
)

NOTES = [(READ, 4, 1, "a", "x"), (READ, 4, 2, "b", None)]
NOTED_ROWS = [(1, "a", "x"), (2, "b", None)]
FAR = (1 << 63) + 5  # places are unsigned


def noted(bench: SinkBench) -> None:
    """Ours with token 1; the mirror `n`, which has a column more, is seeded at 4 with two rows."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, n=seed(schema=NOTED)), _parts([rows(NOTES, NOTED)], "n")))


def _parts(parts: Sequence[pa.Table], table: str = "t") -> Iterator[Packet]:
    return iter([Packet(f"main.{table}", part) for part in parts])


def _streamed(bench: SinkBench, window: Sequence[Change], upto: int = 9) -> Receipt:
    """The window for `t`, one packet for each change, the last one first."""
    found = rows(window)
    parts = [found.slice(i, 1) for i in reversed(range(len(window)))]
    return applied(bench.sink().apply(order(4, upto, t=changes()), _parts(parts)))


def _noted(bench: SinkBench, window: Sequence[Change]) -> Receipt:
    """The window for `n`."""
    wanted = order(4, 9, n=changes(schema=NOTED))
    return applied(bench.sink().apply(wanted, _parts([rows(window, NOTED)], "n")))


# --- events in their order ----------------------------------------------------------------------------


def test_every_event_of_a_key_counts_in_its_order(bench: SinkBench) -> None:
    """Several changes of one key at one place, by their seq; places as unsigned numbers; packets as they
    come."""
    seeded(bench)
    window = [
        (UPDATE, 5, 1, "a1"),
        (DELETE, 5, 1, "a1"),
        (INSERT, 5, 1, "a2"),
        (UPDATE, 5, 1, "a3"),
        (INSERT, 5, 7, "passes"),
        (UPDATE, 5, 7, "by"),
        (DELETE, 5, 7, "by"),
        (UPDATE, 6, 2, "b1"),
        (DELETE, 6, 3, "c"),
        (INSERT, FAR, 3, "c far"),
        (UPDATE, FAR, 2, "b far"),
    ]
    receipt = _streamed(bench, window, FAR)
    assert bench.rows("t") == [(1, "a3"), (2, "b far"), (3, "c far")]
    assert copy_of(receipt).at == position(FAR)


@pytest.mark.parametrize(
    "window",
    [
        pytest.param([(UPDATE, 5, 1, "a1"), (INSERT, 5, 1, "again")], id="an insert of a live key"),
        pytest.param([(DELETE, 5, 1, "a"), (UPDATE, 5, 1, "late")], id="an update after the delete"),
        pytest.param([(DELETE, 5, 1, "a"), (DELETE, 6, 1, "a")], id="a second delete"),
        pytest.param([(TRUNCATE, 5), (UPDATE, 5, 1, "late")], id="an update after the truncate"),
    ],
)
def test_events_that_contradict_each_other_stop_the_table(bench: SinkBench, window: list[Change]) -> None:
    """Held where it was, with the rows that it had."""
    seeded(bench)
    receipt = _streamed(bench, window)
    assert (copy_of(receipt).hold is not None, copy_of(receipt).at) == (True, position(4))
    assert bench.rows("t") == SEEDED


def test_a_delete_needs_no_more_than_the_key(bench: SinkBench) -> None:
    """The other columns are NULL, or what the source knew of them; nobody compares them."""
    seeded(bench)
    window = [(DELETE, 5, 1), (DELETE, 5, 2, "what?"), (DELETE, 5, 3, ABSENT), (INSERT, 6, 3, "c1")]
    assert _streamed(bench, window).counts == {"main.t": Counts(puts=1, deletes=2)}
    assert bench.rows("t") == [(3, "c1")]


# --- absent values ------------------------------------------------------------------------------------


def test_a_value_that_was_not_sent_stays_what_it_is_at_the_sink(bench: SinkBench) -> None:
    """Column by column; a NULL that was sent is a NULL."""
    noted(bench)
    window = [(UPDATE, 5, 1, ABSENT, "x1"), (UPDATE, 5, 2, "b1", ABSENT), (INSERT, 6, 3, "c", None)]
    assert _noted(bench, window).counts == {"main.n": Counts(puts=3)}
    assert bench.rows("n") == [(1, "a", "x1"), (2, "b1", None), (3, "c", None)]


def test_a_value_that_was_not_sent_is_the_latest_that_the_window_told(bench: SinkBench) -> None:
    """Each column has its own latest change, back to the insert of the key; also where it told NULL."""
    noted(bench)
    window = [
        (UPDATE, 5, 1, "a1", ABSENT),
        (UPDATE, 5, 1, ABSENT, None),
        (UPDATE, 6, 1, ABSENT, ABSENT),
        (INSERT, 6, 3, "c", "y"),
        (UPDATE, 6, 3, ABSENT, "y1"),
        (UPDATE, 7, 3, "c1", ABSENT),
        (DELETE, 7, 2),
        (INSERT, 8, 2, None, "z"),
        (UPDATE, 8, 2, ABSENT, "z1"),
    ]
    _noted(bench, window)
    assert bench.rows("n") == [(1, "a1", None), (2, None, "z1"), (3, "c1", "y1")]


def test_a_row_that_moved_brings_its_values_along(bench: SinkBench) -> None:
    """A changed key is a delete and an insert with the next seq: what it does not tell is the old row's, at
    the sink or in the window, however often it moves; two rows may change places."""
    noted(bench)
    window = [
        (DELETE, 5, 1),
        (INSERT, 5, 9, ABSENT, "x1"),
        (DELETE, 5, 2),
        (INSERT, 5, 1, ABSENT, ABSENT),
        (DELETE, 5, 9),
        (INSERT, 5, 2, ABSENT, ABSENT),
        (INSERT, 6, 5, "e", "v"),
        (UPDATE, 6, 5, ABSENT, "v1"),
        (DELETE, 6, 5),
        (INSERT, 6, 6, ABSENT, ABSENT),
        (UPDATE, 7, 1, "b1", ABSENT),
    ]
    _noted(bench, window)
    assert bench.rows("n") == [(1, "b1", None), (2, "a", "x1"), (6, "e", "v1")]


@pytest.mark.parametrize(
    "window",
    [
        pytest.param([(INSERT, 5, 9, ABSENT)], id="an insert out of nothing"),
        pytest.param(
            [(UPDATE, 5, 1, "a1"), (DELETE, 5, 1), (DELETE, 5, 2), (INSERT, 6, 1, ABSENT)], id="deleted"
        ),
        pytest.param([(TRUNCATE, 5), (INSERT, 6, 1, ABSENT)], id="truncated"),
        pytest.param(
            [(INSERT, 5, 9, ABSENT), (UPDATE, 6, 9, ABSENT)], id="an update that does not tell either"
        ),
    ],
)
def test_a_value_that_nobody_knows_holds_the_table(bench: SinkBench, window: list[Change]) -> None:
    """Never NULL, never what the key had in an earlier life: held where it stands, with the reason."""
    seeded(bench)
    receipt = _streamed(bench, window)
    assert copy_of(receipt).hold is not None
    assert copy_of(receipt).at == position(4)
    assert bench.rows("t") == SEEDED


def test_a_value_that_is_told_later_or_not_needed_does_no_harm(bench: SinkBench) -> None:
    """What the window leaves is whole."""
    seeded(bench)
    window = [
        (INSERT, 5, 7, ABSENT),
        (UPDATE, 6, 7, "told"),
        (INSERT, 6, 8, ABSENT),
        (DELETE, 7, 8),
        (UPDATE, 7, 1, ABSENT),
    ]
    _streamed(bench, window)
    assert bench.rows("t") == [*SEEDED, (7, "told")]


def test_an_update_of_a_row_that_the_sink_lacks_holds_the_table(bench: SinkBench) -> None:
    """There is nothing to take the values from."""
    seeded(bench)
    receipt = _streamed(bench, [(UPDATE, 5, 1, ABSENT), (UPDATE, 5, 8, ABSENT)])
    assert copy_of(receipt).hold is not None
    assert bench.rows("t") == SEEDED


def test_a_seed_with_values_that_were_not_sent_is_no_mirror(bench: SinkBench) -> None:
    """It would replace what is known by NULL."""
    seeded(bench)
    wanted = order(4, 9, t=seed())
    receipt = applied(bench.sink().apply(wanted, packets(t=[(READ, 9, 1, ABSENT), (READ, 9, 2, "b")])))
    assert copy_of(receipt).hold is not None
    assert bench.rows("t") == SEEDED


# --- truncates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "left"),
    [
        pytest.param([(TRUNCATE, 5)], [], id="alone"),
        pytest.param([(UPDATE, 5, 1, "a1"), (INSERT, 5, 9, "n"), (TRUNCATE, 5)], [], id="last"),
        pytest.param([(TRUNCATE, 5), (INSERT, 5, 1, "a1"), (UPDATE, 6, 1, "a2")], [(1, "a2")], id="first"),
        pytest.param(
            [(DELETE, 5, 1), (TRUNCATE, 5), (INSERT, 5, 2, "b1"), (TRUNCATE, 6), (INSERT, 6, 3, "c1")],
            [(3, "c1")],
            id="twice",
        ),
        pytest.param(
            [(UPDATE, 5, 1, ABSENT), (TRUNCATE, 5), (INSERT, 5, 1, "a1"), (UPDATE, 6, 1, ABSENT)],
            [(1, "a1")],
            id="among values that were not sent",
        ),
        pytest.param([(INSERT, 5, 9, ABSENT), (TRUNCATE, FAR)], [], id="after a value that nobody knows"),
    ],
)
def test_a_truncate_empties_the_table_in_its_place(
    bench: SinkBench, window: list[Change], left: list[tuple[int, str]]
) -> None:
    """What comes before it is void, what comes after it is there."""
    seeded(bench)
    receipt = _streamed(bench, window, FAR)
    assert (copy_of(receipt).hold, copy_of(receipt).at) == (None, position(FAR))
    assert bench.rows("t") == left


def test_a_truncate_of_one_table_leaves_the_others(bench: SinkBench) -> None:
    """Counted as what went; the other table of the order has its own changes, and goes on after it."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed(), u=seed()), packets(t=SEED, u=SEED)))
    both = order(4, 5, t=changes(), u=changes())
    receipt = applied(bench.sink().apply(both, packets(t=[(TRUNCATE, 5)], u=[(DELETE, 5, 1)])))
    assert receipt.counts == {"main.t": Counts(deletes=3), "main.u": Counts(deletes=1)}
    assert (bench.rows("t"), bench.rows("u")) == ([], SEEDED[1:])
    applied(bench.sink().apply(order(5, 6, t=changes()), packets(t=[(INSERT, 6, 1, "new")])))
    assert bench.rows("t") == [(1, "new")]


# --- append tables ------------------------------------------------------------------------------------


def test_append_keeps_every_event_and_says_what_was_not_sent(bench: SinkBench) -> None:
    """A truncate is a row without values; each row has the source's name of its transaction, or the position
    where it gave none; absent values are marked."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed("append")), packets(t=SEED[:1])))
    window = [(UPDATE, 5, 1, ABSENT), (TRUNCATE, 5), (INSERT, 5, 1, "a"), (DELETE, FAR, 1, ABSENT)]
    named = in_transactions(rows(window), ["501", "501", None, "502"])
    parts = [named.slice(2, 2), named.slice(0, 2)]
    applied(bench.sink().apply(order(4, FAR, t=changes("append")), _parts(parts)))
    plain = [(INSERT, FAR + 1, 2, "b")]
    applied(bench.sink().apply(order(FAR, FAR + 1, t=changes("append")), packets(t=plain)))
    assert bench.log("t") == [
        (str(position(4)), "0000000000000000", "read", 1, "a"),
        (str(position(5)), "0000000000000000", "update", 1, None),
        (str(position(5)), "0000000000000001", "truncate", None, None),
        (str(position(5)), "0000000000000002", "insert", 1, "a"),
        (str(position(FAR)), "0000000000000003", "delete", 1, None),
        (str(position(FAR + 1)), "0000000000000000", "insert", 2, "b"),
    ]
    assert bench.marks("t") == [
        (str(position(4)), None),
        ("501", ["value"]),
        ("501", None),
        (str(position(5)), None),
        ("502", ["value"]),
        (str(position(FAR + 1)), None),
    ]
