"""Snapshots, splices, plans and claims, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truecut.core import cut, splice, visibility
from truecut.core.cut import Backfill, Evidence, Range, Slot, Unit
from truecut.core.splice import ABSENT, MISSING, Event, Splice
from truecut.core.visibility import Snapshot
from truecut.model.position import Position

WRAP = 1 << 32


def at(place: int) -> Position:
    return Position(1, place)


@st.composite
def snapshots(draw: st.DrawFn, near: int = 3 * WRAP) -> Snapshot:
    xmin = draw(st.integers(near - 30, near + 30))
    xmax = draw(st.integers(xmin, xmin + 20))
    xip = draw(st.frozensets(st.integers(xmin, xmax - 1))) if xmax > xmin else frozenset()
    return Snapshot(xmin, xmax, xip)


# --- visibility ---------------------------------------------------------------------------------------


@given(snapshots())
def test_a_snapshot_is_read_as_it_is_written(snapshot: Snapshot) -> None:
    """The text of `pg_current_snapshot()`, there and back."""
    assert Snapshot.parse(str(snapshot)) == snapshot


@pytest.mark.parametrize(
    "text", ["", "1:2", "5:3:", "3:5:7", "3:5:2", "3:5:3,", "3:5:a", " 3:5:", "3:5:3\n", "0:5:"]
)
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    """Never half a set of running transactions."""
    with pytest.raises(ValueError, match="not a snapshot"):
        Snapshot.parse(text)


def test_seen_is_below_xmax_and_not_running() -> None:
    """xmax itself is not seen; what is below xmin always is."""
    snapshot = Snapshot.parse("795:799:795,797")
    assert [xid for xid in range(790, 803) if snapshot.sees(xid)] == [790, 791, 792, 793, 794, 796, 798]


@given(snapshots(), snapshots())
def test_one_snapshot_includes_another(one: Snapshot, other: Snapshot) -> None:
    """If and only if it sees every transaction that the other one sees."""
    everything = range(min(one.xmin, other.xmin) - 2, max(one.xmax, other.xmax) + 2)
    assert one.includes(other) == all(one.sees(xid) for xid in everything if other.sees(xid))


@given(st.integers(3, 5 * WRAP), st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_short_id_is_the_nearest_long_one(near: int, offset: int) -> None:
    """Within half the circle around a snapshot's xmax; below zero there is none."""
    xid = near + offset
    if xid >= 0:
        assert visibility.nearest(xid % WRAP, near=near) == xid


@given(st.lists(st.integers(0, WRAP - 1)), st.integers(3, 5 * WRAP))
def test_many_ids_are_widened_as_one_is(xids: list[int], near: int) -> None:
    """The columns' form is the scalar's."""
    widened = visibility.nearest_of(np.array(xids, np.uint64), near=near)
    assert widened.tolist() == [visibility.nearest(xid, near=near) for xid in xids]


# --- splice -------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.data())
def test_columns_are_spliced_as_single_events_are(data: st.DataObject) -> None:
    """S1: the mask keeps exactly the events that `Splice.keeps` keeps, for units with and without a snapshot,
    units that are not there, and keys of no unit."""
    wanted = st.builds(Splice, st.integers(0, 9).map(at), st.none() | snapshots())
    splices = data.draw(st.lists(st.none() | wanted, min_size=1, max_size=4))
    event = st.tuples(
        st.integers(0, 12), st.integers(3 * WRAP - 40, 3 * WRAP + 60), st.integers(-1, len(splices) - 1)
    )
    events = data.draw(st.lists(event, max_size=30))
    place, xid, unit = (np.array([one[n] for one in events]) for n in range(3))
    mask = splice.keep_mask(
        place=place.astype(np.uint64),
        xid=xid.astype(np.uint64),
        unit=unit.astype(np.intp),
        splices=splices,
        generation=1,
    )
    assert mask.tolist() == [_kept(splices, *one) for one in events]


def _kept(splices: list[Splice | None], place: int, xid: int, unit: int) -> bool:
    found = splices[unit] if unit >= 0 else None
    return found is not None and found.keeps(at=at(place), xid=xid)


def test_an_absent_value_is_the_one_before_and_never_null() -> None:
    """S2: NULL is a value that is told; what is not told stays, and is missing where nothing was."""
    assert splice.merged((1, "large"), (2, ABSENT)) == (2, "large")
    assert splice.merged((1, "large"), (2, None)) == (2, None)
    assert splice.merged(None, (2, ABSENT)) == (2, MISSING)
    assert splice.incomplete((2, MISSING))
    assert not splice.incomplete((2, None))


def test_a_moved_row_brings_its_values_only_from_where_it_still_is() -> None:
    """The unit that it comes from may have seen the move: then that row has gone already."""
    move = Event("move", 1, 2, (5, ABSENT))
    assert splice.taken({1: (1, "large")}, move, lambda _: True) == {2: (5, "large")}
    assert splice.taken({1: (9, "another")}, move, lambda key: key == 2) == {
        1: (9, "another"),
        2: (5, MISSING),
    }
    assert splice.taken({1: (1, "large")}, move, lambda key: key == 1) == {}


# --- plans --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(), unique=True), st.integers(0, 10_000), st.integers(1, 5_000))
def test_a_plan_covers_every_key_once(histogram: list[int], rows: int, rows_max: int) -> None:
    """C1: from below the lowest to above the highest, whatever the statistics know; as fine as asked for."""
    parts = cut.planned(sorted(histogram), rows=rows, rows_max=rows_max)
    assert parts[0].low is None
    assert parts[-1].high is None
    assert [part.high for part in parts[:-1]] == [part.low for part in parts[1:]]
    assert len(parts) <= max(1, -(-rows // rows_max))
    bounds = [part.low for part in parts[1:]]
    assert bounds == sorted(set(bounds))  # type: ignore[type-var]


def test_units_are_about_as_large_as_wanted() -> None:
    """By a histogram of a hundred equal parts."""
    parts = cut.planned(range(101), rows=1_000, rows_max=100)
    inner = [part.high - part.low for part in parts[1:-1]]  # type: ignore[operator]
    assert len(parts) == 10
    assert set(inner) <= {9, 10, 11}


def test_a_reader_goes_on_with_the_part_below_a_split() -> None:
    """Under the snapshot that it has; the rest is to be read by somebody."""
    backfill = cut.begin(Slot(at(0), Snapshot(3, 3)), cut.ranges([]), cursor=at(0))
    opened = cut.open_unit(backfill, 0, snapshot=Snapshot(5, 5), end=at(4), log=cut.Log(at(0), []))
    left, right = cut.split(opened, 0, at="m").units
    assert (left.range, right.range) == (Range(None, "m"), Range("m", None))
    assert left.opened == opened.units[0].opened
    assert right.opened is None


# --- evidence and claims ------------------------------------------------------------------------------


def test_lo_and_hi_are_found_in_the_log() -> None:
    """C2: a snapshot that is no prefix of the commits: 11 was logged first and is seen last."""
    log = cut.Log(at(2), [(at(4), 10), (at(6), 11), (at(8), 12), (at(9), 13)])
    opened = cut.Opened(Snapshot(11, 14, frozenset({11, 13})), at(9))
    assert cut.bracket(opened, log=log) == (at(5), at(8))
    assert cut.bracket(cut.Opened(Snapshot(14, 14), at(9)), log=log) == (at(9), at(9))
    assert cut.bracket(cut.Opened(Snapshot(10, 10), at(9)), log=log) == (at(2), at(2))


def whole() -> Backfill:
    """A backfill of which all may be claimed."""
    told = Evidence(Snapshot(10, 10), at(3), at(5), 1, "")
    units = tuple(Unit(part, evidence=told, applied=True) for part in cut.ranges(["f", "m"]))
    return Backfill(Slot(at(2), Snapshot(9, 9)), units, at(6))


def _but(backfill: Backfill, index: int, **changed: object) -> Backfill:
    return backfill.with_units({index: replace(backfill.units[index], **changed)})  # type: ignore[arg-type]


def test_a_finished_backfill_is_claimed() -> None:
    """At any frontier from its last hi on."""
    assert cut.doubts(whole(), frontier=at(5)) == []
    assert len(cut.doubts(whole(), frontier=at(4))) == 3


TOLD = Evidence(Snapshot(10, 10), at(3), at(5), 1, "")
CHEATS: dict[str, Callable[[Backfill], Backfill]] = {
    "a unit is gone": lambda b: replace(b, units=b.units[:1] + b.units[2:]),
    "the first is gone": lambda b: replace(b, units=b.units[1:]),
    "the last is gone": lambda b: replace(b, units=b.units[:-1]),
    "all are gone": lambda b: replace(b, units=()),
    "out of order": lambda b: replace(b, units=b.units[::-1]),
    "twice": lambda b: replace(b, units=b.units[:2] + b.units[1:]),
    "an end moved": lambda b: _but(b, 1, range=Range("f", "n")),
    "an end at the last key": lambda b: _but(b, 2, range=Range("m", "z")),
    "not applied": lambda b: _but(b, 1, applied=False),
    "no evidence": lambda b: _but(b, 1, evidence=None),
    "lo after hi": lambda b: _but(b, 1, evidence=replace(TOLD, lo=at(6), hi=at(5))),
    "before the log": lambda b: _but(b, 1, evidence=replace(TOLD, lo=at(1))),
    "hi after the frontier": lambda b: _but(b, 1, evidence=replace(TOLD, hi=at(7))),
    "a snapshot before the log": lambda b: _but(b, 1, evidence=replace(TOLD, snapshot=Snapshot(8, 8))),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_nothing_is_claimed_of_a_cut_that_is_none(cheat: str) -> None:
    """Claimed: each way in which it could fall short is a doubt."""
    assert cut.doubts(CHEATS[cheat](whole()), frontier=at(6))


def test_a_unit_that_lacked_a_value_waits_for_a_later_snapshot() -> None:
    """C5: one that does not see what made it necessary is refused, and the record from before is void."""
    torn = cut.wave(_but(whole(), 1, applied=False), upto=at(8), units=[1], torn=[1])
    log = cut.Log(at(2), [(at(4), 9), (at(8), 20)])
    early = cut.open_unit(torn, 1, snapshot=Snapshot(20, 20), end=at(9), log=log)
    late = cut.open_unit(torn, 1, snapshot=Snapshot(21, 21), end=at(9), log=log)
    assert early == torn
    assert late.units[1].opened is not None
    parts = [unit.range for unit in torn.units]
    restarted = cut.recovered(
        torn.slot,
        parts,
        cursor=at(8),
        edition=1,
        applied={parts[0], parts[2]},
        floors={parts[1]: at(8)},
        records=dict.fromkeys(parts, TOLD),
    )
    assert restarted == torn
    assert cut.to_open(restarted, workers=2) == [1]
