"""The fence of a PostgreSQL sink, under every interleaving of two real processes, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sinks import stepped_postgres as stepped
from tests.sinks.database import cursor_of, places_of, read, sink
from tests.sinks.stepped import Switch
from tests.sinks.test_fence import interleavings
from truecut.model.change import INSERT
from truecut.model.order import Order
from truecut.sinks.contract import Packet
from truecut.sinks.postgres.address import PostgresAddress
from truecut.testing.orders import applied, changes, order, packets, position, rows, seed

APPLY_STEPS, TAKEOVER_STEPS = 4, 2


class Race:
    """A database with tables `t` and `log` and two processes that write to it, again and again."""

    def __init__(self, address: PostgresAddress, switch: Switch | None = None) -> None:
        self.address, self.place, self.token = address, 1, 1
        applied(sink(address).recover(epoch=1, token=1))
        applied(sink(address).apply(order(None, 1, t=seed(), log=seed("append")), packets()))
        self.a = stepped.start("a", sink(address), switch)
        self.b = stepped.start("b", sink(address), switch)

    def next_order(self) -> tuple[Order, list[Packet]]:
        """Insert one row, whose id is its position, into both tables."""
        upto = self.place + 1
        found = rows([(INSERT, upto, upto, "x")])
        wanted = order(self.place, upto, token=self.token, t=changes(), log=changes("append"))
        return wanted, [Packet("main.t", found), Packet("main.log", found)]

    def run(self, schedule: str) -> None:
        """Let both go on as the schedule says, then to their ends."""
        for turn in schedule:
            (self.a if turn == "A" else self.b).step()
        stepped.finish(self.a, self.b)

    def content(self, upto: int) -> tuple[int, int]:
        """How often the row of a position is in the mirror and in the append table."""
        sql = "SELECT (SELECT count(*) FROM main.t WHERE id = {0}), count(*) FROM main.log WHERE id = {0}"
        ((mirror, log),) = read(self.address, sql.format(upto))
        return mirror, log

    def close(self) -> None:
        self.a.close()
        self.b.close()


@pytest.fixture
def race(target: PostgresAddress) -> Iterator[Race]:
    found = Race(target)
    yield found
    found.close()


def takeover_race(race: Race, schedule: str) -> str | None:
    """One commit of the owner against one takeover; what is wrong afterwards, if anything."""
    wanted, found = race.next_order()
    upto, newer = race.place + 1, race.token + 1
    race.a.call((wanted, found))
    race.b.call((1, newer))
    race.run(schedule)
    assert race.a.receipt is not None
    assert race.b.receipt is not None
    committed, seen = race.a.receipt.outcome == "applied", race.b.receipt.cursor
    if seen is None:
        return f"the takeover failed: {race.b.receipt.fault}"
    if not committed and race.a.receipt.fenced_by != newer:
        return f"the old owner failed, but not at the fence: {race.a.receipt.fault}"
    if committed != (seen.position == position(upto)):
        return "the new owner has not seen the old one's commit"
    if race.content(upto) != ((1, 1) if committed else (0, 0)):
        return "the content is not what the receipt says"
    race.place, race.token = upto if committed else race.place, newer
    if cursor_of(race.address) != (str(position(race.place)), newer):
        return "the cursor is not what the receipts say"
    return None


def test_a_commit_and_a_takeover_never_both_win(race: Race) -> None:
    """In all 15 interleavings the old owner's commit is seen by the new owner or has no effect."""
    schedules = list(interleavings(APPLY_STEPS, TAKEOVER_STEPS))
    assert len(schedules) == 15
    assert {s: wrong for s in schedules if (wrong := takeover_race(race, s)) is not None} == {}


def test_an_order_that_runs_twice_at_once_has_one_effect(race: Race) -> None:
    """Two runs of one order, in all 70 interleavings: one applies it, the other finds it there."""
    for schedule in interleavings(APPLY_STEPS, APPLY_STEPS):
        if schedule[0] == "B":  # the mirror image of another one
            continue
        wanted, found = race.next_order()
        race.a.call((wanted, found))
        race.b.call((wanted, found))
        race.run(schedule)
        outcomes = [r.outcome for r in (race.a.receipt, race.b.receipt) if r is not None]
        assert sorted(outcomes) == ["already", "applied"], schedule
        assert race.content(race.place + 1) == (1, 1), schedule
        race.place += 1


def test_a_seed_and_changes_at_once_both_have_their_effect(race: Race) -> None:
    """Two orders of one owner for different tables, in all 70 interleavings: both are applied, neither waits
    for the other's data, and the row knows of both."""
    for number, schedule in enumerate(interleavings(APPLY_STEPS, APPLY_STEPS)):
        wanted, found = race.next_order()
        beside = order(None if number == 0 else number, number + 1, edition=number, u=seed())
        race.a.call((wanted, found))
        race.b.call((beside, [Packet("main.u", rows([(INSERT, 1, number, "u")]))]))
        race.run(schedule)
        race.place += 1
        assert [r and r.outcome for r in (race.a.receipt, race.b.receipt)] == ["applied"] * 2, schedule
        assert race.content(race.place) == (1, 1), schedule
        assert read(race.address, "SELECT id FROM main.u") == [(number,)], schedule
        places = places_of(race.address)
        assert places["main.u"] == [str(position(number + 1)), number + 1, None, 0], schedule
        assert places["main.t"] == places["main.log"] == [str(position(race.place)), 1, None, 0], schedule


def test_two_takeovers_at_once_leave_the_larger_token(target: PostgresAddress) -> None:
    """In all 6 interleavings, on a database without a cursor first, the larger token owns the sink."""
    a, b = stepped.start("a", sink(target)), stepped.start("b", sink(target))
    try:
        for number, schedule in enumerate(interleavings(TAKEOVER_STEPS, TAKEOVER_STEPS)):
            smaller, larger = 2 * number + 1, 2 * number + 2
            a.call((1, smaller))
            b.call((1, larger))
            for turn in schedule:
                (a if turn == "A" else b).step()
            stepped.finish(a, b)
            assert a.receipt is not None
            assert b.receipt is not None
            assert b.receipt.outcome == "applied", schedule
            assert a.receipt.outcome == "applied" or a.receipt.fenced_by == larger, schedule
            assert cursor_of(target) == (None, larger), schedule
    finally:
        a.close()
        b.close()


@pytest.mark.parametrize("switch", [stepped.unlocked_fence, stepped.fence_read_once])
def test_a_fence_with_a_hole_is_found(target: PostgresAddress, switch: Switch) -> None:
    """Without the row's lock, or without the last look, some interleaving lets both win."""
    race = Race(target, switch)
    try:
        assert any(takeover_race(race, s) for s in interleavings(APPLY_STEPS, TAKEOVER_STEPS))
    finally:
        race.close()
