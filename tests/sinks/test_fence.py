"""The fence, under every interleaving of two real processes, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

import pytest

from tests.sinks import stepped
from tests.sinks.conftest import MakeLake
from tests.sinks.stepped import SteppedSink
from tests.sinks.world import (
    applied,
    changes,
    cursor_of,
    order,
    packets,
    places_of,
    position,
    read,
    rows,
    seed,
    sink,
    tenant,
    watched,
)
from truecut.errors import Retry
from truecut.lake import LakeAddress
from truecut.model.change import INSERT
from truecut.model.order import Order
from truecut.sinks.contract import Packet

APPLY_STEPS, TAKEOVER_STEPS = 4, 3
SHARED = ("sqlite", "postgres")
# All interleavings on the catalog that is shared most; on the other one those in which one of the two goes
# through all of its steps at once, at every place of the other's. Its rest is for long runs.
THOROUGH = [
    pytest.param("postgres", True, id="postgres"),
    pytest.param("sqlite", False, id="sqlite"),
    pytest.param("sqlite", True, id="sqlite-all", marks=pytest.mark.soak),
]
# The takeover's own snapshot is gone after this; only the newest one remains.
EXPIRY = (
    "INSERT INTO lake.main.theirs VALUES (1)",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
)


def interleavings(first: int, second: int) -> Iterator[str]:
    """All ways to merge so many steps of A with so many of B."""
    for places in combinations(range(first + second), second):
        yield "".join("B" if place in places else "A" for place in range(first + second))


def schedules(first: int, second: int, *, every: bool) -> list[str]:
    """All of them, or those in which one is never interrupted."""
    found = interleavings(first, second)
    return [s for s in found if every or "A" * first in s or "B" * second in s]


class Race:
    """A lake with table `t` and two processes that write to it, again and again."""

    def __init__(self, address: LakeAddress, switch: stepped.Switch | None = None) -> None:
        self.address, self.place, self.token = address, 1, 1
        applied(sink(address).recover(epoch=1, token=1))
        applied(sink(address).apply(order(None, 1, t=seed(), log=seed("append")), packets()))
        tenant(address, "CREATE TABLE lake.main.theirs (i INTEGER)")
        self.a: SteppedSink = stepped.start(sink(address), switch)
        self.b: SteppedSink = stepped.start(sink(address), switch)
        self._tenant = ExitStack()
        if address.shared:
            self._tenant.enter_context(watched(address))

    def next_order(self) -> tuple[Order, list[Packet]]:
        """Insert one row, whose id is its position, into both tables."""
        upto = self.place + 1
        found = rows([(INSERT, upto, upto, "x")])
        wanted = order(self.place, upto, token=self.token, t=changes(), log=changes("append"))
        return wanted, [Packet("main.t", found), Packet("main.log", found)]

    def run(self, schedule: str, *, expire: bool = False) -> None:
        """Let both go on as the schedule says, then to their end."""
        for turn in schedule:
            step = (self.a if turn == "A" else self.b).step()
            if expire and turn == "B" and step == "commit":
                tenant(self.address, *EXPIRY)
        self.a.finish()
        self.b.finish()

    def content(self, upto: int) -> tuple[int, int]:
        """How often the row of a position is in the mirror and in the append table."""
        mirror = read(self.address, "t", f"count(*) FILTER (id = {upto})")
        log = read(self.address, "log", f"count(*) FILTER (id = {upto})")
        return mirror[0][0], log[0][0]

    def close(self) -> None:
        self._tenant.close()
        self.a.close()
        self.b.close()


def takeover_race(race: Race, schedule: str, *, expire: bool) -> str | None:
    """One commit of the owner against one takeover; what is wrong afterwards, if anything."""
    wanted, found = race.next_order()
    upto, newer = race.place + 1, race.token + 1
    race.a.call((wanted, found))
    race.b.call((1, newer))
    race.run(schedule, expire=expire)
    assert race.a.receipt is not None
    assert race.b.receipt is not None
    committed, seen = race.a.receipt.outcome == "applied", race.b.receipt.cursor
    if seen is None:
        return "the takeover failed"
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


@pytest.mark.parametrize(("kind", "every"), THOROUGH)
def test_a_commit_and_a_takeover_never_both_win(make_lake: MakeLake, kind: str, every: bool) -> None:
    """Fence: in all 35 interleavings the old owner's commit is seen by the new owner or has no effect, also
    when the tenant expires the takeover's snapshot before the old owner wakes up."""
    race = Race(make_lake(kind))
    try:
        tried = schedules(APPLY_STEPS, TAKEOVER_STEPS, every=every)
        assert len(tried) == (35 if every else 7)
        for expire in (False, True):
            wrong = {s: w for s in tried if (w := takeover_race(race, s, expire=expire)) is not None}
            assert wrong == {}, f"expire={expire}"
    finally:
        race.close()


@pytest.mark.parametrize(("kind", "every"), THOROUGH)
def test_an_order_that_runs_twice_at_once_has_one_effect(make_lake: MakeLake, kind: str, every: bool) -> None:
    """Two runs of one order, in all 70 interleavings: one applies it, the other finds it there."""
    race = Race(make_lake(kind))
    try:
        for schedule in schedules(APPLY_STEPS, APPLY_STEPS, every=every):
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
    finally:
        race.close()


@pytest.mark.parametrize(("kind", "every"), THOROUGH)
def test_a_seed_and_changes_at_once_both_have_their_effect(
    make_lake: MakeLake, kind: str, every: bool
) -> None:
    """Two orders of one owner for different tables, in all 70 interleavings, also when the tenant expires the
    first one's snapshot: both are applied, and the newest row knows of both."""
    race = Race(make_lake(kind))
    try:
        for number, schedule in enumerate(schedules(APPLY_STEPS, APPLY_STEPS, every=every)):
            wanted, found = race.next_order()
            before = None if number == 0 else number
            beside = order(before, number + 1, edition=number, u=seed())
            race.a.call((wanted, found))
            race.b.call((beside, [Packet("main.u", rows([(INSERT, 1, number, "u")]))]))
            race.run(schedule, expire=number % 2 == 1)
            race.place += 1
            assert [r and r.outcome for r in (race.a.receipt, race.b.receipt)] == ["applied"] * 2, schedule
            assert race.content(race.place) == (1, 1), schedule
            assert read(race.address, "u", "id") == [(number,)], schedule
            places = places_of(race.address)
            assert places["main.u"] == [str(position(number + 1)), number + 1, None, 0], schedule
            assert places["main.t"] == places["main.log"] == [str(position(race.place)), 1, None, 0], schedule
    finally:
        race.close()


def test_retries_of_ducklake_would_break_the_fence(make_lake: MakeLake) -> None:
    """Bug switch: with DuckLake's own retries a stale commit passes an expired takeover; this finds it."""
    race = Race(make_lake("postgres"), stepped.retries_of_ducklake)
    try:
        wrong = takeover_race(race, "AAABBBA", expire=True)
        assert wrong == "the new owner has not seen the old one's commit"
    finally:
        race.close()


def test_a_duckdb_file_is_locked_for_everyone_else(make_lake: MakeLake) -> None:
    """A DuckDB-file catalog: while one process is inside its transaction another cannot attach; it gets a
    retryable answer, and afterwards both fence and content are right."""
    address = make_lake("duckdb")
    race = Race(address)
    try:
        wanted, found = race.next_order()
        race.a.call((wanted, found))
        for _ in range(2):
            race.a.step()
        race.b.call((1, 2))
        refused = race.b.finish()
        assert refused.fault is not None
        assert (refused.fault.code, refused.fault.retry) == ("TC4001", Retry.RETRYABLE)
        assert race.a.finish().outcome == "applied"
        race.b.call((1, 2))
        assert applied(race.b.finish()).sink_version
        stale, found = race.next_order()
        race.place += 1
        race.a.call((order(2, 3, token=1), []))
        assert race.a.finish().fenced_by == 2
        assert race.content(2) == (1, 1)
        expected = stale.tables["main.t"].expected
        assert expected is not None
        assert expected.at == position(1)
    finally:
        race.close()


@pytest.mark.parametrize("kind", SHARED)
def test_two_takeovers_at_once_leave_the_larger_token(make_lake: MakeLake, kind: str) -> None:
    """In all 20 interleavings, on a lake without a cursor first, the larger token owns the sink and its
    commit is the only one that goes through."""
    address = make_lake(kind)
    tenant_of_old = sink(address, pipeline="old")
    applied(tenant_of_old.recover(epoch=1, token=1))
    a, b = stepped.start(sink(address)), stepped.start(sink(address))
    try:
        for number, schedule in enumerate(interleavings(TAKEOVER_STEPS, TAKEOVER_STEPS)):
            smaller, larger = 2 * number + 1, 2 * number + 2
            a.call((1, smaller))
            b.call((1, larger))
            for turn in schedule:
                (a if turn == "A" else b).step()
            first, second = a.finish(), b.finish()
            assert second.outcome == "applied", schedule
            assert first.outcome == "applied" or first.fenced_by == larger, schedule
            assert cursor_of(address) == (None, larger), schedule
    finally:
        a.close()
        b.close()


def test_what_is_remembered_of_a_file_catalog_is_of_that_very_snapshot(make_lake: MakeLake) -> None:
    """A takeover that another process made is seen; also in a restored copy whose snapshots have the same
    numbers again."""
    address = make_lake("duckdb")
    file = Path(address.target.reveal())
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 1, t=seed()), packets(t=[(INSERT, 1, 1, "a")])))
    copy = file.read_bytes()
    applied(sink(address).apply(order(1, 2, t=changes()), packets(t=[(INSERT, 2, 2, "b")])))
    file.write_bytes(copy)
    further = """replace(state, '"at":"00000001-0000000000000001"', '"at":"00000001-0000000000000002"')"""
    tenant(address, f"UPDATE lake._truecut.cursor SET token = 9, state = {further}")
    receipt = sink(address).apply(order(2, 3, t=changes()), packets(t=[(INSERT, 3, 3, "c")]))
    assert (receipt.outcome, receipt.fenced_by) == ("failed", 9)
    tenant(address, "UPDATE lake._truecut.cursor SET token = 1")
    applied(sink(address).apply(order(2, 3, t=changes()), packets(t=[(INSERT, 3, 3, "c")])))
    tenant(address, "UPDATE lake._truecut.cursor SET token = 7")
    receipt = sink(address).apply(order(3, 4, t=changes()), packets(t=[(INSERT, 4, 4, "d")]))
    assert (receipt.outcome, receipt.fenced_by) == ("failed", 7)
    assert read(address, "t") == [(1, "a"), (3, "c")]
