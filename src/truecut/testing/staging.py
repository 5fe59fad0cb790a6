"""The laws of a sink that lets many tasks stage one seed (`Capabilities.stages_apart`).

They come along with `truecut.testing.sinks`. A sink that stages whole orders says so by having no landing,
and then that is all there is to be tried.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from truecut.errors import Fault, Retry
from truecut.model.change import INSERT, READ
from truecut.model.cursor import Hold
from truecut.model.order import Counts, Order, Receipt
from truecut.model.table import Mode
from truecut.sinks.contract import Packet
from truecut.sinks.parts import Landing, Part
from truecut.testing.bench import SEED, SEEDED, SinkBench, cursor_of, seeded
from truecut.testing.orders import Change, applied, changes, copy_of, order, packets, position, rows, seed

WHOLE = [(READ, 9, n, f"v{n}") for n in range(1, 8)]
COPIED = [(n, f"v{n}") for n in range(1, 8)]
SHARES = [WHOLE[:3], WHOLE[3:5], WHOLE[5:]]


def landing_at(bench: SinkBench, wanted: Order) -> Landing | None:
    """Where the order's rows may be left; a sink says so if and only if it can."""
    sink = bench.sink()
    landing = sink.landing(wanted)
    assert (landing is not None) == sink.capabilities.stages_apart
    return landing


def staged(
    bench: SinkBench, wanted: Order, landing: Landing, shares: Sequence[Sequence[Change]]
) -> list[Part]:
    """Each share by a handle of its own, all at once, as tasks do; what they tell has travelled."""

    def one(piece: int) -> Part:
        part = bench.sink().stage_part(wanted, landing, packets(t=shares[piece]), piece=piece)
        told: Part = pickle.loads(pickle.dumps(part))
        return told

    with ThreadPoolExecutor(len(shares)) as tasks:
        return list(tasks.map(one, range(len(shares))))


def carried_out(bench: SinkBench, wanted: Order, parts: Sequence[Part], *, pieces: int) -> Receipt:
    """By another handle."""
    return bench.sink().apply_parts(wanted, parts, {}, pieces=pieces)


def test_a_seed_that_many_have_staged_is_the_seed(bench: SinkBench) -> None:
    """REPLACE, as by one: nothing of what the table held stays; empty pieces count, too; changes go on."""
    seeded(bench)
    wanted = order(4, 9, t=seed())
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    parts = staged(bench, wanted, landing, [*SHARES, []])
    assert (bench.rows("t"), cursor_of(bench, 1).position) == (SEEDED, position(4))
    receipt = applied(carried_out(bench, wanted, parts, pieces=4))
    assert receipt.counts == {"main.t": Counts(puts=len(COPIED))}
    assert bench.rows("t") == COPIED
    again = order(9, 10, edition=2, t=changes())
    applied(bench.sink().apply(again, packets(t=[(INSERT, 10, 8, "v8")])))
    assert bench.rows("t") == [*COPIED, (8, "v8")]


def test_an_append_table_gets_what_many_have_staged_as_read_rows(bench: SinkBench) -> None:
    """Beside what it has, each with its own place and number."""
    applied(bench.sink().recover(epoch=1, token=1))
    applied(bench.sink().apply(order(None, 4, t=seed("append")), packets(t=SEED[:1])))
    wanted = order(4, 9, t=seed("append"))
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    applied(carried_out(bench, wanted, staged(bench, wanted, landing, SHARES), pieces=3))
    found = bench.log("t")
    assert [row[2] for row in found] == ["read"] * 8
    assert sorted(row[3:] for row in found[1:]) == COPIED
    assert len(bench.marks("t")) == 8


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_a_staged_seed_that_runs_twice_has_one_effect(bench: SinkBench, mode: Mode) -> None:
    """The task that committed it has died and runs again, with the same parts."""
    applied(bench.sink().recover(epoch=1, token=1))
    wanted = order(None, 9, t=seed(mode))
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    parts = staged(bench, wanted, landing, SHARES)
    first = applied(carried_out(bench, wanted, parts, pieces=3))
    second = carried_out(bench, wanted, parts, pieces=3)
    assert (second.outcome, second.cursor) == ("already", first.cursor)
    found = bench.rows("t") if mode == "mirror" else sorted(row[3:] for row in bench.log("t"))
    assert found == COPIED


def test_a_piece_that_was_staged_twice_counts_once(bench: SinkBench) -> None:
    """A task ran again: what its first run has left has no effect; a piece that is told twice is refused."""
    applied(bench.sink().recover(epoch=1, token=1))
    wanted = order(None, 9, t=seed())
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    parts = staged(bench, wanted, landing, SHARES)
    again = bench.sink().stage_part(wanted, landing, packets(t=SHARES[1]), piece=1)
    for told in ([*parts, again], parts[:2], [*parts[:2], parts[1]]):
        refused = carried_out(bench, wanted, told, pieces=3)
        assert refused.outcome == "failed"
        assert refused.fault is not None
        assert refused.fault.retry is Retry.RETRYABLE
        assert cursor_of(bench, 1).position is None
    receipt = applied(carried_out(bench, wanted, [parts[0], again, parts[2]], pieces=3))
    assert copy_of(receipt).hold is None
    assert bench.rows("t") == COPIED


def test_a_takeover_fences_out_what_was_staged_before_it(bench: SinkBench) -> None:
    """And the new owner's seed has its effect."""
    seeded(bench)
    wanted = order(4, 9, t=seed())
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    parts = staged(bench, wanted, landing, SHARES)
    applied(bench.sink().recover(epoch=2, token=2))
    late = carried_out(bench, wanted, parts, pieces=3)
    assert (late.outcome, late.fenced_by) == ("failed", 2)
    assert bench.rows("t") == SEEDED
    ours = order(4, 9, token=2, t=seed())
    applied(carried_out(bench, ours, staged(bench, ours, landing, SHARES[:2]), pieces=2))
    assert bench.rows("t") == COPIED[:5]


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param([WHOLE[:3], WHOLE[2:]], id="in two pieces"),
        pytest.param([[*WHOLE[:3], WHOLE[0]], WHOLE[3:]], id="in one piece"),
    ],
)
def test_a_key_that_is_there_twice_holds_the_table(
    bench: SinkBench, shares: list[list[tuple[Any, ...]]]
) -> None:
    """Wherever it is: the table is held as it was, and `already` so."""
    seeded(bench)
    wanted = order(4, 9, t=seed())
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    parts = staged(bench, wanted, landing, shares)
    receipt = applied(carried_out(bench, wanted, parts, pieces=2))
    hold = copy_of(receipt).hold
    assert hold is not None
    assert hold.code == "TC3020"
    assert bench.rows("t") == SEEDED
    assert carried_out(bench, wanted, parts, pieces=2).outcome == "already"


def test_a_key_without_a_value_holds_the_table(bench: SinkBench) -> None:
    """One of the pieces has it."""
    seeded(bench)
    wanted = order(4, 9, t=seed())
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    parts = staged(bench, wanted, landing, [WHOLE[:2], [(READ, 9, None, "x")]])
    receipt = applied(carried_out(bench, wanted, parts, pieces=2))
    hold = copy_of(receipt).hold
    assert hold is not None
    assert hold.code == "TC3021"
    assert bench.rows("t") == SEEDED


def test_a_table_that_could_not_be_read_is_held_though_pieces_were_staged(bench: SinkBench) -> None:
    """Its rows are dropped; the other tables of the order are seeded."""
    applied(bench.sink().recover(epoch=1, token=1))
    wanted = order(None, 9, t=seed(), u=seed())
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    given = [Packet("main.t", rows(WHOLE)), Packet("main.u", rows(WHOLE))]
    part = bench.sink().stage_part(wanted, landing, iter(given), piece=0)
    stops = {"main.t": Fault("X2007", "it cannot be read", "Mend it.")}
    receipt = applied(bench.sink().apply_parts(wanted, [part], stops, pieces=1))
    assert copy_of(receipt).hold == Hold("X2007", "it cannot be read")
    assert (copy_of(receipt, "u").hold, bench.rows("u")) == (None, COPIED)


def test_a_piece_that_could_not_be_staged_fails_the_order(bench: SinkBench) -> None:
    """With its own fault, and nothing is written."""
    seeded(bench)
    wanted = order(4, 9, t=seed())
    landing = landing_at(bench, wanted)
    if landing is None:
        return
    parts = staged(bench, wanted, landing, SHARES[:1])
    full = Fault("X4099", "the disk is full", "Make room.", Retry.RETRYABLE)
    failed = carried_out(bench, wanted, [*parts, Part(1, fault=full)], pieces=2)
    assert (failed.outcome, failed.fault) == ("failed", full)
    late = carried_out(bench, wanted, [*parts, Part(1, fault=full, late=True)], pieces=2)
    assert late.outcome == "late"
    assert bench.rows("t") == SEEDED
