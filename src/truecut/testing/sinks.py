"""The laws of a sink (`truecut.sinks.contract`). Content is what the destination's own client reads.

Take them over with `from truecut.testing.sinks import *` and a fixture `bench`. Those about single events,
absent values and truncates stand in `truecut.testing.events`, those about seeds that many tasks stage in
`truecut.testing.staging`, those about repairs in `truecut.testing.repairs`; they come along.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from truecut.errors import Fault, Retry
from truecut.model.change import DELETE, INSERT, READ, UPDATE
from truecut.model.cursor import Cursor, Hold, Version
from truecut.model.order import Counts, Order
from truecut.model.position import SourcePosition
from truecut.model.table import Mode
from truecut.sinks.contract import Packet
from truecut.testing.bench import SEED, SEEDED, SinkBench, cursor_of, seeded
from truecut.testing.events import *  # noqa: F403 - laws, too
from truecut.testing.orders import (
    ITEMS,
    applied,
    changes,
    copy_of,
    held,
    order,
    order_of,
    packets,
    persisted,
    position,
    rows,
    seed,
    standing,
)
from truecut.testing.repairs import *  # noqa: F403 - laws, too
from truecut.testing.staging import *  # noqa: F403 - laws, too

# --- owning a sink ------------------------------------------------------------------------------------


def test_a_new_sink_has_an_empty_cursor_with_our_token(bench: SinkBench) -> None:
    """Recovery makes what is missing and reports what is there: nothing."""
    receipt = bench.sink().recover(epoch=3, token=5)
    assert (receipt.outcome, receipt.epoch) == ("applied", 3)
    assert receipt.cursor == Cursor(position=None, token=5)


def test_a_newer_token_fences_the_older_one_out(bench: SinkBench) -> None:
    """After a takeover the old owner's orders and takeovers fail and say who owns the sink."""
    seeded(bench)
    applied(bench.sink().recover(epoch=2, token=7))
    applied(bench.sink().recover(epoch=2, token=7))  # the same owner again: fine
    late = bench.sink().apply(order(4, 5, t=changes(), token=1), packets(t=[(DELETE, 5, 1, "a")]))
    assert (late.outcome, late.fenced_by) == ("failed", 7)
    assert late.fault is not None
    assert late.fault.retry is Retry.FATAL
    older = bench.sink().recover(epoch=2, token=6)
    assert (older.outcome, older.fenced_by, older.cursor) == ("failed", 7, None)
    assert bench.rows("t") == SEEDED
    applied(bench.sink().apply(order(4, 5, t=changes(), token=7), packets(t=[(DELETE, 5, 1, "a")])))
    assert (cursor_of(bench, 7).position, cursor_of(bench, 7).token) == (position(5), 7)


def test_a_takeover_between_staging_and_commit_wins(bench: SinkBench) -> None:
    """What was staged before it is worth nothing after it."""
    seeded(bench)
    wanted, old = order(4, 5, t=changes()), bench.sink()
    staged = old.stage(wanted, packets(t=[(DELETE, 5, 1, "a")]))
    applied(bench.sink().recover(epoch=2, token=2))
    late = old.commit(wanted, staged)
    staged.close()
    assert (late.outcome, late.fenced_by) == ("failed", 2)
    assert bench.rows("t") == SEEDED
    assert cursor_of(bench, 2).position == position(4)


# --- orders -------------------------------------------------------------------------------------------


def test_a_seed_replaces_whatever_the_table_held(bench: SinkBench) -> None:
    """REPLACE: after a seed the mirror holds exactly its rows; a second seed leaves nothing of the first."""
    seeded(bench)
    assert bench.rows("t") == SEEDED
    receipt = applied(bench.sink().apply(order(4, 9, t=seed()), packets(t=[(READ, 9, 2, "z")])))
    assert receipt.counts == {"main.t": Counts(puts=1)}
    assert bench.rows("t") == [(2, "z")]
    applied(bench.sink().apply(order(9, 10, edition=2, t=seed()), iter([])))
    assert bench.rows("t") == []
    assert cursor_of(bench, 1).position == position(10)


def test_the_latest_change_of_a_key_wins(bench: SinkBench) -> None:
    """A window's net effect: updated, deleted, re-created, moved, and inserted and deleted again."""
    seeded(bench)
    window = [
        (UPDATE, 5, 1, "a1"),
        (DELETE, 5, 2, "b"),
        (INSERT, 6, 4, "d"),
        (UPDATE, 7, 1, "a2"),
        (INSERT, 7, 2, "b again"),
        (DELETE, 7, 3, "c"),
        (INSERT, 7, 5, "e"),
        (DELETE, 8, 5, "e"),
    ]
    receipt = applied(bench.sink().apply(order(4, 8, t=changes()), packets(t=window)))
    assert bench.rows("t") == [(1, "a2"), (2, "b again"), (4, "d")]
    assert receipt.counts == {"main.t": Counts(puts=3, deletes=1)}


def test_append_keeps_every_change(bench: SinkBench) -> None:
    """One row for each change, in fixed-width texts that sort as they do; deletes with their values."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed("append")), packets(t=SEED[:1])))
    window = [(UPDATE, 5, 1, "a1"), (UPDATE, 6, 1, "a2"), (DELETE, 6, 2, "old")]
    receipt = applied(bench.sink().apply(order(4, 6, t=changes("append")), packets(t=window)))
    assert receipt.counts == {"main.t": Counts(puts=3)}
    assert bench.log("t") == [
        (str(position(4)), "0000000000000000", "read", 1, "a"),
        (str(position(5)), "0000000000000000", "update", 1, "a1"),
        (str(position(6)), "0000000000000001", "update", 1, "a2"),
        (str(position(6)), "0000000000000002", "delete", 2, "old"),
    ]


def test_an_order_that_ran_is_answered_without_an_effect(bench: SinkBench) -> None:
    """The same order again: `already`, with the cursor; nothing is written twice."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed(), log=seed("append")), packets(t=SEED, log=SEED)))
    again = order(4, 5, t=changes(), log=changes("append"))
    window = [(UPDATE, 5, 1, "a1"), (INSERT, 5, 9, "n")]
    first = applied(bench.sink().apply(again, packets(t=window, log=window)))
    second = bench.sink().apply(again, packets(t=window, log=window))
    assert (second.outcome, second.cursor) == ("already", first.cursor)
    assert bench.rows("t") == [(1, "a1"), (2, "b"), (3, "c"), (9, "n")]
    assert len(bench.log("log")) == 5


def test_an_order_that_runs_twice_at_once_has_one_effect(bench: SinkBench) -> None:
    """Whoever loses the race says so, or that it may be tried again; and then finds it there."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 1, log=seed("append")), iter([])))
    for place in range(2, 6):
        wanted = order(place - 1, place, log=changes("append"))
        with ThreadPoolExecutor(2) as both:
            runs = [
                both.submit(bench.sink().apply, wanted, packets(log=[(INSERT, place, place, "x")]))
                for _ in range(2)
            ]
        receipts = [run.result() for run in runs]
        outcomes = sorted(receipt.outcome for receipt in receipts)
        assert outcomes in (["already", "applied"], ["applied", "failed"]), receipts
        assert all(r.fault is None or r.fault.retry is Retry.RETRYABLE for r in receipts)
        again = bench.sink().apply(wanted, packets(log=[(INSERT, place, place, "x")]))
        assert again.outcome == "already"
    assert [row[3] for row in bench.log("log")] == [2, 3, 4, 5]


def test_an_order_from_elsewhere_is_refused(bench: SinkBench) -> None:
    """A copy that is neither as expected nor as the order leaves it: retryable, nothing written."""
    seeded(bench)
    receipt = bench.sink().apply(order(3, 9, t=changes()), packets(t=[(INSERT, 9, 9, "n")]))
    assert receipt.outcome == "failed"
    assert receipt.fault is not None
    assert receipt.fault.retry is Retry.RETRYABLE
    assert cursor_of(bench, 1).position == position(4)
    assert bench.rows("t") == SEEDED


def test_a_stale_seed_does_not_overwrite_what_came_since(bench: SinkBench) -> None:
    """Its table was seeded by another order meanwhile: refused whole, with all its tables."""
    seeded(bench)
    refused = bench.sink().apply(order(None, 5, t=seed(), u=seed()), packets(t=SEED[:1], u=SEED))
    assert refused.outcome == "failed"
    assert refused.fault is not None
    assert refused.fault.retry is Retry.RETRYABLE
    assert bench.rows("t") == SEEDED
    assert set(cursor_of(bench, 1).copies) == {"main.t"}


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_a_seed_that_ends_where_its_table_stands_is_carried_out(bench: SinkBench, mode: Mode) -> None:
    """Nothing new at the source: the seed is a new edition, never `already`; once it is there, it is."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed(mode)), packets(t=SEED[:1])))
    again = order(4, 4, t=seed(mode))
    receipt = applied(bench.sink().apply(again, packets(t=SEED[1:])))
    assert copy_of(receipt).version == Version(2, position(4))
    assert bench.sink().apply(again, packets(t=SEED[1:])).outcome == "already"
    found = bench.rows("t") if mode == "mirror" else sorted(row[3:] for row in bench.log("t"))
    assert found == (SEEDED[1:] if mode == "mirror" else SEEDED)


def test_a_seed_and_changes_of_other_tables_commit_in_either_order(bench: SinkBench) -> None:
    """Orders for different tables of one sink do not know of each other; the sink's position follows what
    streams, and the new table is an exception until the others get there."""
    seeded(bench)
    for place, name, seed_first in ((4, "u", True), (5, "v", False)):
        beside, moved = order_of({name: seed()}, None, 9), order(place, place + 1, t=changes())
        window = [(INSERT, place + 1, place + 10, "n")]
        runs = [(moved, {"t": window}), (beside, {name: SEED})]
        receipts = [
            applied(bench.sink().apply(wanted, packets(**found)))
            for wanted, found in (reversed(runs) if seed_first else runs)
        ]
        assert receipts[-1].cursor is not None
        assert receipts[-1].cursor.position == position(place + 1)
        assert copy_of(receipts[-1], name).version == Version(1, position(9))
        assert copy_of(receipts[-1]).version == Version(1, position(place + 1))
        assert bench.rows(name) == SEEDED
    assert [row[0] for row in bench.rows("t")] == [1, 2, 3, 14, 15]


def test_a_place_without_a_commit_is_persisted_for_that_table_alone(bench: SinkBench) -> None:
    """The sink's position moves on; a copy that the order does not name keeps its place."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed(), u=seed()), packets(t=SEED, u=SEED)))
    receipt = applied(bench.sink().apply(order(4, 9, u=persisted()), iter([])))
    assert (copy_of(receipt).at, copy_of(receipt, "u").at) == (position(4), position(9))
    assert receipt.cursor is not None
    assert receipt.cursor.position == position(9)
    receipt = applied(bench.sink().apply(order(4, 7, t=changes()), packets(t=[(DELETE, 7, 1, "a")])))
    assert receipt.cursor is not None
    assert (copy_of(receipt).at, receipt.cursor.position) == (position(7), position(9))
    assert bench.rows("t") == SEEDED[1:]


# --- tables that stop ---------------------------------------------------------------------------------


def test_a_table_whose_rows_could_not_be_read_is_held(bench: SinkBench) -> None:
    """A packet with a fault holds its table with that code, drops its rows, and lets the others go on."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed(), u=seed()), packets(t=SEED, u=SEED)))
    found = rows([(DELETE, 5, 1, "a")])
    fault = Fault("X2007", "a NULL in a key", "Give it one.")
    given = [Packet("main.t", fault=fault), Packet("main.t", found), Packet("main.u", found)]
    receipt = applied(bench.sink().apply(order(4, 5, t=changes(), u=changes()), iter(given)))
    assert copy_of(receipt).hold == Hold("X2007", "a NULL in a key")
    assert (copy_of(receipt).at, copy_of(receipt, "u").at) == (position(4), position(5))
    assert (bench.rows("t"), bench.rows("u")) == (SEEDED, SEEDED[1:])


@pytest.mark.parametrize(
    "window",
    [
        pytest.param([(INSERT, 5, 1, "again")], id="an insert of a key that is there"),
        pytest.param([(UPDATE, 5, 8, "who")], id="an update of one that is not"),
        pytest.param([(DELETE, 5, 8, "who")], id="a delete of one that is not"),
        pytest.param([(INSERT, 5, 1, "again"), (DELETE, 5, 1)], id="one that is there comes and goes"),
    ],
)
def test_a_contradiction_stops_that_table_alone(bench: SinkBench, window: list[tuple[Any, ...]]) -> None:
    """What the sink holds is not what the changes say: held where it is, and the others advance."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed(), u=seed()), packets(t=SEED, u=SEED)))
    both = order(4, 5, t=changes(), u=changes())
    receipt = applied(bench.sink().apply(both, packets(t=window, u=[(DELETE, 5, 1, "a")])))
    assert copy_of(receipt).hold is not None
    assert (copy_of(receipt).at, copy_of(receipt, "u").at) == (position(4), position(5))
    assert (bench.rows("t"), bench.rows("u")) == (SEEDED, SEEDED[1:])
    assert bench.sink().apply(both, packets(t=window, u=[(DELETE, 5, 1, "a")])).outcome == "already"


def test_a_held_table_goes_on_from_its_own_place(bench: SinkBench) -> None:
    """A hold is recorded, stays where it is while others advance, and is lifted by the table's next changes;
    each of these orders has an effect only once, also when it runs again after the next one."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed(), u=seed()), packets(t=SEED, u=SEED)))
    stops = order(4, 4, t=held("X2999", "stopped"))
    assert copy_of(applied(bench.sink().apply(stops, iter([])))).hold == Hold("X2999", "stopped")
    assert bench.sink().apply(stops, iter([])).outcome == "already"
    receipt = applied(bench.sink().apply(order(4, 8, u=changes()), packets(u=[(DELETE, 8, 1, "a")])))
    assert (copy_of(receipt).at, copy_of(receipt, "u").at) == (position(4), position(8))
    resumed = order(8, 8, t=standing(changes(), 4, hold="X2999", answers=7))
    receipt = applied(bench.sink().apply(resumed, packets(t=[(INSERT, 6, 6, "six")])))
    assert copy_of(receipt).version == Version(1, position(8), None, 7)
    assert bench.sink().apply(resumed, packets(t=[(INSERT, 6, 6, "six")])).outcome == "already"
    assert bench.sink().apply(stops, iter([])).outcome == "failed"  # it lay somewhere meanwhile
    assert bench.rows("t") == [*SEEDED, (6, "six")]


def test_a_hold_that_was_lifted_does_not_come_back(bench: SinkBench) -> None:
    """A released copy stands where it stood when it was held; a late run of the hold is refused yet."""
    seeded(bench)
    stops = order(4, 4, t=held("X2999", "stopped"))
    applied(bench.sink().apply(stops, iter([])))
    lifted = order(4, 4, t=standing(persisted(), 4, hold="X2999", answers=7))
    receipt = applied(bench.sink().apply(lifted, iter([])))
    assert copy_of(receipt).version == Version(1, position(4), None, 7)
    assert bench.sink().apply(stops, iter([])).outcome == "failed"
    assert bench.sink().apply(lifted, iter([])).outcome == "already"


def test_what_a_sink_can_never_take_is_told_and_the_rest_is_applied(bench: SinkBench) -> None:
    """Named in the receipt by its id, never by its values. Who takes every value has nothing to tell."""
    if bench.never is None:
        return
    seeded(bench)
    window = [(INSERT, 5, 8, bench.never), (INSERT, 5, 9, "z")]
    receipt = applied(bench.sink().apply(order(4, 5, t=changes()), packets(t=window)))
    told = [(one.table, one.position, one.seq) for one in receipt.rejected]
    assert (told, bench.never in repr(receipt)) == ([("main.t", position(5), 0)], False)
    assert bench.rows("t") == [*SEEDED, (9, "z")]
    assert copy_of(receipt).at == position(5)


# --- staging, and what an order says beside its rows --------------------------------------------------


def test_what_is_staged_has_touched_nothing(bench: SinkBench) -> None:
    """Dropped, the sink is as it was; committed, the order is there."""
    seeded(bench)
    wanted, one = order(4, 5, t=changes()), bench.sink()
    one.stage(wanted, packets(t=[(INSERT, 5, 9, "z")])).close()
    assert (bench.rows("t"), cursor_of(bench, 1).position) == (SEEDED, position(4))
    staged = one.stage(wanted, packets(t=[(INSERT, 5, 9, "z")]))
    receipt = one.commit(wanted, staged)
    assert (applied(receipt).counts["main.t"].puts, tuple(staged.rejected)) == (1, ())
    staged.close()
    assert (bench.rows("t"), cursor_of(bench, 1).position) == ([*SEEDED, (9, "z")], position(5))


def test_what_an_order_says_beside_its_rows_is_kept_in_the_cursor(bench: SinkBench) -> None:
    """The source's own position of each copy that moves, and the digest of a certificate: the copy that an
    order does not move keeps its own, and an order without a digest leaves the one that is there."""
    applied(bench.sink().recover(epoch=1, token=1))
    steps = count(4)

    def told(wanted: Any, certificate: str = "") -> Any:
        words = SourcePosition(f"0/{next(steps)}")
        named = {name: replace(one, source_position=words) for name, one in wanted.tables.items()}
        return replace(wanted, tables=named, certificate=certificate)

    applied(bench.sink().apply(told(order(None, 4, t=seed(), u=seed()), "digest"), packets(t=SEED)))
    applied(bench.sink().apply(told(order(4, 5, t=changes())), packets(t=[(INSERT, 5, 9, "z")])))
    cursor = cursor_of(bench, 1)
    own = {table: copy.source_position for table, copy in cursor.copies.items()}
    assert (own, cursor.certificate) == ({"main.t": "0/5", "main.u": "0/4"}, "digest")


def test_a_copy_says_of_what_settings_and_source_it_is(bench: SinkBench) -> None:
    """Or the next run would not know that it is the copy that the file means. Those of its last seed; changes
    and other tables leave them as they are."""
    applied(bench.sink().recover(epoch=1, token=1))

    def shaped(wanted: Order, fingerprint: str) -> Order:
        named = {name: replace(one, fingerprint=fingerprint) for name, one in wanted.tables.items()}
        return replace(wanted, tables=named)

    first = order(None, 4, t=seed(), log=seed("append"))
    applied(bench.sink().apply(shaped(first, "one"), packets(t=SEED, log=SEED)))
    again = order(4, 5, t=seed())
    applied(bench.sink().apply(shaped(again, "two"), packets(t=[(READ, 5, 1, "a")])))
    moved = order(5, 6, edition=2, t=changes())
    applied(bench.sink().apply(shaped(moved, "two"), packets(t=[(INSERT, 6, 2, "b")])))
    copies = cursor_of(bench, 1).copies
    assert {name: (one.mode, one.fingerprint) for name, one in copies.items()} == {
        "main.t": ("mirror", "two"),
        "main.log": ("append", "one"),
    }
    assert {(one.source_identity, one.columns) for one in copies.values()} == {("source-1", ITEMS.columns)}


def test_a_copy_keeps_the_head_of_its_chain_of_evidence(bench: SinkBench) -> None:
    """Each order that brings rows with a segment's header chains it to the copy's head, in the transaction of
    the rows: a mirror's seed begins with zero bytes, an append table's goes on; persist and hold keep it, a
    table that stops has its old one, and rows that no segment tells end the chain."""
    applied(bench.sink().recover(epoch=1, token=1))
    heads: dict[str, str] = {}

    def head(wanted: Any, header: str, **found: Any) -> str:
        named = {name: replace(one, evidence=header) for name, one in wanted.tables.items()}
        receipt = applied(bench.sink().apply(replace(wanted, tables=named), packets(**found)))
        heads.update({name: copy.evidence for name, copy in cursor_of(bench, 1).copies.items()})
        assert heads == {
            name: copy.evidence for name, copy in (receipt.cursor or Cursor(None, 1)).copies.items()
        }
        return heads["main.t"]

    def after(before: str, header: str) -> str:
        return hashlib.sha256((bytes.fromhex(before) or bytes(32)) + header.encode()).hexdigest()

    base = head(order(None, 4, t=seed(), log=seed("append")), "base", t=SEED, log=SEED)
    assert base == heads["main.log"] == after("", "base")
    second = head(order(4, 5, t=changes()), "second", t=[(DELETE, 5, 1, "a")])
    assert (second, heads["main.log"]) == (after(base, "second"), base)
    assert head(order(5, 6, t=persisted()), "") == second
    assert head(order(6, 7, t=changes()), "wrong", t=[(UPDATE, 7, 1, "not there")]) == second
    again = standing(seed(), 6, hold=(cursor_of(bench, 1).copies["main.t"].version.hold), edition=1)
    assert head(order(6, 8, t=again), "anew", t=SEED) == after("", "anew")
    head(order(4, 8, log=seed("append")), "more", log=[(READ, 8, 9, "z")])
    assert heads["main.log"] == after(base, "more")
    assert head(order(8, 9, edition=2, t=changes()), "", t=[(DELETE, 9, 1, "a")]) == ""
    assert head(order(9, 10, edition=2, t=changes()), "late", t=[(DELETE, 10, 2, "b")]) == ""
