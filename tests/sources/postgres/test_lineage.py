"""Whether a log goes on, decided from what both sides say: every bound, on both of its sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from truecut.core.capture import (
    Mode,
    Retained,
    Verdict,
    WalBudget,
    judge,
    next_mode,
    pace,
    seconds_until_lost,
)
from truecut.sources.postgres.lineage import Look, Place, Publication, Slot, gap
from truecut.sources.postgres.messages import lsn_of, lsn_text

PUBLICATION = Publication(5, "all", {"public.t": "1"}, since="7")
SLOT = Slot(
    confirmed=100,
    restart=50,
    retained_bytes=10,
    safe_bytes=None,
    plugin="pgoutput",
    database="shop",
    two_phase=False,
    active_pid=None,
    invalid=None,
)
PLACE = Place(100, "s", 1, "shop", "cut", 1, PUBLICATION, 700)
LOOK = Look("s", 1, {}, "shop", 100, 700, SLOT, PUBLICATION)


def test_a_place_survives_its_text() -> None:
    """What a marker holds is what is read again."""
    assert Place.of(PLACE.document()) == PLACE
    assert lsn_of(lsn_text(0x16_0000_00B3)) == 0x16_0000_00B3


@pytest.mark.parametrize(
    ("look", "goes_on"),
    [
        (LOOK, True),
        (replace(LOOK, flushed=99), False),
        (replace(LOOK, system="other"), False),
        (replace(LOOK, database="other"), False),
        (replace(LOOK, slot=None), False),
        (replace(LOOK, slot=replace(SLOT, confirmed=101)), False),
        (replace(LOOK, slot=replace(SLOT, confirmed=20)), True),
        (replace(LOOK, slot=replace(SLOT, invalid="wal_removed")), False),
        (replace(LOOK, timeline=2, switches={1: 100}), True),
        (replace(LOOK, timeline=2, switches={1: 99}), False),
        (replace(LOOK, timeline=2, switches={}), False),
        (replace(LOOK, publication=None), False),
        (replace(LOOK, publication=replace(PUBLICATION, oid=6)), False),
        (replace(LOOK, publication=replace(PUBLICATION, shape="some")), False),
        (replace(LOOK, publication=replace(PUBLICATION, since="8")), False),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.t": "1", "public.u": "2"})), True),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.t": "3"})), False),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.renamed": "1"})), True),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.renamed": "3"})), False),
        (replace(LOOK, publication=replace(PUBLICATION, tables={})), False),
    ],
)
def test_what_is_a_gap(look: Look, goes_on: bool) -> None:
    """A slot may be behind the journal (a crash puts it back), never ahead of it."""
    assert (gap(PLACE, look) is None) is goes_on


def test_who_never_noted_since_when_is_told_no_gap_by_it() -> None:
    """A journal of before it was noted goes on; one that noted it does not lose it unsaid."""
    unnoted = replace(PLACE, publication=replace(PUBLICATION, since=""))
    assert gap(unnoted, LOOK) is None
    assert gap(PLACE, replace(LOOK, publication=replace(PUBLICATION, since=""))) is not None


def test_a_table_is_missing_when_its_entry_is_gone() -> None:
    """Under its name or another one; a table that was taken out and put in again has another entry."""
    before = replace(PUBLICATION, tables={"public.t": '{"prrelid": "11"}', "public.u": '{"prrelid": "12"}'})
    assert before.missing(before) == {}
    renamed = {"public.t": '{"prrelid": "11"}', "public.v": '{"prrelid": "12"}'}
    assert before.missing(replace(before, tables=renamed)) == {}
    again = {"public.t": '{"prrelid": "11"}', "public.u": '{"prrelid": "12", "n": 2}'}
    assert before.missing(replace(before, tables=again)) == {12: "public.u"}
    assert before.missing(replace(before, tables={})) == {11: "public.t", 12: "public.u"}


def test_gulps_until_drained_and_a_stream_until_behind() -> None:
    """It does not go to and fro."""
    assert next_mode(Mode.BACKLOG, drained=False, bytes_behind=0) is Mode.BACKLOG
    assert next_mode(Mode.BACKLOG, drained=True, bytes_behind=10**12) is Mode.TAIL
    assert next_mode(Mode.TAIL, drained=False, bytes_behind=10, behind_max=10) is Mode.TAIL
    assert next_mode(Mode.TAIL, drained=False, bytes_behind=11, behind_max=10) is Mode.BACKLOG


def test_the_budget_of_the_log() -> None:
    """At its bound it is kept; beyond it is said, or the slot is given up."""
    assert judge(Retained(0, 11), None) is Verdict.FINE
    assert judge(Retained(0, 10), WalBudget(10, give_up=True)) is Verdict.FINE
    assert judge(Retained(0, 11), WalBudget(10)) is Verdict.WARN
    assert judge(Retained(0, 11), WalBudget(10, give_up=True)) is Verdict.GIVE_UP


def test_the_time_until_the_slot_is_lost() -> None:
    """At the pace that was seen; unknown where it does not grow or the server has no limit, which leaves the
    pace."""
    assert seconds_until_lost([Retained(0, 100, 1000), Retained(10, 200, 900)]) == 90
    assert seconds_until_lost([Retained(0, 100, 0), Retained(10, 200, -100)]) == 0
    assert seconds_until_lost([Retained(0, 100, 1000)]) is None
    assert seconds_until_lost([Retained(0, 100, 1000), Retained(10, 100, 1000)]) is None
    assert seconds_until_lost([Retained(0, 100, None), Retained(10, 200, None)]) is None
    assert pace([Retained(0, 100, None), Retained(10, 200, None)]) == 10
    assert pace([Retained(0, 100), Retained(10, 50)]) == -5
    assert pace([Retained(0, 100)]) is None
